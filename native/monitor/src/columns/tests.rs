//! Values between two snapshots made from recorded files of /proc.

use procfs::{DiskStats, ExplicitSystemInfo, FromBufRead, FromBufReadSI, KernelStats, Meminfo};
use proptest::prelude::*;

use super::*;

const STAT: [&str; 2] = [
    "cpu  1000 100 500 8000 200 50 50 100 0 0\ncpu0 1000 100 500 8000 200 50 50 100 0 0\n\
     intr 5 0\nctxt 70000\nbtime 1700000000\nprocesses 10\nprocs_running 1\nprocs_blocked 0\n",
    "cpu  1030 110 520 8100 220 55 55 110 0 0\ncpu0 1030 110 520 8100 220 55 55 110 0 0\n\
     intr 9 0\nctxt 71000\nbtime 1700000000\nprocesses 10\nprocs_running 1\nprocs_blocked 0\n",
];
const DISKSTATS: [&str; 2] = [
    " 254 0 vda 100 0 2048 50 200 0 4096 60 0 1000 110 0 0 0 0 10 5\n   8 0 sda 7 0 70 7 7 0 70 7 0 500 7 0 0 0 0 1 1\n",
    " 254 0 vda 300 0 6144 90 600 0 20480 99 0 1200 189 0 0 0 0 40 9\n   8 0 sda 7 0 70 7 7 0 70 7 0 900 7 0 0 0 0 1 1\n",
];
const MEMINFO: &str = "MemTotal: 8000000 kB\nMemFree: 1048576 kB\nMemAvailable: 2097152 kB\nBuffers: 10 kB\n\
    Cached: 524288 kB\nSwapCached: 0 kB\nActive: 1 kB\nInactive: 1 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n\
    Dirty: 2048 kB\nWriteback: 1024 kB\nMapped: 1 kB\nSlab: 1 kB\nCommitted_AS: 1 kB\nVmallocTotal: 1 kB\nVmallocUsed: 0 kB\nVmallocChunk: 0 kB\n";

fn process(pid: i32, started: u64, n: u64) -> ProcessCounters {
    ProcessCounters {
        pid,
        started,
        cpu_seconds: n as f64 / 10.0,
        rss_bytes: n << 20,
        io: Some((n * 1000, n * 2000)),
    }
}

/// The recorded state `at` 0 or, two seconds later, 1.
fn snapshot(at: usize, processes: Vec<ProcessCounters>) -> Snapshot {
    let info = ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: 100,
        page_size: 4096,
        is_little_endian: true,
    };
    let stats = KernelStats::from_buf_read(STAT[at].as_bytes(), &info).unwrap();
    let n = at as u64;
    Snapshot {
        monotonic: 10.0 + 2.0 * at as f64,
        time: 1e9,
        cpu: stats.total,
        context_switches: stats.ctxt,
        disks: DiskStats::from_buf_read(DISKSTATS[at].as_bytes()).unwrap().0,
        memory: Meminfo::from_buf_read(MEMINFO.as_bytes()).unwrap(),
        stalled: Stalled { cpu: Some(n * 500_000), io: Some(n * 9_000_000), memory: None },
        processes,
        own_cpu: 0.002 * at as f64,
    }
}

fn value(before: &Snapshot, after: &Snapshot, name: &str) -> Option<f64> {
    let at = COLUMNS.iter().position(|column| column.name == name).unwrap();
    values(before, after)[at]
}

#[test]
fn values_of_the_recorded_interval() {
    let a = snapshot(0, vec![process(5, 1, 10), process(6, 1, 10)]);
    let b = snapshot(1, vec![process(5, 1, 20), process(6, 1, 14)]);
    for (name, wanted) in [
        // 200 ticks in all: 40 user and nice, 20 + 5 + 5 system, 20 waiting, 10 stolen.
        ("cpu.user", 20.0),
        ("cpu.system", 15.0),
        ("cpu.iowait", 10.0),
        ("cpu.steal", 5.0),
        ("disk.read", 1.0),
        ("disk.write", 4.0),
        ("disk.read_iops", 100.0),
        ("disk.write_iops", 200.0),
        ("disk.flush", 15.0),
        ("disk.util", 20.0),
        ("memory.cached", 512.0),
        ("memory.dirty", 2.0),
        ("memory.writeback", 1.0),
        ("memory.free", 1024.0),
        ("memory.available", 2048.0),
        ("psi.cpu", 25.0),
        ("psi.io", 100.0),
        ("context_switches", 500.0),
        ("process.cpu", 70.0),
        ("process.rss", 34.0),
        ("process.read", 7000.0),
        ("process.write", 14000.0),
        ("sampler.cpu", 0.1),
    ] {
        let got = value(&a, &b, name).unwrap_or_else(|| panic!("{name}: null"));
        assert!((got - wanted).abs() < 1e-9, "{name}: {got} instead of {wanted}");
    }
    assert_eq!(value(&a, &b, "psi.memory"), None);
}

#[test]
fn the_dead_and_the_reborn_do_not_count() {
    let a = snapshot(0, vec![process(5, 1, 10), process(6, 1, 10)]);
    let one_died = snapshot(1, vec![process(5, 1, 20)]);
    assert_eq!(value(&a, &one_died, "process.read"), Some(5000.0));
    let number_used_again = snapshot(1, vec![process(5, 99, 20)]);
    assert_eq!(value(&a, &number_used_again, "process.cpu"), None);
    let all_died = snapshot(1, vec![]);
    for name in ["process.cpu", "process.rss", "process.read", "process.write"] {
        assert_eq!(value(&a, &all_died, name), None);
    }
}

#[test]
fn a_process_that_does_not_tell_makes_the_sum_null_and_no_other() {
    let secret = |n| ProcessCounters { io: None, ..process(6, 1, n) };
    let a = snapshot(0, vec![process(5, 1, 10), secret(10)]);
    let b = snapshot(1, vec![process(5, 1, 20), secret(20)]);
    assert_eq!(value(&a, &b, "process.read"), None);
    assert_eq!(value(&a, &b, "process.cpu"), Some(100.0));
}

#[test]
fn names_are_unique() {
    let mut names: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), COLUMNS.len());
}

proptest! {
    #[test]
    fn shares_stay_within_bounds_even_when_counters_go_back(
        ticks in prop::array::uniform8(0u64..1 << 40),
        busy in 0u64..1 << 40,
        stalled in 0u64..1 << 40,
    ) {
        let a = snapshot(0, vec![]);
        let mut b = snapshot(1, vec![]);
        let text = format!("cpu {} 0 0\nctxt 1\nbtime 1\nprocesses 1\n", ticks.map(|n| n.to_string()).join(" "));
        let info = ExplicitSystemInfo { boot_time_secs: 0, ticks_per_second: 100, page_size: 4096, is_little_endian: true };
        b.cpu = KernelStats::from_buf_read(text.as_bytes(), &info).unwrap().total;
        b.disks[0].time_in_progress = busy;
        b.stalled.io = Some(stalled);
        for name in ["disk.util", "psi.io"] {
            let got = value(&a, &b, name).unwrap();
            prop_assert!((0.0..=100.0).contains(&got), "{name} {got}");
        }
        for (column, got) in COLUMNS.iter().zip(values(&a, &b)) {
            prop_assert!(got.is_none_or(|got| got >= 0.0), "{} {got:?}", column.name);
        }
    }
}
