//! How often a process asks the kernel to flush: fsync, fdatasync and io_uring's fsync, counted in the kernel.
//!
//! A perf counter (perf_event_open(2)) on a tracepoint for each thread; what threads that come later count is added to
//! those that started them. Counting needs no buffer and wakes nobody. Root only: the tracepoints' numbers are root's.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::fs::{openat, Mode, OFlags, CWD};
use rustix::mount::{fsconfig_create, fsmount, fsopen, FsMountFlags, FsOpenFlags, MountAttrFlags};

/// IORING_OP_FSYNC of io_uring_enter(2).
const RING_FSYNC: &str = "opcode == 3";
/// Tracepoints with the filter that each needs. The last was renamed in Linux 6.1: one of the two is there.
const TRACEPOINTS: &[(&str, &str)] = &[
    ("syscalls/sys_enter_fsync", ""),
    ("syscalls/sys_enter_fdatasync", ""),
    ("io_uring/io_uring_submit_req", RING_FSYNC),
    ("io_uring/io_uring_submit_sqe", RING_FSYNC),
];
const TRACEPOINT: u32 = 2; // PERF_TYPE_TRACEPOINT
const INHERIT: u64 = 1 << 1;
const CLOSE_ON_EXEC: libc::c_ulong = 8; // PERF_FLAG_FD_CLOEXEC
const SET_FILTER: libc::c_ulong = 0x4008_2406; // PERF_EVENT_IOC_SET_FILTER

/// The tracepoints by their numbers in this kernel.
pub struct Tracepoints(Vec<(u64, &'static str)>);

impl Tracepoints {
    /// None without the right to them, or in a kernel without them.
    pub fn find() -> Option<Self> {
        let folder = open_tracefs()?;
        let number = |name: &str| read_number(folder.as_fd(), &format!("events/{name}/id"));
        let found: Vec<_> = TRACEPOINTS
            .iter()
            .filter_map(|(name, filter)| Some((number(name)?, *filter)))
            .collect();
        // The calls themselves must be among them: a part of the syncs would be a wrong number.
        (found.iter().filter(|(_, filter)| filter.is_empty()).count() == 2)
            .then_some(Tracepoints(found))
    }
}

/// The counters of one process.
pub struct HostSyncs(Vec<OwnedFd>);

impl HostSyncs {
    /// Count from now on; None when a thread cannot be counted (no right, no descriptor left): a part is no sum.
    pub fn start(tracepoints: &Tracepoints, threads: impl Fn() -> Vec<i32>) -> Option<Self> {
        let mut counters = Vec::new();
        let mut counted: Vec<i32> = Vec::new();
        // Threads that start while we look are either counted with their parent or found by the next look.
        loop {
            let new: Vec<i32> = threads().into_iter().filter(|id| !counted.contains(id)).collect();
            if new.is_empty() {
                return (!counters.is_empty()).then_some(HostSyncs(counters));
            }
            for id in new {
                counted.push(id);
                for (number, filter) in &tracepoints.0 {
                    match open_counter(*number, id, filter) {
                        Ok(counter) => counters.push(counter),
                        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => break,
                        Err(_) => return None,
                    }
                }
            }
        }
    }

    /// Syncs since `start`.
    pub fn read(&self) -> f64 {
        self.0.iter().map(|counter| read_counter(counter).unwrap_or(0) as f64).sum()
    }
}

/// Mounted where it mostly is, or else a mount of our own that nobody sees.
fn open_tracefs() -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    for path in ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"] {
        if let Ok(folder) = openat(CWD, path, flags, Mode::empty()) {
            if openat(&folder, "events", flags, Mode::empty()).is_ok() {
                return Some(folder);
            }
        }
    }
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_create(context.as_fd()).ok()?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()
}

fn read_number(folder: BorrowedFd<'_>, path: &str) -> Option<u64> {
    let file = openat(folder, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut text = String::new();
    File::from(file).take(64).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// The head of the kernel's `struct perf_event_attr`, as large as it was in Linux 4.1.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    rest: [u64; 8],
}

/// A counter of a tracepoint in one thread and those that it will start.
fn open_counter(number: u64, thread: i32, filter: &str) -> std::io::Result<OwnedFd> {
    let size = std::mem::size_of::<Attributes>() as u32;
    let attributes = Attributes {
        kind: TRACEPOINT,
        size,
        config: number,
        flags: INHERIT,
        ..Attributes::default()
    };
    // SAFETY: the kernel reads `size` bytes of the structure, which outlives the call; -1 are "any core" and "no group".
    let raw = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attributes),
            thread,
            -1,
            -1,
            CLOSE_ON_EXEC,
        )
    };
    if raw < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a descriptor that the kernel just made for us.
    let counter = unsafe { OwnedFd::from_raw_fd(raw as i32) };
    if !filter.is_empty() {
        set_filter(&counter, filter)?;
    }
    Ok(counter)
}

fn set_filter(counter: &OwnedFd, filter: &str) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    let text = std::ffi::CString::new(filter)?;
    // SAFETY: the kernel copies the text, which ends in a NUL and outlives the call.
    let done = unsafe { libc::ioctl(counter.as_raw_fd(), SET_FILTER, text.as_ptr()) };
    if done < 0 {
        return Err(std::io::Error::last_os_error());
    }
    Ok(())
}

fn read_counter(counter: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 8];
    (rustix::io::read(counter, &mut bytes) == Ok(8)).then(|| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_as_large_as_the_kernel_wants_it() {
        assert_eq!(std::mem::size_of::<Attributes>(), 112); // PERF_ATTR_SIZE_VER5
    }

    #[test]
    fn every_sync_is_counted_and_only_in_the_threads_asked_for() {
        let Some(tracepoints) = Tracepoints::find() else {
            assert!(!rustix::process::geteuid().is_root(), "root finds the tracepoints");
            return;
        };
        let path = std::env::temp_dir().join(format!("diskproof-syncs-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let counters = HostSyncs::start(&tracepoints, || vec![own]).unwrap();
        file.sync_all().unwrap();
        for _ in 0..4 {
            file.sync_data().unwrap();
        }
        let other = file.try_clone().unwrap();
        std::thread::spawn(move || other.sync_data().unwrap()).join().unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(counters.read(), 6.0);
    }

    #[test]
    fn a_thread_that_is_gone_is_not_counted() {
        let Some(tracepoints) = Tracepoints::find() else { return };
        assert!(HostSyncs::start(&tracepoints, || vec![i32::MAX - 1]).is_none());
        assert!(HostSyncs::start(&tracepoints, Vec::new).is_none());
    }
}
