//! A crash log as the explorer needs it: what each record changed, and where in it its data is.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use diskproof_wire::crash_log::{
    Ending, Entry, Flags, Header, Operation, Reader, Record, FRAME_LENGTH,
};

use crate::content::sector_hash;
use crate::failure::{During, Failure, Result};
use crate::operation::Caller;
use crate::ranges::allocation;
use crate::sizes::Sizes;
use crate::source_place::Callers;

/// Records of one log: 100 bytes each in memory.
const MAX_RECORDS: u64 = 64 << 20;
/// No file of any file system we know is larger: keeps sums far from overflow.
const MAX_SIZE: u64 = 1 << 60;
/// Recorders count files from 1; above are those that checks make.
const MAX_FILE: u64 = crate::tree::PROMISES - 1;
/// The offset in a write's payload goes before its data.
const DATA_AT: u64 = FRAME_LENGTH as u64 + 8;

/// Bytes that a crash leaves whole; fewer than 512 are a shorn sector.
const SECTORS: std::ops::RangeInclusive<u64> = 64..=65536;

/// Err says why not.
pub type Understood<T> = std::result::Result<T, &'static str>;
/// A name in a directory.
pub type Place = (u64, Arc<[u8]>);

/// What a record did to the recorded directory.
#[derive(Debug)]
pub enum Change {
    Write {
        offset: u64,
        length: u64,
        /// Where its data is in the log.
        at: u64,
        /// Durable at its end.
        synced: bool,
        /// The hash of each whole sector that it covers, in order.
        hashes: Box<[u64]>,
    },
    Truncate {
        size: u64,
    },
    /// Reads as zeros afterwards; the file is at least so long, if that is said.
    Zero {
        offset: u64,
        length: u64,
        size: Option<u64>,
    },
    /// The file is at least this long afterwards.
    Grow {
        size: u64,
    },
    /// Names are given and taken at once, or not at all.
    Names {
        sets: Vec<(Place, Option<u64>)>,
        /// The directory whose fsync makes it durable.
        directory: u64,
        /// Earlier records about the same names or the same files: there whenever this one is.
        after: Vec<u64>,
    },
    Attributes(AttributeChange),
}

#[derive(Debug)]
pub enum AttributeChange {
    Owner { mode: Option<u32>, uid: Option<u32>, gid: Option<u32> },
    Extended { name: Arc<[u8]>, value: Option<Arc<[u8]>> },
}

#[derive(Debug)]
pub enum What {
    Change(Change),
    /// Of all of a file, or (msync) of these bytes only.
    Flush {
        data_only: bool,
        part: Option<Range<u64>>,
    },
    /// Of all that is recorded.
    Sync,
    Acknowledge(Box<[u8]>),
    Remark,
}

impl What {
    pub fn is_flush(&self) -> bool {
        matches!(self, What::Flush { .. } | What::Sync)
    }
}

#[derive(Debug)]
pub struct Event {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub file: u64,
    pub caller: u32,
    pub what: What,
    /// The truncation that a change of this file's size comes after: the size is there only with
    /// it.
    pub truncation: Option<u64>,
}

/// What a file is for its whole life.
#[derive(Clone, Debug)]
pub struct Node {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub target: Arc<[u8]>,
}

/// A whole log, without the data.
pub struct Trace {
    pub header: Header,
    pub ending: Ending,
    /// Bytes that a crash leaves whole.
    pub sector: u64,
    /// Bytes that a discard leaves whole; None: it is there or not.
    pub discard_granularity: Option<u64>,
    /// The record with sequence number n is at n - 1.
    pub events: Vec<Event>,
    pub nodes: HashMap<u64, Node>,
    /// By their numbers in events, from 1.
    pub callers: Vec<Caller>,
    /// The names at the start, parents first, with sizes.
    pub base: Vec<(Place, u64, u64)>,
    log: File,
}

