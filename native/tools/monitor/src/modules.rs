//! The modules, one row each.

mod arc;
mod cpu;
mod disk;
mod interrupt;
mod memory;
mod monitor_cost;
mod net;
mod pressure;
mod process;
mod program;
mod simple;
mod system;
mod vm;

#[cfg(test)]
mod replays;

use crate::module::Kind;

/// A module of single numbers, see `simple`.
macro_rules! simple {
    ($name:literal, $short:expr, $title:literal, $help:literal, $fields:expr) => {
        Kind {
            name: $name,
            short: $short,
            help: $help,
            open: |setup| simple::open(setup, $title, $fields),
        }
    };
}

const fn kind(
    name: &'static str,
    short: Option<char>,
    help: &'static str,
    open: crate::module::Open,
) -> Kind {
    Kind { name, short, help, open }
}

/// In the order of `--list` and of `--help`.
#[rustfmt::skip]
pub const KINDS: &[Kind] = &[
    kind("cpu", Some('c'), "user, system, idle, wait, steal, true load = user + system", cpu::open),
    kind("disk", Some('d'), "bytes read, written", disk::open_bytes),
    kind("io", Some('r'), "requests read, written", disk::open_requests),
    kind("disk-ext", Some('x'), "as iostat -x: rates, sizes, latency by kind, queue, utilisation, efficiency", disk::open_extended),
    kind("flush", None, "flushes: rate, mean latency", disk::open_flushes),
    kind("disk-wait", None, "mean latency of reads, writes, flushes, discards", disk::open_waits),
    kind("disk-util", None, "utilisation, efficiency (throughput for each percent of it)", disk::open_use),
    kind("disk-queue", None, "mean requests under way (aqu-sz), mean request size (areq-sz)", disk::open_queue),
    kind("net", Some('n'), "bytes received, sent", net::open_bytes),
    kind("net-packets", None, "packets received, sent", net::open_packets),
    simple!("page", Some('g'), "paging", "pages swapped in, out", system::PAGE),
    simple!("sys", Some('y'), "system", "interrupts, context switches", system::SYS),
    kind("int", Some('i'), "interrupts by line: the busiest, or those of -I", interrupt::open),
    simple!("load", Some('l'), "load avg", "load averages over 1, 5, 15 minutes", system::LOAD),
    simple!("mem", Some('m'), "memory usage", "used without and with page cache, free, buffers, cache, available", memory::MEM),
    kind("arc", None, "ZFS's cache: size, target, recent, frequent; accesses, misses, hits", arc::open),
    simple!("dirty", None, "dirty", "memory that waits to be written, that is being written", memory::DIRTY),
    simple!("proc", Some('p'), "procs", "processes running, blocked, new", system::PROC),
    simple!("swap", Some('s'), "swap", "swap used, free", memory::SWAP),
    kind("psi", None, "pressure: share of time in which tasks waited for CPU, I/O, memory", pressure::open),
    simple!("ksm", None, "ksm", "same-page merging: shared, saved, unshared, volatile, scans", system::KSM),
    simple!("faults", None, "virtual memory", "dstat's --vm: major, minor faults, pages allocated, freed", system::VM),
    simple!("fs", None, "filesystem", "open files, inodes", system::FS),
    simple!("socket", None, "sockets", "sockets in use: all, TCP, UDP, raw", system::SOCKET),
    kind("process", None, "CPU, memory, I/O of the processes given with --pid", process::open),
    kind("self", None, "CPU and memory of the monitor itself", monitor_cost::open),
    kind("vm", None, "virtual machines (QEMU): vCPU, waits, I/O, guest flushes beside host fdatasyncs, memory", vm::open),
];

/// `--module`: not a switch, hence not in the table.
pub const PROGRAM: Kind = kind("module", None, "a program's own columns", program::open);

pub fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}
