//! The sync family as a library to preload: each call is made as it is, timed, and told to the
//! tracer through shared memory.
//!
//! Made of system calls: no allocation, no lock, no constructor, no symbol version; safe in signal
//! handlers and after fork. What it cannot tell it calls without the mark, so that the tracer's
//! filter sees it. `docs/sync-trace.md` has the limits.
#![no_std]

mod caller;
mod cancel;
mod clock;
#[allow(dead_code, reason = "some of it is for the tracer")]
mod page;
mod ring;
mod texts;

use core::ffi::{c_int, c_long, c_uint};

use caller::Caller;
use cancel::{allow_cancelling, set_cancel_type};
use clock::now;
use diskproof_bare::c_library::answer;
use diskproof_bare::syscall;
use page::{Kind, Page, MARK, NO_TEXT};

diskproof_bare::stop_at_panic!();

/// A call of the family.
#[derive(Clone, Copy)]
struct Traced {
    kind: Kind,
    number: i64,
    /// A thread that waits in it may be cancelled.
    cancellable: bool,
    /// The first argument is a descriptor.
    has_file: bool,
}

const fn traced(kind: Kind, number: i64) -> Traced {
    Traced { kind, number, cancellable: true, has_file: true }
}

const FSYNC: Traced = traced(Kind::Fsync, syscall::FSYNC);
const FDATASYNC: Traced = traced(Kind::Fdatasync, syscall::FDATASYNC);
const SYNC_FILE_RANGE: Traced = traced(Kind::SyncFileRange, syscall::SYNC_FILE_RANGE);
const PWRITEV2: Traced = traced(Kind::Pwritev2, syscall::PWRITEV2);
const MSYNC: Traced = Traced { has_file: false, ..traced(Kind::Msync, syscall::MSYNC) };
const SYNCFS: Traced = Traced { cancellable: false, ..traced(Kind::Syncfs, syscall::SYNCFS) };
const SYNC: Traced =
    Traced { cancellable: false, has_file: false, ..traced(Kind::Sync, syscall::SYNC) };

impl Traced {
    /// As a C function answers.
    ///
    /// # Safety
    /// The arguments are what that call may be given; the kernel does not look at the fifth.
    #[inline(always)]
    unsafe fn call(self, arguments: [i64; 6]) -> i64 {
        let asked = now();
        let page = caller::find_page();
        let known = page.and_then(|page| Some((page, caller::find_caller(page, asked)?)));
        let Some((page, caller)) = known else {
            // SAFETY: the caller's.
            return answer(unsafe { self.call_plain(arguments) });
        };
        let (file, start) = self.find_file(page, &caller, arguments[0] as i32, asked);
        let before = if self.cancellable { allow_cancelling() } else { 0 };
        // SAFETY: the caller's.
        let result = unsafe { syscall::call_marked(self.number, arguments, MARK) };
        let end = now();
        if self.cancellable {
            set_cancel_type(before);
        }
        let (kind, argument) = (self.kind, arguments[0] as u64);
        let (caller, name) = (caller.caller, caller.name);
        ring::record(page, &ring::Call { caller, name, kind, argument, file, start, end, result });
        answer(result)
    }

    /// For nobody who would want to know; or not a call that waits.
    ///
    /// # Safety
    /// As `call`.
    #[inline(never)]
    unsafe fn call_plain(self, arguments: [i64; 6]) -> i64 {
        let before = if self.cancellable { allow_cancelling() } else { 0 };
        // SAFETY: the caller's.
        let result = unsafe { syscall::call(self.number, arguments) };
        if self.cancellable {
            set_cancel_type(before);
        }
        result
    }

    /// The file's name, and the time when it was known.
    #[inline(always)]
    fn find_file(self, page: &Page, caller: &Caller, fd: i32, asked: u64) -> (u32, u64) {
        if !self.has_file {
            return (NO_TEXT, asked);
        }
        match caller.find_recent(fd, asked) {
            Some(file) => (file, asked),
            None => (caller.look(page, fd, asked), now()),
        }
    }
}

macro_rules! descriptor_calls {
    ($($name:ident $call:ident)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(fd: c_int) -> c_int {
            // SAFETY: no pointers.
            unsafe { $call.call([fd.into(), 0, 0, 0, 0, 0]) as c_int }
        }
    )*};
}

descriptor_calls! { fsync FSYNC  fdatasync FDATASYNC  syncfs SYNCFS }

#[unsafe(no_mangle)]
extern "C" fn sync() {
    // SAFETY: no arguments.
    unsafe { SYNC.call([0; 6]) };
}

#[unsafe(no_mangle)]
extern "C" fn msync(start: c_long, length: c_long, flags: c_int) -> c_int {
    let words = [start, length, flags.into(), 0, 0, 0];
    // SAFETY: it changes no memory.
    unsafe {
        if flags & syscall::MS_SYNC == 0 {
            answer(MSYNC.call_plain(words)) as c_int
        } else {
            MSYNC.call(words) as c_int
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn sync_file_range(fd: c_int, offset: i64, length: i64, flags: c_uint) -> c_int {
    // SAFETY: no pointers.
    unsafe { SYNC_FILE_RANGE.call([fd.into(), offset, length, flags.into(), 0, 0]) as c_int }
}

macro_rules! vector_writes {
    ($($name:ident)*) => {$(
        /// # Safety
        /// As pwritev2(2).
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(fd: c_int, parts: c_long, count: c_int, offset: i64, flags: c_int) -> isize {
            let words = [fd.into(), parts, count.into(), offset, 0, flags.into()];
            // SAFETY: the caller's.
            unsafe {
                if flags & syscall::RWF_SYNCS == 0 {
                    answer(PWRITEV2.call_plain(words)) as isize
                } else {
                    PWRITEV2.call(words) as isize
                }
            }
        }
    )*};
}

vector_writes! { pwritev2 pwritev64v2 }
