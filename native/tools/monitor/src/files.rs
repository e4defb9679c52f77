//! Small files of /proc and /sys that are read at every tick: opened once, each read once a tick
//! however many modules want it, below a root that may be a recorded tree.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{open, Mode, OFlags};
use rustix::io::{pread, Errno};

/// No file of /proc that is read here is longer; what is past it is not looked at.
const MAX_TEXT: usize = 16 << 20;
const FIRST_TEXT: usize = 4096;
/// The kernel cuts such a file between records when a page is full. Records are far shorter than
/// half a page, so what is shorter than the other half was not cut, and need not be asked for its
/// end.
const SURELY_WHOLE: usize = 2048;

/// One shared file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(usize);

struct Shared {
    path: PathBuf,
    open: Option<OwnedFd>,
    buffer: Vec<u8>,
    length: usize,
}

pub struct Files {
    root: PathBuf,
    shared: Vec<Shared>,
}

impl Files {
    /// `root` is `/` or holds `proc/` and `sys/` as they were recorded.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Files { root: root.into(), shared: Vec::new() }
    }

    /// The root, for a module that looks at folders on its own: `files.root().join("proc")`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Have a file (`proc/stat`, without leading slash) read at each tick. It need not be there,
    /// now or ever.
    pub fn share(&mut self, path: &str) -> FileId {
        let path = Path::new(path);
        if let Some(known) = self.shared.iter().position(|shared| shared.path == path) {
            return FileId(known);
        }
        let mut shared =
            Shared { path: path.to_owned(), open: None, buffer: Vec::new(), length: 0 };
        shared.read(&self.root);
        self.shared.push(shared);
        FileId(self.shared.len() - 1)
    }

    /// What the file held at this tick; empty when it cannot be read.
    pub fn text(&self, id: FileId) -> &[u8] {
        let shared = &self.shared[id.0];
        &shared.buffer[..shared.length]
    }

    /// Read all shared files.
    pub fn read_all(&mut self) {
        for shared in &mut self.shared {
            shared.read(&self.root);
        }
    }

    /// Look at another tree from the next tick on: the next moment of a recording.
    pub fn move_root(&mut self, root: impl Into<PathBuf>) {
        self.root = root.into();
        for shared in &mut self.shared {
            shared.open = None;
        }
    }
}

impl Shared {
    fn read(&mut self, root: &Path) {
        self.length = 0;
        let kept = self.open.is_some();
        if self.read_open(root).is_ok() {
            return;
        }
        // A device that went and came back has new files behind the same path.
        self.open = None;
        if kept && self.read_open(root).is_err() {
            self.open = None;
        }
    }

    fn read_open(&mut self, root: &Path) -> Result<(), Errno> {
        if self.open.is_none() {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
            self.open = Some(open(root.join(&self.path), flags, Mode::empty())?);
        }
        let Some(file) = &self.open else { return Err(Errno::NOENT) };
        self.length = read_whole(file, &mut self.buffer)?;
        Ok(())
    }
}

/// Read from the start into `buffer`, which grows as needed; the length that was read.
///
/// /proc/stat and others are made anew at offset 0: read in one go they belong to one moment.
pub fn read_whole(file: &OwnedFd, buffer: &mut Vec<u8>) -> Result<usize, Errno> {
    if buffer.is_empty() {
        buffer.resize(FIRST_TEXT, 0);
    }
    let mut length = 0;
    loop {
        match pread(file, &mut buffer[length..], length as u64) {
            Ok(0) => return Ok(length),
            Ok(read) if length == 0 && read < SURELY_WHOLE && read < buffer.len() => {
                return Ok(read)
            }
            Ok(read) => length += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if length == buffer.len() {
            if length >= MAX_TEXT {
                return Ok(length);
            }
            buffer.resize(length * 2, 0);
        }
    }
}
