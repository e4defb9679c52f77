//! One notified call: run, measured, answered, told.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::Sender;
use std::sync::Arc;

use diskproof_supervise::calls;
use diskproof_supervise::filter::AUDIT_ARCH_I386;
use diskproof_supervise::target::{process_of, Descriptors};
use diskproof_supervise::{Answer, Listener, Notification};

use crate::clock::now;
use crate::event::{Call, Event, Target};
use crate::message::Message;
use crate::notify::paths::Paths;
use crate::places;

pub const CALLS: [(calls::Call, Call); 5] = [
    (calls::FSYNC, Call::Fsync),
    (calls::FDATASYNC, Call::Fdatasync),
    (calls::SYNC, Call::Sync),
    (calls::SYNCFS, Call::Syncfs),
    (calls::SYNC_FILE_RANGE, Call::SyncFileRange),
];

/// So many threads' files are kept open.
const MOST_CALLERS: usize = 64;
/// /proc is asked again after so long, in ns: it costs as much as all else together.
const FRESH: u64 = 50_000;
const INTERRUPTED: i64 = -(libc::EINTR as i64);

/// A calling thread, and files of /proc to ask about it.
struct Caller {
    pid: i32,
    name: Arc<str>,
    written_file: File,
    name_file: File,
    asked: u64,
}

impl Caller {
    fn open(thread: u32) -> io::Result<Caller> {
        Ok(Caller {
            pid: process_of(thread)?,
            name: "?".into(),
            written_file: File::open(format!("/proc/{thread}/io"))?,
            name_file: File::open(format!("/proc/{thread}/comm"))?,
            asked: 0,
        })
    }

    /// What it has written so far; None when it was asked just now.
    fn ask(&mut self) -> io::Result<Option<u64>> {
        let time = now();
        if time < self.asked + FRESH {
            return Ok(None);
        }
        self.asked = time;
        let mut text = [0; 64];
        let length = self.name_file.read_at(&mut text, 0)?;
        let name = String::from_utf8_lossy(&text[..length]);
        if *name.trim_end() != *self.name {
            self.name = name.trim_end().into();
        }
        let length = self.written_file.read_at(&mut text, 0)?;
        Ok(places::parse_written(&String::from_utf8_lossy(&text[..length])))
    }
}

/// Serves the calls of one of our threads.
#[derive(Default)]
pub struct Server {
    descriptors: Descriptors,
    callers: HashMap<u32, Caller>,
    paths: Paths,
}

/// How a call went.
struct Done {
    start: u64,
    end: u64,
    result: i64,
    file: Arc<str>,
}

impl Server {
    /// Answer a call in any case. The answer comes last: we then wait again before the caller makes its next call, and no
    /// other thread of ours must be woken for that one.
    pub fn serve(&mut self, listener: &Listener, call: &Notification, out: &Sender<Message>) {
        let kind = CALLS.iter().find(|(known, _)| call.is(known)).map(|(_, kind)| *kind);
        let Some(kind) = kind else {
            listener.answer(call.id, Answer::Continue);
            return;
        };
        let written = self.ask_caller(call.thread);
        let Ok(done) = self.run(kind, call) else {
            // We may not look into the caller: the kernel runs the call.
            listener.answer(call.id, Answer::Continue);
            let _ = out.send(Message::Lost(1));
            return;
        };
        let answer = answer_of(done.result);
        let event = self.event(kind, call, written, done);
        let _ = out.send(Message::Events(vec![event]));
        listener.answer(call.id, answer);
    }

    /// Also makes the caller known.
    fn ask_caller(&mut self, thread: u32) -> Option<u64> {
        match self.callers.get_mut(&thread).map(Caller::ask) {
            Some(Ok(written)) => return written,
            // Its number belongs to another thread now.
            Some(Err(_)) => drop(self.callers.remove(&thread)),
            None => {}
        }
        if self.callers.len() >= MOST_CALLERS {
            self.callers.clear();
        }
        let mut caller = Caller::open(thread).ok()?;
        let written = caller.ask().ok()?;
        self.callers.insert(thread, caller);
        written
    }

    /// The copy of the descriptor is closed before the caller goes on: it may hold a lock or the last use of a mount.
    fn run(&mut self, kind: Call, call: &Notification) -> io::Result<Done> {
        if kind.target() == Target::Everything {
            let start = now();
            rustix::fs::sync();
            let (end, file) = (now(), places::EVERYTHING.into());
            return Ok(Done { start, end, result: 0, file });
        }
        let number = call.arguments[0] as u32 as i32;
        match self.descriptors.fetch(call.thread, number) {
            Ok(descriptor) => {
                let start = now();
                // The caller got no signal: what interrupts us is the end of the trace.
                let result = loop {
                    match sync(kind, &descriptor, call) {
                        INTERRUPTED => {}
                        result => break result,
                    }
                };
                let end = now();
                Ok(Done { start, end, result, file: self.paths.name(&descriptor) })
            }
            Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
                let (time, result) = (now(), -i64::from(libc::EBADF));
                Ok(Done { start: time, end: time, result, file: places::NO_FILE.into() })
            }
            Err(error) => Err(error),
        }
    }

    fn event(&self, call: Call, asked: &Notification, written: Option<u64>, done: Done) -> Event {
        let tid = asked.thread as i32;
        let caller = self.callers.get(&asked.thread);
        Event {
            pid: caller.map_or(tid, |caller| caller.pid),
            tid,
            process: caller.map_or_else(|| "?".into(), |caller| caller.name.clone()),
            call,
            file: done.file,
            start: done.start,
            end: done.end,
            result: done.result,
            written,
            in_flight: true,
        }
    }
}

fn answer_of(result: i64) -> Answer {
    match i32::try_from(result) {
        Ok(error) if error < 0 => Answer::Error(-error),
        _ => Answer::Value(result),
    }
}

/// The call with the caller's other arguments: its result, or a negative errno.
fn sync(kind: Call, descriptor: &OwnedFd, call: &Notification) -> i64 {
    let fd = descriptor.as_raw_fd();
    // SAFETY: calls on a descriptor of ours that take no memory.
    let result = unsafe {
        match kind {
            Call::Fsync => libc::syscall(libc::SYS_fsync, fd),
            Call::Fdatasync => libc::syscall(libc::SYS_fdatasync, fd),
            Call::Syncfs => libc::syscall(libc::SYS_syncfs, fd),
            _ => {
                let (offset, length, flags) = range_of(call);
                libc::syscall(libc::SYS_sync_file_range, fd, offset, length, flags)
            }
        }
    };
    if result < 0 {
        -i64::from(io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
    } else {
        result
    }
}

/// Offset, length and flags of sync_file_range; 32-bit programs pass halves, the lower first.
fn range_of(call: &Notification) -> (u64, u64, u64) {
    let [_, a, b, c, d, e] = call.arguments;
    if call.arch == AUDIT_ARCH_I386 {
        (a & 0xffff_ffff | b << 32, c & 0xffff_ffff | d << 32, e)
    } else {
        (a, b, c)
    }
}
