//! Records in a regular file or a block device.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use diskproof_wire::ledger::{Geometry, ReadAt, SLOT};
use rustix::fs::OFlags;
use rustix::io::{pwritev2, ReadWriteFlags};

use crate::target::{named, Block, Durable, Target};

pub struct Raw {
    file: File,
    geometry: Geometry,
}

/// Opens a target for writing; gives its size too. `create` makes a new file of that many bytes.
pub fn open(path: &Path, direct: bool, create: Option<u64>) -> io::Result<(File, u64)> {
    let mut flags = OFlags::empty();
    if direct {
        flags |= OFlags::DIRECT;
    }
    // Of a block device: the kernel says EBUSY when it is mounted or part of something.
    let kind = path.metadata().map(|found| found.file_type());
    if kind.is_ok_and(|kind| kind.is_block_device()) {
        flags |= OFlags::EXCL;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(create.is_some());
    options.custom_flags(flags.bits() as i32);
    let mut file = options.open(path).map_err(|error| named(path.display(), error))?;
    if let Some(size) = create {
        file.set_len(size)?;
    }
    let size = file.seek(SeekFrom::End(0))?;
    Ok((file, size))
}

impl Raw {
    pub fn new(file: File, geometry: Geometry) -> Raw {
        Raw { file, geometry }
    }
}

impl Target for Raw {
    fn store(&self, slot: u64, block: &Block, durable: Durable) -> io::Result<()> {
        let how = match durable {
            Durable::Fua => ReadWriteFlags::DSYNC,
            Durable::Flush | Durable::Write => ReadWriteFlags::empty(),
        };
        let data = [IoSlice::new(&block.0)];
        // Of O_DIRECT there is no second half of a write.
        match pwritev2(&self.file, &data, self.geometry.position(slot), how)? {
            SLOT => Ok(()),
            0 => Err(io::ErrorKind::WriteZero.into()),
            count => Err(io::Error::other(format!("only {count} of {SLOT} bytes were written"))),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// A target to be read.
pub struct Readable(pub File);

impl Readable {
    /// Opens a target; gives its size too.
    pub fn open(path: &Path) -> io::Result<(Readable, u64)> {
        let open = || {
            let mut file = File::open(path)?;
            let size = file.seek(SeekFrom::End(0))?;
            Ok((Readable(file), size))
        };
        open().map_err(|error| named(path.display(), error))
    }
}

impl ReadAt for Readable {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        buffer[filled..].fill(0);
        Ok(())
    }
}
