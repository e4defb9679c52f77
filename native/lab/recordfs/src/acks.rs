//! What the writer says is done, on the clock of the log.

use std::borrow::Cow;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use diskproof_wire::crash_log::{Operation, MAX_TEXT, NOTE_SYNC};
use diskproof_wire::{LineSplitter, SplitLine};
use fuser::{FileAttr, FileType, INodeNo};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::{pipe_with, PipeFlags};

use crate::handles::Handle;
use crate::log::{Asked, Log};
use crate::recorder::Recorder;
use crate::stacks::Call;

/// The inode number of the file of acknowledgements towards the kernel; no id of a file ever gets
/// there.
pub const ACK_ID: u64 = 1 << 63;

/// From the end of the recording until nobody is listened to any more.
const LAST_WORDS: Duration = Duration::from_secs(2);

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
        Mutex::new(new_splitter())
    }

    /// Logs the lines that these bytes end. EMSGSIZE for a line that is too long.
    pub fn take(&self, splitter: &Mutex<LineSplitter>, data: &[u8]) -> Result<u32, Errno> {
        log_lines(&self.log, splitter.lock().unwrap_or_else(PoisonError::into_inner).push(data))?;
        Ok(data.len() as u32)
    }

    /// At the end of a stream a last line counts without its newline too.
    pub fn finish(&self, splitter: &Mutex<LineSplitter>) -> Result<(), Errno> {
        let rest = splitter.lock().unwrap_or_else(PoisonError::into_inner).push(b"\n");
        log_lines(&self.log, rest.into_iter().filter(|line| *line != SplitLine::Whole(Vec::new())))
    }
}

impl Recorder {
    /// Whoever wrote there was killed: what it had written of a line is no acknowledgement.
    pub fn drop_unfinished(&self, handle: u64) {
        if let Ok(Handle::Acknowledgements(lines)) = self.handles.require(handle).as_deref() {
            *lines.lock().unwrap_or_else(PoisonError::into_inner) = new_splitter();
        }
    }

    /// ioctl(2) of the file: a thread that waits has called sync(2) or syncfs(2). ENOTTY for what
    /// is none of that.
    pub fn note_sync(&self, file: u64, command: u32, thread: &[u8]) -> Result<(), Errno> {
        let thread = thread.try_into().map(u32::from_ne_bytes);
        let (ACK_ID, NOTE_SYNC, Ok(thread)) = (file, command, thread) else {
            return Err(Errno::NOTTY);
        };
        self.log.append(self.log.asked(0, thread, Call::Other), &Operation::Sync)
    }
}

fn new_splitter() -> LineSplitter {
    LineSplitter::new(MAX_TEXT + 1)
}

fn log_lines(log: &Log, lines: impl IntoIterator<Item = SplitLine>) -> Result<(), Errno> {
    for line in lines {
        let SplitLine::Whole(text) = line else { return Err(Errno::MSGSIZE) };
        log.append(Asked::now(0), &Operation::Acknowledge { text: Cow::Owned(text) })?;
    }
    Ok(())
}

/// A thread that reads acknowledgements. What was sent before the end is read to its end.
pub struct Acks {
    /// Dropped, it tells the readers at the other end that the recording is over.
    alive: OwnedFd,
    reading: JoinHandle<()>,
}

impl Acks {
    /// Logs the lines of every connection to a listening socket.
    pub fn serve(log: Arc<Log>, listener: UnixListener) -> io::Result<Acks> {
        Acks::start(move |over| take_connections(&log, &listener, &over))
    }

    /// Logs the lines of one stream.
    pub fn follow(log: Arc<Log>, stream: impl Read + AsFd + Send + 'static) -> io::Result<Acks> {
        Acks::start(move |over| read_lines(&log, stream, &over))
    }

    fn start(read: impl FnOnce(Arc<OwnedFd>) + Send + 'static) -> io::Result<Acks> {
        let (over, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        let reading =
            thread::Builder::new().name("acks".into()).spawn(move || read(Arc::new(over)))?;
        Ok(Acks { alive, reading })
    }

    /// Reads what has been sent, but not from those who send without an end.
    pub fn finish(self) {
        drop(self.alive);
        if self.reading.join().is_err() {
            complain!("the last acknowledgements were not read");
        }
    }
}

fn take_connections(log: &Arc<Log>, listener: &UnixListener, over: &Arc<OwnedFd>) {
    let mut readers = Vec::new();
    let mut patience = Patience::new(over);
    while patience.wait_for(listener) {
        let Ok((connection, _)) = listener.accept() else { continue };
        let (log, over) = (log.clone(), over.clone());
        let reader = thread::Builder::new().name("ack".into());
        match reader.spawn(move || read_lines(&log, connection, &over)) {
            Ok(started) => readers.push(started),
            Err(error) => complain!("no thread for acknowledgements: {error}"),
        }
        readers.retain(|reader| !reader.is_finished());
    }
    for reader in readers {
        let _ = reader.join(); // one that panicked has said so
    }
}

fn read_lines(log: &Arc<Log>, mut stream: impl Read + AsFd, over: &Arc<OwnedFd>) {
    let (file, splitter) = (AckFile::new(log.clone()), AckFile::splitter());
    let (mut buffer, mut patience) = ([0; 8192], Patience::new(over));
    let ended = loop {
        if !patience.wait_for(&stream) {
            break file.finish(&splitter);
        }
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

/// Waits for more until the recording is over; then takes what is there, for a while.
struct Patience<'a> {
    over: &'a OwnedFd,
    until: Option<Instant>,
}

impl<'a> Patience<'a> {
    fn new(over: &'a Arc<OwnedFd>) -> Self {
        Patience { over, until: None }
    }

    /// Whether there is something to read.
    fn wait_for(&mut self, stream: &impl AsFd) -> bool {
        while self.until.is_none_or(|until| Instant::now() < until) {
            let (none, ending) = (Timespec::default(), self.until.is_some());
            let mut fds =
                [PollFd::new(stream, PollFlags::IN), PollFd::new(self.over, PollFlags::IN)];
            match poll(&mut fds, ending.then_some(&none)) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return false,
            }
            if !ending && !fds[1].revents().is_empty() {
                self.until = Some(Instant::now() + LAST_WORDS);
            }
            if !fds[0].revents().is_empty() {
                return true;
            }
            if ending {
                return false;
            }
        }
        false
    }
}