impl Trace {
    /// Reads a log. `sector` None: as the log's header says.
    pub fn load(path: &Path, sector: Option<u64>) -> Result<Trace> {
        let named = format!("reading {}", path.display());
        let log = File::open(path).during(&named)?;
        let mut reader = Reader::new(BufReader::with_capacity(1 << 20, &log)).during(&named)?;
        let header = reader.header();
        let sector = sector.unwrap_or(u64::from(header.sector));
        if !sector.is_power_of_two() || !SECTORS.contains(&sector) {
            return Err(Failure::new(named, format!("a sector of {sector} bytes is none")));
        }
        let mut loading = Loading::new(sector);
        loop {
            let at = reader.offset() + DATA_AT;
            let Some(record) = reader.next_record().during(&named)? else { break };
            let number = record.sequence;
            let event = loading.take(&record, at);
            loading.events.push(event.during(format!("{named}, record {number}"))?);
            if number >= MAX_RECORDS {
                return Err(Failure::new(named, "more records than can be explored"));
            }
        }
        let ending = reader.ending().unwrap_or(Ending::Open);
        let Loading { events, nodes, callers, base, .. } = loading;
        let callers = callers.finish();
        let discard_granularity = None;
        Ok(Trace { header, ending, sector, discard_granularity, events, nodes, callers, base, log })
    }

    pub fn event(&self, sequence: u64) -> &Event {
        &self.events[sequence as usize - 1]
    }

    /// None for what is no change.
    pub fn change(&self, sequence: u64) -> Option<&Change> {
        match &self.event(sequence).what {
            What::Change(change) => Some(change),
            _ => None,
        }
    }

    pub fn last(&self) -> u64 {
        self.events.len() as u64
    }

    /// Data of a write, from where [`Change::Write`] says it is.
    pub fn read_data(&self, at: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.log.read_exact_at(buffer, at)
    }

    /// The id of the file that a path below the recorded directory named at the start.
    pub fn find_base_file(&self, path: &Path) -> Option<u64> {
        use std::os::unix::ffi::OsStrExt;
        path.iter().try_fold(diskproof_wire::crash_log::ROOT, |directory, name| {
            let named = |((parent, known), file, _): &(Place, u64, u64)| {
                (*parent == directory && **known == *name.as_bytes()).then_some(*file)
            };
            self.base.iter().find_map(named)
        })
    }

    /// Acknowledgements up to a cut, oldest first, with their sequence numbers.
    pub fn acknowledgements(&self, cut: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let until = &self.events[..cut as usize];
        until.iter().zip(1..).filter_map(|(event, sequence)| match &event.what {
            What::Acknowledge(text) => Some((sequence, &text[..])),
            _ => None,
        })
    }
}

/// A log half read.
struct Loading {
    sector: u64,
    events: Vec<Event>,
    nodes: HashMap<u64, Node>,
    callers: Callers,
    base: Vec<(Place, u64, u64)>,
    last_of_file: HashMap<u64, u64>,
    last_of_name: HashMap<Place, u64>,
    sizes: Sizes,
}

impl Loading {
    fn new(sector: u64) -> Loading {
        Loading {
            sector,
            events: Vec::new(),
            nodes: HashMap::new(),
            callers: Callers::default(),
            base: Vec::new(),
            last_of_file: HashMap::new(),
            last_of_name: HashMap::new(),
            sizes: Sizes::default(),
        }
    }

    fn take(&mut self, record: &Record<'_>, at: u64) -> Understood<Event> {
        if record.file > MAX_FILE {
            return Err("a file id that no recorder gives");
        }
        self.callers.take(record.caller, &record.operation);
        let what = match &record.operation {
            Operation::Acknowledge { text } => What::Acknowledge(text[..].into()),
            _ if record.error != 0 => What::Remark,
            Operation::Fsync { flags } => {
                What::Flush { data_only: flags.contains(Flags::DATA_ONLY), part: None }
            }
            Operation::Sync => What::Sync,
            Operation::Msync { offset, length } => {
                let end = offset.checked_add(*length).ok_or("an offset that no file has")?;
                What::Flush { data_only: true, part: Some(*offset..end) }
            }
            Operation::Base(entry) => {
                self.take_node(record.file, entry);
                self.base.push((place(entry.parent, &entry.name), record.file, entry.size));
                self.sizes.begin(record.file, entry.size);
                What::Remark
            }
            operation => self.change(record, operation, at)?.map_or(What::Remark, What::Change),
        };
        let truncation = match &what {
            What::Change(change) => self.sizes.take(record.file, record.sequence, change),
            _ => None,
        };
        let Record { begin_ns, end_ns, file, caller, .. } = *record;
        Ok(Event { begin_ns, end_ns, file, caller, what, truncation })
    }

