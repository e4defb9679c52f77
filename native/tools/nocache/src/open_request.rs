//! What a process asked to open, and the file behind it, found without opening it a second time.

use diskproof_supervise::calls::{CREAT, OPEN, OPENAT, OPENAT2};
use diskproof_supervise::{target, Notification};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::door::{ASK_FOR_SOCKET, TELL};
use crate::rules::{EXECVE, EXECVEAT, UMOUNT2};

const PATH_LIMIT: usize = 4096;

/// A path as the caller gave it.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenRequest {
    pub thread: u32,
    /// Descriptor of a directory, or AT_FDCWD.
    folder: i32,
    path: Vec<u8>,
    flags: OFlags,
}

/// What a path leads to.
#[derive(Debug)]
pub enum Found {
    /// Descriptor of a file that is not opened (O_PATH).
    There(OwnedFd),
    /// About to be made under this name in this folder.
    NotYet(OwnedFd, Vec<u8>),
}

impl OpenRequest {
    /// None when the call names no file that matters.
    ///
    /// # Errors
    /// The caller's memory cannot be read.
    pub fn read(call: &Notification) -> io::Result<Option<Self>> {
        let [first, second, third, ..] = call.arguments;
        let (folder, address, flags) = if call.is(&OPENAT) {
            (folder_of(first), second, third)
        } else if call.is(&OPEN) {
            (libc::AT_FDCWD, first, second)
        } else if call.is(&CREAT) {
            (libc::AT_FDCWD, first, u64::from((OFlags::CREATE | OFlags::TRUNC).bits()))
        } else if call.is(&OPENAT2) {
            let mut flags = [0; 8];
            target::read_memory(call.thread, third, &mut flags)?;
            (folder_of(first), second, u64::from_ne_bytes(flags))
        } else if call.is(&EXECVE) || call.is(&UMOUNT2) {
            (libc::AT_FDCWD, first, 0)
        } else if call.is(&EXECVEAT) {
            (folder_of(first), second, 0)
        } else {
            return Ok(None);
        };
        let path = target::read_string(call.thread, address, PATH_LIMIT)?;
        let flags = OFlags::from_bits_retain(u32::try_from(flags & 0xffff_ffff).unwrap_or(0));
        Ok(Some(Self { thread: call.thread, folder, path, flags }))
    }

    /// The old content goes, if there is any.
    pub fn truncates(&self) -> bool {
        self.flags.contains(OFlags::TRUNC)
    }

    /// The same path as it looks from here.
    fn seen_from_here(&self) -> Vec<u8> {
        let thread = self.thread;
        let path = &self.path[..];
        if let Some(rest) = path.strip_prefix(b"/proc/self/") {
            return joined(&format!("/proc/{thread}/"), rest);
        }
        if let Some(rest) = path.strip_prefix(b"/proc/thread-self/") {
            return joined(&format!("/proc/{thread}/"), rest);
        }
        if let Some(rest) = path.strip_prefix(b"/dev/fd/") {
            return joined(&format!("/proc/{thread}/fd/"), rest);
        }
        match path {
            b"/dev/stdin" => joined(&format!("/proc/{thread}/fd/0"), b""),
            b"/dev/stdout" => joined(&format!("/proc/{thread}/fd/1"), b""),
            b"/dev/stderr" => joined(&format!("/proc/{thread}/fd/2"), b""),
            [b'/', ..] => joined(&format!("/proc/{thread}/root"), path),
            _ if self.folder == libc::AT_FDCWD => joined(&format!("/proc/{thread}/cwd/"), path),
            _ => joined(&format!("/proc/{thread}/fd/{}/", self.folder), path),
        }
    }

    /// # Errors
    /// Nothing is there and nothing is to be made, or we may not look.
    pub fn find(&self) -> rustix::io::Result<Found> {
        let path = match (&self.path[..], self.folder) {
            (b"", folder) => format!("/proc/{}/fd/{folder}", self.thread).into_bytes(),
            _ => self.seen_from_here(),
        };
        let follow = self.flags & OFlags::NOFOLLOW;
        match rustix::fs::open(&path[..], OFlags::PATH | OFlags::CLOEXEC | follow, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) if self.flags.contains(OFlags::CREATE) => {
                let slash = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                let folder = OFlags::PATH | OFlags::CLOEXEC | OFlags::DIRECTORY;
                let folder = rustix::fs::open(&path[..=slash], folder, Mode::empty())?;
                Ok(Found::NotYet(folder, path[slash + 1..].to_vec()))
            }
            found => found.map(Found::There),
        }
    }
}

/// What the library asks by way of an open.
#[derive(Debug, PartialEq, Eq)]
pub enum FromLibrary {
    Socket,
    /// It waits until this descriptor was looked at.
    Look(i32),
}

impl FromLibrary {
    pub fn find(call: &Notification) -> Option<Self> {
        match folder_of(call.arguments[0]) {
            ASK_FOR_SOCKET if call.is(&OPENAT) => Some(Self::Socket),
            TELL if call.is(&OPENAT) => Some(Self::Look(folder_of(call.arguments[1]))),
            _ => None,
        }
    }
}

/// The file behind a descriptor of a waiting caller.
///
/// # Errors
/// It is not open, or we may not look.
pub fn find_of(thread: u32, descriptor: i32) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/{thread}/fd/{descriptor}");
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

#[allow(clippy::cast_possible_truncation)] // descriptors are 32 bits in a 64-bit register
const fn folder_of(argument: u64) -> i32 {
    argument as i32
}

fn joined(start: &str, rest: &[u8]) -> Vec<u8> {
    let mut path = start.as_bytes().to_vec();
    path.extend_from_slice(rest);
    path
}

/// A file of a folder that was made by now; a link to the file is followed.
///
/// # Errors
/// It is not there (yet, or any more).
pub fn find_in(folder: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(folder, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// Opens for reading what was only found, without a trace in its access time if we may.
///
/// Never for writing: a program that is open for writing cannot be executed.
///
/// # Errors
/// No permission to read.
pub fn open_found(found: impl AsFd) -> rustix::io::Result<File> {
    let path = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    match rustix::fs::open(&path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(rustix::io::Errno::PERM) => rustix::fs::open(&path, flags, Mode::empty()),
        opened => opened,
    }
    .map(File::from)
}
