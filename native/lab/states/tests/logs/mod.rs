//! Logs made by hand, with a base beside them.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use diskproof_wire::crash_log::{Entry, Frame, Header, Operation, Place, ROOT};
use tempfile::TempDir;

/// Sectors of these logs.
pub const SECTOR: u64 = 512;
/// The id of the file `disk`.
pub const DISK: u64 = 2;

/// A directory with `log` and `base/disk`; gone with this value.
pub struct Recording {
    folder: TempDir,
    bytes: Vec<u8>,
    sequence: u64,
    pub now: u64,
    /// Of what is added next.
    pub caller: u32,
}

pub fn entry(parent: u64, mode: u32, size: u64, name: &[u8]) -> Entry<'static> {
    let name = Cow::Owned(name.to_vec());
    let target = Cow::Borrowed(&b""[..]);
    Entry { parent, mode, uid: 0, gid: 0, rdev: 0, size, name, target }
}

impl Recording {
    pub fn new(disk: &[u8]) -> Recording {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("base")).unwrap();
        std::fs::write(folder.path().join("base/disk"), disk).unwrap();
        let header = Header {
            sector: SECTOR as u32,
            block: 4096,
            file_system: 0xEF53,
            monotonic_ns: 1,
            realtime_ns: 1,
        };
        let bytes = header.encode().to_vec();
        let mut recording = Recording { folder, bytes, sequence: 0, now: 1, caller: 0 };
        recording.add(ROOT, Operation::Base(entry(0, 0o40755, 0, b"")));
        let size = disk.len() as u64;
        recording.add(DISK, Operation::Base(entry(ROOT, 0o100644, size, b"disk")));
        recording
    }

    /// One that begins when the one before has ended. Gives its sequence number.
    pub fn add(&mut self, file: u64, operation: Operation<'_>) -> u64 {
        self.add_begun(self.now + 1, file, operation)
    }

    /// One that began at `begin_ns`, which may be long ago.
    pub fn add_begun(&mut self, begin_ns: u64, file: u64, operation: Operation<'_>) -> u64 {
        self.sequence += 1;
        self.now = self.now.max(begin_ns) + 1;
        let (sequence, end_ns, caller) = (self.sequence, self.now, self.caller);
        let place = Place { sequence, begin_ns, end_ns, file, caller, error: 0 };
        let frame = Frame::new(&operation);
        let mut head = Vec::new();
        for piece in frame.pieces(&place, &mut head) {
            self.bytes.extend_from_slice(piece);
        }
        self.sequence
    }

    pub fn finish(&mut self) -> (PathBuf, PathBuf) {
        self.add(0, Operation::End { text: Cow::Borrowed(b"test") });
        std::fs::write(self.path("log"), &self.bytes).unwrap();
        (self.path("log"), self.path("base"))
    }

    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.folder.path().join(name)
    }
}
