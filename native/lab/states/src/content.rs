//! What stands in a file's sectors, and where it is kept.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{fgetxattr, flistxattr, openat2, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::failure::{During, Failure, Result};
use crate::fault::Fault;
use crate::trace::{Change, Trace};

/// No list of extended attributes, and no value of one, is longer.
const MAX_EXTENDED: usize = 64 << 10;

/// Hashes what a sector of a file holds. Zeros hash to 0: a sector nobody wrote adds nothing.
pub fn sector_hash(file: u64, number: u64, bytes: &[u8]) -> u64 {
    if is_zero(bytes) {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(file);
    hasher.write_u64(number);
    hasher.write(bytes);
    hasher.finish() | 1
}

/// The same at the same place each time, and nothing that anybody wrote.
fn fill_old(file: u64, offset: u64, buffer: &mut [u8]) {
    for (byte, at) in buffer.iter_mut().zip(offset..) {
        let word = diskproof_random::mix(diskproof_random::mix(file) ^ (at / 8));
        *byte = word.to_le_bytes()[(at % 8) as usize] | 1;
    }
}

pub fn is_zero(bytes: &[u8]) -> bool {
    let mut words = bytes.chunks_exact(8);
    words.remainder().iter().all(|&byte| byte == 0) && words.all(|word| word == [0; 8])
}

/// Where the bytes of a run of sectors are.
#[derive(Clone, Debug)]
pub enum Source {
    /// In the base, at the same place.
    Base,
    Zero,
    /// In the data of a write, from `skip` bytes on.
    Write {
        sequence: u64,
        skip: u64,
    },
    /// Here: one sector that was changed in part.
    Own(Arc<[u8]>),
    /// What another file left on the disk.
    Old,
}

impl Source {
    /// The same source, for sectors that begin so many bytes later.
    pub fn after(&self, bytes: u64) -> Source {
        match self {
            Source::Write { sequence, skip } => {
                Source::Write { sequence: *sequence, skip: skip + bytes }
            }
            other => other.clone(),
        }
    }
}

/// The copy of the recorded directory from before: its files, open.
pub struct Base {
    files: HashMap<u64, BaseFile>,
    /// Of files and directories that have any.
    extended: HashMap<u64, Extended>,
}

/// Extended attributes, by name.
pub type Extended = BTreeMap<Arc<[u8]>, Arc<[u8]>>;

struct BaseFile {
    file: File,
    size: u64,
    /// Where it is not a hole, in bytes.
    data: Vec<(u64, u64)>,
}

impl Base {
    /// Opens what the log names; refuses a base that does not fit.
    pub fn open(folder: &Path, trace: &Trace) -> Result<Base> {
        let named = format!("opening {}", folder.display());
        let root = File::open(folder).during(named)?;
        let mut paths: HashMap<u64, PathBuf> = HashMap::new();
        let mut files = HashMap::new();
        let mut extended = HashMap::new();
        for ((parent, name), file, size) in &trace.base {
            let path = match paths.get(parent) {
                Some(parent) => parent.join(std::ffi::OsStr::from_bytes(name)),
                None if name.is_empty() => PathBuf::new(),
                None => return Err(Failure::new("reading the base", "a name without its parent")),
            };
            let mode = trace.nodes[file].mode;
            let named = || format!("opening {} in the base", path.display());
            let opened = match mode & libc::S_IFMT {
                libc::S_IFREG => Some(open_inside(&root, &path).during(named())?),
                libc::S_IFDIR if name.is_empty() => Some(root.try_clone().during(named())?),
                libc::S_IFDIR => Some(open_inside(&root, &path).during(named())?),
                _ => None,
            };
            if let Some(opened) = opened {
                let found = read_extended(&opened).during(named())?;
                if !found.is_empty() {
                    extended.insert(*file, found);
                }
                if mode & libc::S_IFMT == libc::S_IFREG {
                    files.insert(*file, BaseFile::new(opened, &path, *size)?);
                }
            }
            paths.insert(*file, path);
        }
        Ok(Base { files, extended })
    }

    pub fn extended(&self, file: u64) -> Extended {
        self.extended.get(&file).cloned().unwrap_or_default()
    }

    pub fn size(&self, file: u64) -> u64 {
        self.files.get(&file).map_or(0, |file| file.size)
    }

    /// Says whether it is a regular file of the base.
    pub fn has(&self, file: u64) -> bool {
        self.files.contains_key(&file)
    }

    /// Parts of a file within `start..end` (bytes) that are not known to be zeros.
    pub fn data(&self, file: u64, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ranges = self.files.get(&file).map_or(&[][..], |file| &file.data);
        let first = ranges.partition_point(|range| range.1 <= start);
        let here = ranges[first..].iter().take_while(move |range| range.0 < end);
        here.map(move |&(from, to)| (from.max(start), to.min(end)))
    }

    /// Reads a part of a file; behind its end are zeros.
    pub fn read(&self, file: u64, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        buffer.fill(0);
        let Some(base) = self.files.get(&file) else { return Ok(()) };
        let end = offset + buffer.len() as u64;
        for (from, to) in self.data(file, offset, end) {
            let part = &mut buffer[(from - offset) as usize..(to - offset) as usize];
            base.file.read_exact_at(part, from)?;
        }
        Ok(())
    }

    /// Adds up the hashes of a run of sectors.
    pub fn hash(&self, file: u64, sectors: (u64, u64), sector: u64) -> std::io::Result<u64> {
        let mut sum = 0u64;
        let mut bytes = vec![0; sector as usize];
        let mut next = sectors.0;
        for (from, to) in self.data(file, sectors.0 * sector, sectors.1 * sector) {
            for number in (from / sector).max(next)..to.div_ceil(sector) {
                self.read(file, number * sector, &mut bytes)?;
                sum = sum.wrapping_add(sector_hash(file, number, &bytes));
                next = number + 1;
            }
        }
        Ok(sum)
    }
}

impl BaseFile {
    fn new(file: File, path: &Path, size: u64) -> Result<BaseFile> {
        let named = format!("opening {} in the base", path.display());
        let found = file.metadata().during(&named)?;
        if !found.is_file() || found.len() != size {
            let why = format!("it is not the file of {size} bytes that the log begins with");
            return Err(Failure::new(named, why));
        }
        let data = data_ranges(&file, size).during(named)?;
        Ok(BaseFile { file, size, data })
    }
}

/// Opens a file, but never one outside the base, whatever has become of its directories.
fn open_inside(root: &File, path: &Path) -> std::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(root, path, flags, Mode::empty(), inside)?.into())
}

