//! What each call that comes in gets: the one place that knows the family.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use diskproof_supervise::calls::{
    FDATASYNC, FILE_SETATTR, FSYNC, IOCTL, IO_SUBMIT, IO_URING_SETUP, MSYNC, OPEN, OPENAT, OPENAT2,
    PWRITEV2, SYNC, SYNCFS, SYNC_FILE_RANGE,
};
use diskproof_supervise::target::{read_memory, Descriptors};
use diskproof_supervise::{Answer, Notification};

use crate::page::{Kind, Page, ASK_FOR_PAGE};
use crate::requests;
use crate::rewrite::{Change, Job};
use crate::rules::{PWRITEV2_X32, SET_ATTRIBUTES};
use crate::scope::Scope;
use crate::target::{examine, is_syncable, Verdict};
use diskproof_bare::syscall::{self, MS_ASYNC, MS_SYNC, O_SYNCS, RWF_SYNCS};

/// What a call gets.
pub enum Ruling {
    /// Success, and counted.
    Drop(Kind),
    /// An error that the kernel would tell as well.
    Error(i32),
    /// The kernel runs it: nothing to drop, or it has an error to tell.
    Real,
    /// A sync outside the scope: the kernel runs it, and it is counted.
    Passed,
    Rewrite(Job),
    GivePage,
    Ring,
    /// It cannot be seen what it is.
    Unreachable,
}

pub struct Judge<'a> {
    pub scope: &'a Scope,
    pub page: &'a Page,
    pub descriptors: Descriptors,
}

impl Judge<'_> {
    pub fn judge(&mut self, call: &Notification) -> Ruling {
        let arguments = call.arguments;
        let fd = arguments[0] as i32;
        let simple = [(FSYNC, Kind::Fsync), (FDATASYNC, Kind::Fdatasync), (SYNCFS, Kind::Syncfs)];
        if let Some((_, kind)) = simple.iter().find(|(known, _)| call.is(known)) {
            return if fd == ASK_FOR_PAGE { Ruling::GivePage } else { self.file(call, *kind) };
        }
        if call.is(&SYNC) {
            return self.within(self.scope.is_everywhere(), Ruling::Drop(Kind::Sync));
        }
        if call.is(&SYNC_FILE_RANGE) {
            return self.range(call);
        }
        if call.is(&MSYNC) {
            return self.memory(call);
        }
        if call.is(&OPEN) || call.is(&OPENAT) || call.is(&OPENAT2) {
            return self.open(call);
        }
        if call.is(&PWRITEV2) {
            let place = if call.is(&PWRITEV2_X32) { 4 } else { 5 };
            let value = arguments[place] & !(RWF_SYNCS as u64);
            return self.of_file(call, fd, || change(call, Kind::Write, place, value));
        }
        if call.is(&IO_SUBMIT) {
            return self.submit(call);
        }
        if call.is(&IOCTL) || call.is(&FILE_SETATTR) {
            return self.attribute(call);
        }
        if call.is(&IO_URING_SETUP) {
            Ruling::Ring
        } else {
            Ruling::Real
        }
    }

    /// The scope has the last word, since `--after` counts what would have been dropped.
    fn within(&self, inside: bool, ruling: Ruling) -> Ruling {
        if inside && self.scope.is_on() && !self.scope.is_early(self.page) {
            ruling
        } else {
            Ruling::Passed
        }
    }

    fn of_file(&mut self, call: &Notification, fd: i32, ruling: impl FnOnce() -> Ruling) -> Ruling {
        if self.scope.is_everywhere() {
            return self.within(true, ruling());
        }
        match self.descriptors.fetch(call.thread, fd) {
            Ok(file) => self.within(self.scope.holds_file(file.as_fd()), ruling()),
            Err(error) => unfetched(&error),
        }
    }

    fn file(&mut self, call: &Notification, kind: Kind) -> Ruling {
        match self.descriptors.fetch(call.thread, call.arguments[0] as i32) {
            Ok(file) => match examine_file(&file) {
                Verdict::Drop => {
                    self.within(self.scope.holds_file(file.as_fd()), Ruling::Drop(kind))
                }
                Verdict::Real => Ruling::Real,
                Verdict::Error(error) => Ruling::Error(error),
            },
            Err(error) => unfetched(&error),
        }
    }

    /// Without flags the kernel makes all its checks and writes nothing.
    fn range(&mut self, call: &Notification) -> Ruling {
        let [fd, first, second, third, fourth, fifth] = call.arguments;
        let (offset, length, flags) = if call.arch == diskproof_supervise::filter::AUDIT_ARCH_I386 {
            (first | second << 32, third | fourth << 32, fifth)
        } else {
            (first, second, third)
        };
        if flags & 7 == 0 || flags as u32 & !7 != 0 {
            return Ruling::Real;
        }
        let file = match self.descriptors.fetch(call.thread, fd as i32) {
            Ok(file) => file,
            Err(error) => return unfetched(&error),
        };
        let words = [file.as_raw_fd().into(), offset as i64, length as i64, 0, 0, 0];
        // SAFETY: no pointers.
        if unsafe { syscall::call(syscall::SYNC_FILE_RANGE, words) } != 0 {
            return Ruling::Real;
        }
        self.within(self.scope.holds_file(file.as_fd()), Ruling::Drop(Kind::SyncFileRange))
    }

    /// With MS_ASYNC the kernel makes the same checks of the range.
    fn memory(&mut self, call: &Notification) -> Ruling {
        let flags = call.arguments[2];
        if flags & (MS_SYNC | MS_ASYNC) as u64 != MS_SYNC as u64 {
            return Ruling::Real;
        }
        let lazy = flags & !(MS_SYNC as u64) | MS_ASYNC as u64;
        let inside = self.scope.holds_mapped(call.thread, call.arguments[0]);
        self.within(inside, change(call, Kind::Msync, 2, lazy))
    }

    fn open(&mut self, call: &Notification) -> Ruling {
        let [first, second, third, size, ..] = call.arguments;
        if call.is(&OPEN) {
            if is_path_only(second) {
                return Ruling::Real;
            }
            let value = second & !(O_SYNCS as u64);
            let inside = self.scope.holds_opened(call, None, first);
            return self.within(inside, change(call, Kind::Open, 1, value));
        }
        let ruling = if call.is(&OPENAT) {
            if is_path_only(third) {
                Ruling::Real
            } else {
                change(call, Kind::Open, 2, third & !(O_SYNCS as u64))
            }
        } else {
            pointed(call, Kind::Open, 2, size, O_SYNCS as u64, 8)
        };
        match ruling {
            Ruling::Rewrite(_) => {
                let inside = self.scope.holds_opened(call, Some(first as i32), second);
                self.within(inside, ruling)
            }
            other => other,
        }
    }

    /// `chattr +S` and its like, of a descriptor or a path.
    fn attribute(&mut self, call: &Notification) -> Ruling {
        let [fd, request, _, size, ..] = call.arguments;
        if call.is(&FILE_SETATTR) {
            let ruling = pointed(call, Kind::Attribute, 2, size, 0x20, 8);
            let inside = self.scope.holds_opened(call, Some(fd as i32), request);
            return if matches!(ruling, Ruling::Rewrite(_)) {
                self.within(inside, ruling)
            } else {
                ruling
            };
        }
        let ruling = if request as u32 == SET_ATTRIBUTES {
            pointed(call, Kind::Attribute, 2, 28, 0x20, 4)
        } else {
            pointed(call, Kind::Attribute, 2, 4, 0x1_0008, 4)
        };
        match ruling {
            Ruling::Rewrite(_) => self.of_file(call, fd as i32, || ruling),
            other => other,
        }
    }

    fn submit(&mut self, call: &Notification) -> Ruling {
        let found = requests::find_syncs(call, |fd| {
            let file = self.descriptors.fetch(call.thread, fd).ok()?;
            let drops = self.scope.holds_file(file.as_fd()) && examine_file(&file) == Verdict::Drop;
            drops.then_some(file)
        });
        match found {
            Ok(patches) if patches.is_empty() => Ruling::Real,
            Ok(patches) => {
                let count = patches.len() as u64;
                let job =
                    Job { call: *call, kind: Kind::Submit, count, change: Change::Memory(patches) };
                self.within(true, Ruling::Rewrite(job))
            }
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Ruling::Real,
            Err(_) => Ruling::Unreachable,
        }
    }
}