    fn change(
        &mut self,
        record: &Record<'_>,
        operation: &Operation<'_>,
        at: u64,
    ) -> Understood<Option<Change>> {
        Ok(Some(match operation {
            Operation::Write { data, .. } if data.is_empty() => return Ok(None),
            Operation::Write { offset, data, flags } => {
                check_size(*offset)?;
                let hashes = whole_sectors(record.file, *offset, data, self.sector);
                let (length, synced) = (data.len() as u64, flags.contains(Flags::DSYNC));
                Change::Write { offset: *offset, length, at, synced, hashes }
            }
            Operation::Truncate { size } => Change::Truncate { size: check_size(*size)? },
            Operation::Fallocate { mode, offset, length } => {
                return allocation(*mode, check_size(*offset)?, check_size(*length)?)
            }
            Operation::Setattr { mode, uid, gid } => {
                let (mode, uid, gid) = (*mode, *uid, *gid);
                Change::Attributes(AttributeChange::Owner { mode, uid, gid })
            }
            Operation::Setxattr { name, value } => Change::Attributes(AttributeChange::Extended {
                name: name[..].into(),
                value: Some(value[..].into()),
            }),
            Operation::Removexattr { name } => {
                Change::Attributes(AttributeChange::Extended { name: name[..].into(), value: None })
            }
            operation => match self.names(record, operation)? {
                Some((directory, sets)) => self.ordered(record, directory, sets),
                None => return Ok(None),
            },
        }))
    }

    /// Which names are given and taken, and the directory that makes it durable.
    #[allow(clippy::type_complexity)]
    fn names(
        &mut self,
        record: &Record<'_>,
        operation: &Operation<'_>,
    ) -> Understood<Option<(u64, Vec<(Place, Option<u64>)>)>> {
        let file = record.file;
        let one =
            |parent: u64, name: &[u8], file| Some((parent, vec![(place(parent, name), file)]));
        Ok(match operation {
            Operation::Create(entry) | Operation::Mkdir(entry) | Operation::Symlink(entry) => {
                self.take_node(file, entry);
                one(entry.parent, &entry.name, Some(file))
            }
            Operation::Link { parent, name } => one(*parent, name, Some(file)),
            Operation::Unlink { parent, name } | Operation::Rmdir { parent, name } => {
                one(*parent, name, None)
            }
            Operation::Rename { replaced, .. } if *replaced > MAX_FILE => {
                return Err("a file id that no recorder gives")
            }
            // Two names of one file: rename(2) does nothing.
            Operation::Rename { replaced, .. } if *replaced == file => None,
            Operation::Rename { flags, parent, new_parent, replaced, name, new_name } => {
                let left = match *flags {
                    0 | libc::RENAME_NOREPLACE => None,
                    libc::RENAME_EXCHANGE => Some(*replaced),
                    _ => return Err("a rename with flags that are not understood"),
                };
                let (old, new) = (place(*parent, name), place(*new_parent, new_name));
                Some((*new_parent, vec![(old, left), (new, Some(file))]))
            }
            _ => None,
        })
    }

    /// After the earlier records about its names, and about the files that gain or lose one.
    fn ordered(
        &mut self,
        record: &Record<'_>,
        directory: u64,
        sets: Vec<(Place, Option<u64>)>,
    ) -> Change {
        let sequence = record.sequence;
        let mut files = vec![record.file];
        if let Operation::Rename { replaced, .. } = record.operation {
            files.extend((replaced != 0).then_some(replaced));
        }
        let files = files.into_iter().filter_map(|file| self.last_of_file.insert(file, sequence));
        let mut after: Vec<u64> = files.collect();
        for (name, _) in &sets {
            after.extend(self.last_of_name.insert(name.clone(), sequence));
        }
        after.retain(|&earlier| earlier < sequence);
        Change::Names { sets, directory, after }
    }

    fn take_node(&mut self, file: u64, entry: &Entry<'_>) {
        let node = Node {
            mode: entry.mode,
            uid: entry.uid,
            gid: entry.gid,
            rdev: entry.rdev,
            target: entry.target[..].into(),
        };
        self.nodes.insert(file, node);
    }
}

fn place(parent: u64, name: &[u8]) -> Place {
    (parent, name.into())
}

fn check_size(bytes: u64) -> Understood<u64> {
    (bytes <= MAX_SIZE).then_some(bytes).ok_or("an offset that no file has")
}

/// The hash of each whole sector that a write covers.
fn whole_sectors(file: u64, offset: u64, data: &[u8], sector: u64) -> Box<[u64]> {
    let first = offset.div_ceil(sector);
    let skip = (first * sector - offset) as usize;
    let whole = data.get(skip..).unwrap_or_default().chunks_exact(sector as usize);
    whole.zip(first..).map(|(bytes, number)| sector_hash(file, number, bytes)).collect()
}