/// What the file system can keep of them: nothing on some.
fn read_extended(file: &File) -> std::io::Result<Extended> {
    let mut names = vec![0; MAX_EXTENDED];
    let length = match flistxattr(file, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::OPNOTSUPP) => 0,
        Err(error) => return Err(error.into()),
    };
    let names = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let one = |name: &[u8]| {
        let mut value = vec![0; MAX_EXTENDED];
        let length = fgetxattr(file, OsStr::from_bytes(name), &mut value[..])?;
        Ok((name.into(), value[..length].into()))
    };
    names.map(one).collect()
}

/// Finds what lseek(2) calls data: all of it where the file system does not say.
fn data_ranges(file: &File, size: u64) -> std::io::Result<Vec<(u64, u64)>> {
    use rustix::fs::{seek, SeekFrom};
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(vec![(0, size)]),
            Err(error) => return Err(error.into()),
        };
        at = seek(file, SeekFrom::Hole(start))?.min(size);
        ranges.push((start, at));
    }
    Ok(ranges)
}

/// Where all bytes come from: the log and the base.
pub struct Store {
    pub trace: Trace,
    pub base: Base,
}

impl Store {
    pub fn open(log: &Path, base: &Path, sector: Option<u64>) -> Result<Store> {
        let trace = Trace::load(log, sector)?;
        let base = Base::open(base, &trace)?;
        Ok(Store { trace, base })
    }

    /// The same, as this fault's file system carries it out.
    pub fn under(mut self, fault: Fault) -> Store {
        if let Some(rules) = fault.rules() {
            rules.carry_out(&mut self.trace);
        }
        self
    }

    /// Bytes of a file, `skip` bytes behind where `source` begins, which is at `offset` in the
    /// file.
    pub fn read(
        &self,
        file: u64,
        source: &Source,
        offset: u64,
        skip: u64,
        buffer: &mut [u8],
    ) -> std::io::Result<()> {
        match source {
            Source::Base => self.base.read(file, offset + skip, buffer),
            Source::Zero => {
                buffer.fill(0);
                Ok(())
            }
            Source::Write { sequence, skip: before } => match self.trace.change(*sequence) {
                Some(Change::Write { at, .. }) => self.trace.read_data(at + before + skip, buffer),
                _ => unreachable!("only writes are sources"),
            },
            Source::Old => {
                fill_old(file, offset + skip, buffer);
                Ok(())
            }
            Source::Own(bytes) => {
                let start = skip as usize;
                buffer.copy_from_slice(&bytes[start..start + buffer.len()]);
                Ok(())
            }
        }
    }

    /// The sum of the hashes of a run of sectors from this source, less what the base has there.
    pub fn hash(&self, file: u64, sectors: (u64, u64), source: &Source) -> std::io::Result<u64> {
        let sector = self.trace.sector;
        let own = match source {
            Source::Base => return Ok(0),
            Source::Zero => 0,
            Source::Own(bytes) => sector_hash(file, sectors.0, bytes),
            Source::Old => (sectors.0..sectors.1).fold(0u64, |sum, number| {
                let mut bytes = vec![0; sector as usize];
                fill_old(file, number * sector, &mut bytes);
                sum.wrapping_add(sector_hash(file, number, &bytes))
            }),
            Source::Write { sequence, skip } => match self.trace.change(*sequence) {
                Some(Change::Write { offset, hashes, .. }) => {
                    let first = ((offset + skip) / sector - offset.div_ceil(sector)) as usize;
                    let count = (sectors.1 - sectors.0) as usize;
                    let all = hashes[first..first + count].iter();
                    all.fold(0u64, |sum, &hash| sum.wrapping_add(hash))
                }
                _ => unreachable!("only writes are sources"),
            },
        };
        Ok(own.wrapping_sub(self.base.hash(file, sectors, sector)?))
    }
}
