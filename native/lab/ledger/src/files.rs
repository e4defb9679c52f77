//! Records as files of a directory: each is made under a temporary name, synced, and renamed over
//! its slot's.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use diskproof_wire::ledger::{ReadAt, SLOT};

use crate::target::{named, Block, Durable, Target};

/// More files in one directory tell nothing new.
pub const MAX_FILES: u64 = 1 << 20;

pub struct Files {
    folder: PathBuf,
    directory: File,
}

fn name(slot: u64) -> String {
    format!("slot-{slot:06}")
}

impl Files {
    pub fn open(folder: &Path) -> io::Result<Files> {
        let directory = File::open(folder).map_err(|error| named(folder.display(), error))?;
        Ok(Files { folder: folder.into(), directory })
    }
}

impl Target for Files {
    fn store(&self, slot: u64, block: &Block, durable: Durable) -> io::Result<()> {
        let temporary = self.folder.join(format!("new-{slot:06}"));
        let mut file = File::create(&temporary)?;
        file.write_all(&block.0)?;
        if durable != Durable::Write {
            file.sync_all()?;
        }
        std::fs::rename(&temporary, self.folder.join(name(slot)))?;
        if durable == Durable::Fua {
            self.flush()?;
        }
        Ok(())
    }

    /// New names are durable only when their directory was synced.
    fn flush(&self) -> io::Result<()> {
        self.directory.sync_all()
    }
}

/// The files as the slots of one ledger; a file that is missing or short reads as zeros.
pub struct Slots(pub PathBuf);

impl Slots {
    /// Bytes of the ledger that its highest file ends.
    pub fn size(&self) -> io::Result<u64> {
        let mut slots = 0;
        for entry in self.0.read_dir().map_err(|error| named(self.0.display(), error))? {
            let file = entry?.file_name();
            let number = file.to_str().and_then(|name| name.strip_prefix("slot-")?.parse().ok());
            slots = slots.max(number.map_or(0, |number: u64| number.saturating_add(1)));
        }
        Ok(slots.min(MAX_FILES) * SLOT as u64)
    }
}

impl ReadAt for Slots {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.fill(0);
        for (slot, into) in (offset / SLOT as u64..).zip(buffer.chunks_exact_mut(SLOT)) {
            match File::open(self.0.join(name(slot))) {
                Ok(file) => read_record(file, into)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(named(name(slot), error)),
            }
        }
        Ok(())
    }
}

/// A file that is longer than a record holds none.
fn read_record(file: File, into: &mut [u8]) -> io::Result<()> {
    let mut content = Vec::with_capacity(SLOT + 1);
    file.take(SLOT as u64 + 1).read_to_end(&mut content)?;
    if content.len() <= SLOT {
        into[..content.len()].copy_from_slice(&content);
    }
    Ok(())
}
