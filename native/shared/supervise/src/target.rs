//! Looks into a caller that waits for its answer: its memory and its descriptors, both without
//! stopping it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use rustix::process::{pidfd_getfd, pidfd_open, ForeignRawFd, Pid, PidfdFlags, PidfdGetfdFlags};

/// Read memory of a thread's process: all of `buffer`.
///
/// # Errors
/// EFAULT where part of it is not mapped, ESRCH, EPERM.
pub fn read_memory(thread: u32, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    let ours = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the kernel writes at most the buffer's length into it.
    let got = unsafe { transfer(libc::SYS_process_vm_readv, thread, address, &ours) };
    whole(got, buffer.len())
}

/// Write memory of a thread's process: all of `bytes`, to pages it may write itself.
///
/// # Errors
/// As [`read_memory`].
pub fn write_memory(thread: u32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let ours = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the kernel only reads what the vector points to.
    let got = unsafe { transfer(libc::SYS_process_vm_writev, thread, address, &ours) };
    whole(got, bytes.len())
}

/// # Safety
/// `ours` is valid for the direction of the call.
unsafe fn transfer(call: libc::c_long, thread: u32, address: u64, ours: &libc::iovec) -> isize {
    let Ok(address) = usize::try_from(address) else { return -1 };
    let theirs =
        libc::iovec { iov_base: std::ptr::without_provenance_mut(address), iov_len: ours.iov_len };
    // SAFETY: one vector on each side, as the counts say.
    let got = unsafe {
        libc::syscall(call, thread, &raw const *ours, 1_usize, &raw const theirs, 1_usize, 0_usize)
    };
    isize::try_from(got).unwrap_or(-1)
}

fn whole(got: isize, wanted: usize) -> io::Result<()> {
    match usize::try_from(got) {
        Err(_) => Err(io::Error::last_os_error()),
        Ok(got) if got == wanted => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

const STRING_STEP: u64 = 256;

/// A string up to its NUL byte, of at most `limit` bytes.
///
/// # Errors
/// As [`read_memory`]; ENAMETOOLONG when there is no NUL byte within the limit.
pub fn read_string(thread: u32, address: u64, limit: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    while text.len() < limit {
        // A step never crosses a border of pages: what is behind it may not be mapped.
        let from = address.wrapping_add(text.len() as u64);
        let mut step = [0; STRING_STEP as usize];
        let part = &mut step[..(STRING_STEP - from % STRING_STEP) as usize];
        read_memory(thread, from, part)?;
        if let Some(end) = part.iter().position(|byte| *byte == 0) {
            text.extend_from_slice(&part[..end]);
            return if text.len() > limit { break } else { Ok(text) };
        }
        text.extend_from_slice(part);
    }
    Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG))
}

/// Gets copies of callers' descriptors; keeps handles of the threads it met last.
#[derive(Default)]
pub struct Descriptors {
    met: VecDeque<(u32, OwnedFd)>,
}

const MET: usize = 32;

impl Descriptors {
    /// A copy of descriptor `number` of a thread: the same open file.
    ///
    /// # Errors
    /// EBADF when it is not open there, EPERM when we may not look (needs the rights of ptrace),
    /// ESRCH.
    pub fn fetch(&mut self, thread: u32, number: RawFd) -> io::Result<OwnedFd> {
        let number = ForeignRawFd::from(number);
        if let Some(place) = self.met.iter().position(|(known, _)| *known == thread) {
            match pidfd_getfd(&self.met[place].1, number, PidfdGetfdFlags::empty()) {
                // Ended; its number may have been given to another.
                Err(rustix::io::Errno::SRCH) => self.met.remove(place),
                result => return result.map_err(Into::into),
            };
        }
        let (handle, exact) = open_thread(thread)?;
        let result = pidfd_getfd(&handle, number, PidfdGetfdFlags::empty());
        if exact {
            self.met.truncate(MET - 1);
            self.met.push_front((thread, handle));
        }
        result.map_err(Into::into)
    }
}

const PIDFD_THREAD: u32 = libc::O_EXCL as u32;

/// A handle, and whether it is the thread's own (since 6.9) and so stays true when its number is
/// used again.
fn open_thread(thread: u32) -> io::Result<(OwnedFd, bool)> {
    // SAFETY: plain numbers; the descriptor is new and ours.
    let own = unsafe { libc::syscall(libc::SYS_pidfd_open, thread, PIDFD_THREAD) };
    if let Some(fd) = RawFd::try_from(own).ok().filter(|fd| *fd >= 0) {
        // SAFETY: as above.
        return Ok((unsafe { OwnedFd::from_raw_fd(fd) }, true));
    }
    let process = Pid::from_raw(process_of(thread)?).ok_or(io::ErrorKind::NotFound)?;
    Ok((pidfd_open(process, PidfdFlags::empty())?, false))
}

/// The process a thread belongs to.
///
/// # Errors
/// The thread is gone.
fn process_of(thread: u32) -> io::Result<i32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    number
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}
