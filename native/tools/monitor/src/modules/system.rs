//! `-y`, `-l`, `-p`, `-g`, `--vm`, `--fs`, `--socket`, `--ksm`: single numbers of the kernel.

use super::simple::{now, rate, value, word, Field};
use crate::module::Unit::Mib;
use crate::module::Unit::{Count, MibPerSecond, PerSecond};

const STAT: &str = "proc/stat";
const VMSTAT: &str = "proc/vmstat";
const LOADAVG: &str = "proc/loadavg";
const SOCKETS: &str = "proc/net/sockstat";
const MIB: f64 = 1048576.0;

fn page_mib() -> f64 {
    rustix::param::page_size() as f64 / MIB
}

fn pages_mib(text: &[u8], key: &[u8]) -> Option<f64> {
    value(text, key).map(|pages| pages * page_mib())
}

pub const SYS: &[Field] = &[
    rate("interrupts", "int", PerSecond, STAT, |text| value(text, b"intr")),
    rate("context_switches", "csw", PerSecond, STAT, |text| value(text, b"ctxt")),
];

pub const LOAD: &[Field] = &[
    now("load.1m", "1m", Count, LOADAVG, |text| word(text, 0)),
    now("load.5m", "5m", Count, LOADAVG, |text| word(text, 1)),
    now("load.15m", "15m", Count, LOADAVG, |text| word(text, 2)),
];

pub const PROC: &[Field] = &[
    now("processes.running", "run", Count, STAT, |text| value(text, b"procs_running")),
    now("processes.blocked", "blk", Count, STAT, |text| value(text, b"procs_blocked")),
    rate("processes.new", "new", PerSecond, STAT, |text| value(text, b"processes")),
];

pub const PAGE: &[Field] = &[
    rate("paging.in", "in", MibPerSecond, VMSTAT, |text| pages_mib(text, b"pswpin")),
    rate("paging.out", "out", MibPerSecond, VMSTAT, |text| pages_mib(text, b"pswpout")),
];

/// Allocated and freed are sums over the kernel's zones, as dstat has them.
pub const VM: &[Field] = &[
    rate("faults.major", "majpf", PerSecond, VMSTAT, |text| value(text, b"pgmajfault")),
    rate("faults.minor", "minpf", PerSecond, VMSTAT, |text| value(text, b"pgfault")),
    rate("pages.allocated", "alloc", PerSecond, VMSTAT, |text| sum_of(text, b"pgalloc_")),
    rate("pages.freed", "free", PerSecond, VMSTAT, |text| value(text, b"pgfree")),
];

fn sum_of(text: &[u8], start: &[u8]) -> Option<f64> {
    use crate::scan;
    let lines = scan::lines(text).filter(|line| line.starts_with(start));
    lines
        .map(|line| scan::words(line).nth(1).and_then(scan::whole_number))
        .try_fold(0.0, |sum, number| Some(sum + number? as f64))
}

pub const FS: &[Field] = &[
    now("files.open", "files", Count, "proc/sys/fs/file-nr", |text| word(text, 0)),
    now("files.inodes", "inode", Count, "proc/sys/fs/inode-nr", |text| {
        Some((word(text, 0)? - word(text, 1)?).max(0.0))
    }),
];

pub const SOCKET: &[Field] = &[
    now("sockets.all", "tot", Count, SOCKETS, |text| socket_count(text, b"sockets")),
    now("sockets.tcp", "tcp", Count, SOCKETS, |text| socket_count(text, b"TCP")),
    now("sockets.udp", "udp", Count, SOCKETS, |text| socket_count(text, b"UDP")),
    now("sockets.raw", "raw", Count, SOCKETS, |text| socket_count(text, b"RAW")),
];

/// `TCP: inuse 5 orphan 0`: the number behind the first word.
fn socket_count(text: &[u8], key: &[u8]) -> Option<f64> {
    word(crate::scan::after_key(text, key)?, 1)
}

/// `pages_sharing` counts the pages that others share instead of having their own: what is saved.
pub const KSM: &[Field] = &[
    now("ksm.shared", "shrd", Mib, "sys/kernel/mm/ksm/pages_shared", |text| {
        Some(word(text, 0)? * page_mib())
    }),
    now("ksm.saved", "saved", Mib, "sys/kernel/mm/ksm/pages_sharing", |text| {
        Some(word(text, 0)? * page_mib())
    }),
    now("ksm.unshared", "unshr", Mib, "sys/kernel/mm/ksm/pages_unshared", |text| {
        Some(word(text, 0)? * page_mib())
    }),
    now("ksm.volatile", "volat", Mib, "sys/kernel/mm/ksm/pages_volatile", |text| {
        Some(word(text, 0)? * page_mib())
    }),
    rate("ksm.full_scans", "scans", PerSecond, "sys/kernel/mm/ksm/full_scans", |text| {
        word(text, 0)
    }),
];