fn examine_file(file: &OwnedFd) -> Verdict {
    if is_syncable(file.as_raw_fd()) {
        examine(file.as_raw_fd())
    } else {
        Verdict::Real
    }
}

/// A descriptor that is not open is the kernel's to complain about.
fn unfetched(error: &io::Error) -> Ruling {
    match error.raw_os_error() {
        Some(libc::EBADF | libc::ESRCH) => Ruling::Real,
        _ => Ruling::Unreachable,
    }
}

fn is_path_only(flags: u64) -> bool {
    flags & libc::O_PATH as u64 != 0
}

fn change(call: &Notification, kind: Kind, argument: usize, value: u64) -> Ruling {
    Ruling::Rewrite(Job { call: *call, kind, count: 1, change: Change::Value { argument, value } })
}

const LONGEST: u64 = 4096;

/// A structure that an argument points to, whose first field holds flags.
fn pointed(
    call: &Notification,
    kind: Kind,
    argument: usize,
    size: u64,
    bits: u64,
    width: usize,
) -> Ruling {
    if size < width as u64 || size > LONGEST {
        return Ruling::Real;
    }
    let mut bytes = vec![0; size as usize];
    match read_memory(call.thread, call.arguments[argument], &mut bytes) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Ruling::Real,
        Err(_) => return Ruling::Unreachable,
    }
    let mut word = [0; 8];
    word[..width].copy_from_slice(&bytes[..width]);
    let flags = u64::from_le_bytes(word);
    if flags & bits == 0 || (kind == Kind::Open && is_path_only(flags)) {
        return Ruling::Real;
    }
    bytes[..width].copy_from_slice(&(flags & !bits).to_le_bytes()[..width]);
    Ruling::Rewrite(Job {
        call: *call,
        kind,
        count: 1,
        change: Change::Pointed { argument, bytes },
    })
}

/// The answer to a call that could not be dropped.
pub fn leave(strict: bool) -> Answer {
    if strict {
        Answer::Error(libc::EPERM)
    } else {
        Answer::Continue
    }
}
