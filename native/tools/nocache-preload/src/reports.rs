//! Telling the watcher of a file that was just opened, before anybody can read it through us.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering::Relaxed};

use diskproof_bare::syscall;

use crate::behind::{self, Facts};
use crate::descriptors::{send_descriptor, stat};
use crate::door::{Message, ASK_FOR_SOCKET, TELL};

/// Not asked for yet.
const UNASKED: i32 = -1;
/// Being asked for by another thread.
const ASKING: i32 = -2;
/// There is no watcher, or no number for a descriptor.
const NEVER: i32 = -3;

/// A program that opens less pays less without the socket.
const OPENS: u32 = 4;

/// The socket is out of the way from this number on, and yet in the smallest table of descriptors.
const LOWEST: i64 = 60;

static SOCKET: AtomicI32 = AtomicI32::new(UNASKED);
static SOCKET_INODE: AtomicU64 = AtomicU64::new(0);
static STOPPED: AtomicU32 = AtomicU32::new(0);

/// Whether opens need not stop for the watcher.
#[inline]
pub fn is_ready() -> bool {
    match SOCKET.load(Relaxed) {
        UNASKED if STOPPED.fetch_add(1, Relaxed) >= OPENS => ask(),
        socket => socket >= 0,
    }
}

#[cold]
fn ask() -> bool {
    if SOCKET.compare_exchange(UNASKED, ASKING, Relaxed, Relaxed).is_err() {
        return false;
    }
    let socket = ask_for_socket().unwrap_or(NEVER);
    SOCKET.store(socket, Relaxed);
    socket >= 0
}

fn ask_for_socket() -> Option<i32> {
    const F_DUPFD_CLOEXEC: i64 = 1030;
    // SAFETY: a folder that is none; then descriptors of our own.
    let high = unsafe {
        let given = syscall::call(syscall::OPENAT, [ASK_FOR_SOCKET.into(), 0, 0, 0, 0, 0]);
        if given < 0 {
            return None;
        }
        let high = syscall::call(syscall::FCNTL, [given, F_DUPFD_CLOEXEC, LOWEST, 0, 0, 0]);
        syscall::call(syscall::CLOSE, [given, 0, 0, 0, 0, 0]);
        high
    };
    let high = i32::try_from(high).ok().filter(|high| *high >= 0)?;
    SOCKET_INODE.store(stat(high)?.inode(), Relaxed);
    Some(high)
}

/// The socket, if the program has not closed it, nor opened something else under its number. It is
/// asked for again.
fn find_socket() -> Option<i32> {
    let socket = SOCKET.load(Relaxed);
    if socket < 0 {
        return None;
    }
    if stat(socket).is_some_and(|seen| seen.inode() == SOCKET_INODE.load(Relaxed)) {
        return Some(socket);
    }
    STOPPED.store(0, Relaxed);
    SOCKET.store(UNASKED, Relaxed);
    None
}

/// To be called before anybody knows of the descriptor.
pub fn report(fd: c_int, can_write: bool) {
    let Some(seen) = stat(fd) else { return };
    if !seen.is_regular() {
        behind::note(fd, &Facts::NOBODYS);
        if seen.is_block_device() {
            report_and_wait(fd);
        }
        return;
    }
    let facts = Facts::find(fd, &seen);
    behind::note(fd, &facts);
    match facts.cached {
        // Nothing to bring in. An empty file that grows is looked at when it is read.
        Some(0) if seen.pages() == 0 && !can_write => behind::forget(fd),
        Some(cached) if cached >= seen.pages() && !can_write => {}
        Some(cached) if cached == 0 || cached >= seen.pages() => {
            if !send(fd, cached) {
                report_and_wait(fd);
            }
        }
        _ => report_and_wait(fd),
    }
}

/// The watcher looks at the file while we wait: some of it is cached, or the kernel does not tell
/// us.
#[cold]
fn report_and_wait(fd: c_int) {
    // SAFETY: a folder that is none.
    unsafe { syscall::call(syscall::OPENAT, [TELL.into(), fd.into(), 0, 0, 0, 0]) };
}

/// The file travels as a descriptor of its own without any use but to find it: locks and writers
/// are those of the program's.
fn send(fd: c_int, before: Message) -> bool {
    const EMPTY_PATH_CLOEXEC: i64 = 0x1000 | 0o2_000_000;
    let Some(socket) = find_socket() else { return false };
    let nothing = c"".as_ptr() as i64;
    // SAFETY: an empty path; a descriptor of our own.
    unsafe {
        let path =
            syscall::call(syscall::OPEN_TREE, [fd.into(), nothing, EMPTY_PATH_CLOEXEC, 0, 0, 0]);
        let Ok(path @ 0..) = i32::try_from(path) else { return false };
        let sent = send_descriptor(socket, &before.to_ne_bytes(), path);
        syscall::call(syscall::CLOSE, [path.into(), 0, 0, 0, 0, 0]);
        sent
    }
}
