//! One notified call: run, measured, answered, told.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::Sender;
use std::sync::Arc;

use diskproof_supervise::calls;
use diskproof_supervise::filter::AUDIT_ARCH_I386;
use diskproof_supervise::target::Descriptors;
use diskproof_supervise::{Answer, Listener, Notification};

use crate::callers::Callers;
use crate::clock::now;
use crate::event::{Call, Event, Target};
use crate::message::Message;
use crate::paths::Paths;
use crate::places;

pub const CALLS: [(calls::Call, Call); 5] = [
    (calls::FSYNC, Call::Fsync),
    (calls::FDATASYNC, Call::Fdatasync),
    (calls::SYNC, Call::Sync),
    (calls::SYNCFS, Call::Syncfs),
    (calls::SYNC_FILE_RANGE, Call::SyncFileRange),
];

const INTERRUPTED: i64 = -(libc::EINTR as i64);

/// Serves the calls of one of our threads.
#[derive(Default)]
pub struct Server {
    descriptors: Descriptors,
    callers: Callers,
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
        let written = self.callers.ask(call.thread);
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
        Event {
            pid: self.callers.pid(asked.thread).unwrap_or(tid),
            tid,
            process: self.callers.name(asked.thread),
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
