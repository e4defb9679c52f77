//! What the writer says is done, on the clock of the log.

use std::borrow::Cow;
use std::io::{self, Read};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread;

use diskproof_wire::crash_log::{Operation, MAX_TEXT};
use diskproof_wire::{LineSplitter, SplitLine};
use fuser::{FileAttr, FileType, INodeNo};
use rustix::io::Errno;

use crate::log::{Asked, Log};

/// A file that is in the root of every mount and in no backing: each line written to it is an acknowledgement.
pub const ACK_NAME: &str = ".diskproof-ack";
/// Its inode number towards the kernel; no id of a file ever gets there.
pub const ACK_ID: u64 = 1 << 63;

pub struct AckFile {
    log: Arc<Log>,
}

impl AckFile {
    pub fn new(log: Arc<Log>) -> AckFile {
        AckFile { log }
    }

    pub fn attributes(&self) -> FileAttr {
        let epoch = std::time::UNIX_EPOCH;
        FileAttr {
            ino: INodeNo(ACK_ID),
            size: 0,
            blocks: 0,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            crtime: epoch,
            kind: FileType::RegularFile,
            perm: 0o222,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    pub fn splitter() -> Mutex<LineSplitter> {
        Mutex::new(LineSplitter::new(MAX_TEXT + 1))
    }

    /// Logs the lines that these bytes end. EMSGSIZE for a line that is too long.
    pub fn take(&self, splitter: &Mutex<LineSplitter>, data: &[u8]) -> Result<u32, Errno> {
        log_lines(&self.log, splitter.lock().unwrap().push(data))?;
        Ok(data.len() as u32)
    }

    /// A last line counts without its newline too.
    pub fn finish(&self, splitter: &Mutex<LineSplitter>) -> Result<(), Errno> {
        let rest = splitter.lock().unwrap().push(b"\n");
        log_lines(&self.log, rest.into_iter().filter(|line| *line != SplitLine::Whole(Vec::new())))
    }
}

fn log_lines(log: &Log, lines: impl IntoIterator<Item = SplitLine>) -> Result<(), Errno> {
    for line in lines {
        let SplitLine::Whole(text) = line else { return Err(Errno::MSGSIZE) };
        log.append(Asked::now(0), &Operation::Acknowledge { text: Cow::Owned(text) })?;
    }
    Ok(())
}

/// Logs the lines of every connection to a listening socket, for as long as we live.
pub fn serve(log: Arc<Log>, listener: UnixListener) -> io::Result<()> {
    thread::Builder::new().name("acks".into()).spawn(move || {
        for connection in listener.incoming().flatten() {
            let log = log.clone();
            let reader = thread::Builder::new().name("ack".into());
            let started = reader.spawn(move || read_lines(&log, connection));
            if let Err(error) = started {
                complain!("no thread for acknowledgements: {error}");
            }
        }
    })?;
    Ok(())
}

/// Logs the lines of one stream, for as long as we live.
pub fn follow(log: Arc<Log>, stream: impl Read + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("acks".into()).spawn(move || read_lines(&log, stream))?;
    Ok(())
}

fn read_lines(log: &Arc<Log>, mut stream: impl Read) {
    let (file, splitter) = (AckFile::new(log.clone()), AckFile::splitter());
    let mut buffer = [0; 8192];
    let ended = loop {
        match stream.read(&mut buffer) {
            Ok(0) => break file.finish(&splitter),
            Ok(count) => {
                if let Err(error) = file.take(&splitter, &buffer[..count]) {
                    break Err(error);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    };
    if let Err(error) = ended {
        complain!("acknowledgements are not read on: {error}");
    }
}
