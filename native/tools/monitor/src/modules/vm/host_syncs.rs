//! How often a process asks the kernel to flush: fsync, fdatasync and io_uring's fsync, counted in
//! the kernel.
//!
//! A perf counter (perf_event_open(2)) on a tracepoint for each thread; what threads that come
//! later count is added to those that started them. Counting needs no buffer and wakes nobody. Root
//! only: the tracepoints' numbers are root's.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use diskproof_perf::{set_filter, Event, Tracefs, FLAG_INHERIT, TYPE_TRACEPOINT};

/// IORING_OP_FSYNC of io_uring_enter(2).
const RING_FSYNC: &CStr = c"opcode == 3";
/// Tracepoints with the filter that each needs. The last was renamed in Linux 6.1: one of the two
/// is there.
const TRACEPOINTS: [(&str, Option<&CStr>); 4] = [
    ("syscalls/sys_enter_fsync", None),
    ("syscalls/sys_enter_fdatasync", None),
    ("io_uring/io_uring_submit_req", Some(RING_FSYNC)),
    ("io_uring/io_uring_submit_sqe", Some(RING_FSYNC)),
];

/// The tracepoints by their numbers in this kernel.
pub struct Tracepoints(Vec<(u64, Option<&'static CStr>)>);

impl Tracepoints {
    /// None without the right to them, or in a kernel without them.
    pub fn find() -> Option<Self> {
        let folder = Tracefs::open().ok()?;
        let find = |(name, filter)| Some((folder.read_id(name).ok()?, filter));
        let found: Vec<_> = TRACEPOINTS.into_iter().filter_map(find).collect();
        // The calls themselves must be among them: a part of the syncs would be a wrong number.
        (found.iter().filter(|(_, filter)| filter.is_none()).count() == 2)
            .then_some(Tracepoints(found))
    }
}

/// The counters of one process.
pub struct HostSyncs(Vec<OwnedFd>);

impl HostSyncs {
    /// Count from now on; None when a thread cannot be counted (no right, no descriptor left): a
    /// part is no sum.
    pub fn start(tracepoints: &Tracepoints, threads: impl Fn() -> Vec<i32>) -> Option<Self> {
        let mut counters = Vec::new();
        let mut counted: Vec<i32> = Vec::new();
        // Threads that start while we look are either counted with their parent or found by the
        // next look.
        loop {
            let new: Vec<i32> = threads().into_iter().filter(|id| !counted.contains(id)).collect();
            if new.is_empty() {
                return (!counters.is_empty()).then_some(HostSyncs(counters));
            }
            for id in new {
                counted.push(id);
                for &(number, filter) in &tracepoints.0 {
                    match open_counter(number, id, filter) {
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

/// A counter of a tracepoint in one thread and those that it will start.
fn open_counter(number: u64, thread: i32, filter: Option<&CStr>) -> std::io::Result<OwnedFd> {
    let event =
        Event { kind: TYPE_TRACEPOINT, config: number, flags: FLAG_INHERIT, ..Event::default() };
    let counter = event.open(thread, -1)?;
    if let Some(filter) = filter {
        set_filter(&counter, filter)?;
    }
    Ok(counter)
}

fn read_counter(counter: &OwnedFd) -> Option<u64> {
    let mut bytes = [0; 8];
    (rustix::io::read(counter, &mut bytes) == Ok(8)).then(|| u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sync_is_counted_and_only_in_the_threads_asked_for() {
        let Some(tracepoints) = Tracepoints::find() else {
            assert!(!rustix::process::geteuid().is_root(), "root finds the tracepoints");
            return;
        };
        let file = tempfile::tempfile().unwrap();
        let own = rustix::thread::gettid().as_raw_nonzero().get();
        let counters = HostSyncs::start(&tracepoints, || vec![own]).unwrap();
        file.sync_all().unwrap();
        for _ in 0..4 {
            file.sync_data().unwrap();
        }
        let other = file.try_clone().unwrap();
        std::thread::spawn(move || other.sync_data().unwrap()).join().unwrap();
        assert_eq!(counters.read(), 6.0);
    }

    #[test]
    fn a_thread_that_is_gone_is_not_counted() {
        let Some(tracepoints) = Tracepoints::find() else { return };
        assert!(HostSyncs::start(&tracepoints, || vec![i32::MAX - 1]).is_none());
        assert!(HostSyncs::start(&tracepoints, Vec::new).is_none());
    }
}
