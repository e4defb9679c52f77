//! The sources of one CPU and the ring that they write to.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use diskproof_perf::{Event, FLAG_INHERIT, TYPE_SOFTWARE, TYPE_TRACEPOINT};

const CONFIG_DUMMY: u64 = 9;

const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_RAW: u64 = 1 << 10;

const FLAG_DISABLED: u64 = 1;
const FLAG_COMM: u64 = 1 << 9;
const FLAG_ENABLE_ON_EXEC: u64 = 1 << 12;
const FLAG_TASK: u64 = 1 << 13;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_COMM_EXEC: u64 = 1 << 24;
const FLAG_USE_CLOCKID: u64 = 1 << 25;

const IOC_SET_OUTPUT: libc::c_ulong = 0x2405;

/// What is watched on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// What this thread starts from now on, from its exec on.
    Children,
    /// Every process.
    Everyone,
}

/// What one descriptor reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Births, ends and names of processes.
    Tasks,
    /// A tracepoint by its id.
    Tracepoint(u64),
}

/// Open one source on one CPU, with times of CLOCK_MONOTONIC.
pub fn open(source: Source, scope: Scope, cpu: usize) -> io::Result<OwnedFd> {
    let scope_flags = match scope {
        Scope::Children => FLAG_DISABLED | FLAG_INHERIT | FLAG_ENABLE_ON_EXEC,
        Scope::Everyone => 0,
    };
    let (kind, config, source_flags) = match source {
        Source::Tasks => (TYPE_SOFTWARE, CONFIG_DUMMY, FLAG_COMM | FLAG_COMM_EXEC | FLAG_TASK),
        Source::Tracepoint(id) => (TYPE_TRACEPOINT, id, 0),
    };
    let event = Event {
        kind,
        config,
        sample_period: 1,
        sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_RAW,
        flags: scope_flags | source_flags | FLAG_SAMPLE_ID_ALL | FLAG_USE_CLOCKID,
        clock: libc::CLOCK_MONOTONIC,
    };
    event.open(if scope == Scope::Children { 0 } else { -1 }, cpu as i32)
}

/// Let a source write to the ring of another one on the same CPU.
pub fn redirect(source: &OwnedFd, ring: &OwnedFd) -> io::Result<()> {
    // SAFETY: both are perf descriptors; nothing is written to our memory.
    let done = unsafe { libc::ioctl(source.as_raw_fd(), IOC_SET_OUTPUT, ring.as_raw_fd()) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The bytes that a CPU's sources write, mapped; one page of positions is in front.
pub struct Ring {
    pub source: OwnedFd,
    map: NonNull<u8>,
    page: usize,
    size: usize,
}

// SAFETY: the mapping is process-wide memory, and only its owner reads it.
unsafe impl Send for Ring {}

const HEAD: usize = 1024;
const TAIL: usize = 1032;

impl Ring {
    /// `size` is a power of two in bytes, at least a page.
    pub fn new(source: OwnedFd, size: usize) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        // SAFETY: a new shared mapping of a descriptor that we own; no memory of ours is replaced.
        let map = unsafe {
            libc::mmap(
                ptr::null_mut(),
                page + size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                source.as_raw_fd(),
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let map = NonNull::new(map.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Ring { source, map, page, size })
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page holds data_head and data_tail at these aligned offsets; the kernel
        // and we access them as whole 64-bit numbers.
        unsafe { &*self.map.as_ptr().add(offset).cast::<AtomicU64>() }
    }

    /// Take all that is there; the room is free again when this returns.
    pub fn take(&mut self) -> Vec<u8> {
        let head = self.position(HEAD).load(Ordering::Acquire);
        let tail = self.position(TAIL).load(Ordering::Relaxed);
        let length = (head.wrapping_sub(tail) as usize).min(self.size);
        let from = tail as usize & (self.size - 1);
        let first = length.min(self.size - from);
        let mut bytes = vec![0; length];
        // SAFETY: both parts lie within the mapping, and between tail and head nobody writes.
        unsafe {
            let data = self.map.as_ptr().add(self.page);
            ptr::copy_nonoverlapping(data.add(from), bytes.as_mut_ptr(), first);
            ptr::copy_nonoverlapping(data, bytes.as_mut_ptr().add(first), length - first);
        }
        self.position(TAIL).store(head, Ordering::Release);
        bytes
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: this is our mapping with its length, and nothing refers to it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), self.page + self.size) };
    }
}

/// The CPUs that are online.
pub fn read_cpus() -> io::Result<Vec<usize>> {
    let text = io::read_to_string(File::open("/sys/devices/system/cpu/online")?)?;
    parse_cpus(text.trim()).ok_or_else(|| io::Error::other("list of CPUs not understood"))
}

/// More are no list of a kernel.
const MOST_CPUS: usize = 1 << 16;

/// A list as the kernel writes it: `0-3,8`.
fn parse_cpus(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) = (from.parse().ok()?, to.parse().ok()?);
        if to.checked_sub(from)? >= MOST_CPUS - cpus.len() {
            return None;
        }
        cpus.extend(from..=to);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_cpus("0"), Some(vec![0]));
        assert_eq!(parse_cpus("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpus("3-1"), None);
        assert_eq!(parse_cpus(""), None);
    }

    #[test]
    fn any_list_is_read() {
        bolero::check!(name = "cpus").for_each(|text: &[u8]| {
            let cpus = parse_cpus(&String::from_utf8_lossy(text)).unwrap_or_default();
            assert!(cpus.len() <= MOST_CPUS);
        });
    }
}
