//! All counters at one moment.

use std::io;

use procfs::process::Process;
use procfs::{
    CpuPressure, CpuTime, Current, CurrentSI, DiskStat, DiskStats, IoPressure, KernelStats,
    Meminfo, MemoryPressure, ProcError,
};
use rustix::time::{clock_gettime, ClockId};

/// What is looked at.
pub struct Sources {
    pub disks: Vec<String>,
    pub pids: Vec<i32>,
}

/// Counters since boot, or since the process started, and states.
pub struct Snapshot {
    /// CLOCK_MONOTONIC, seconds.
    pub monotonic: f64,
    /// CLOCK_REALTIME, seconds.
    pub time: f64,
    pub cpu: CpuTime,
    pub context_switches: u64,
    pub disks: Vec<DiskStat>,
    pub memory: Meminfo,
    pub stalled: Stalled,
    pub processes: Vec<ProcessCounters>,
    /// CPU seconds of this program.
    pub own_cpu: f64,
}

/// Microseconds in which some task waited; None on a kernel without pressure stall information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalled {
    pub cpu: Option<u64>,
    pub io: Option<u64>,
    pub memory: Option<u64>,
}

/// One live process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessCounters {
    pub pid: i32,
    /// Clock ticks since boot: with the pid it names the process, whose number may be used again.
    pub started: u64,
    pub cpu_seconds: f64,
    pub rss_bytes: u64,
    /// Bytes read from and written to storage; None without the right to know.
    pub io: Option<(u64, u64)>,
}

impl Snapshot {
    pub fn take(sources: &Sources) -> io::Result<Snapshot> {
        let stats = KernelStats::current().map_err(io::Error::other)?;
        let DiskStats(mut disks) = DiskStats::current().map_err(io::Error::other)?;
        disks.retain(|disk| sources.disks.contains(&disk.name));
        Ok(Snapshot {
            monotonic: seconds(ClockId::Monotonic),
            time: seconds(ClockId::Realtime),
            cpu: stats.total,
            context_switches: stats.ctxt,
            disks,
            memory: Meminfo::current().map_err(io::Error::other)?,
            stalled: read_stalled(),
            processes: sources.pids.iter().filter_map(|&pid| find_process(pid)).collect(),
            own_cpu: seconds(ClockId::ProcessCPUTime),
        })
    }
}

fn read_stalled() -> Stalled {
    Stalled {
        cpu: CpuPressure::current().ok().map(|pressure| pressure.some.total),
        io: IoPressure::current().ok().map(|pressure| pressure.some.total),
        memory: MemoryPressure::current().ok().map(|pressure| pressure.some.total),
    }
}

/// None when the process is gone; a zombie is.
fn find_process(pid: i32) -> Option<ProcessCounters> {
    let process = Process::new(pid).ok()?;
    let stat = process.stat().ok()?;
    if stat.state == 'Z' {
        return None;
    }
    let io = match process.io() {
        Ok(io) => Some((io.read_bytes, io.write_bytes)),
        Err(ProcError::NotFound(_)) => return None,
        Err(_) => None,
    };
    Some(ProcessCounters {
        pid,
        started: stat.starttime,
        cpu_seconds: (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64,
        rss_bytes: stat.rss * procfs::page_size(),
        io,
    })
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
