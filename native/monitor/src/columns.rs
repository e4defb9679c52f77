//! The columns as rows of data, and the values between two snapshots.

use procfs::{CpuTime, DiskStat};
use serde::Serialize;

use crate::snapshot::{ProcessCounters, Snapshot, Stalled};

const MIB: f64 = 1024.0 * 1024.0;
/// The unit of /proc/diskstats whatever the disk.
const SECTOR: f64 = 512.0;

/// A metric: what its number is called and how it is got from two snapshots.
#[derive(Serialize)]
pub struct Column {
    pub name: &'static str,
    pub unit: &'static str,
    #[serde(skip)]
    value: fn(&Snapshot, &Snapshot) -> Option<f64>,
}

const fn column(
    name: &'static str,
    unit: &'static str,
    value: fn(&Snapshot, &Snapshot) -> Option<f64>,
) -> Column {
    Column { name, unit, value }
}

/// `cpu.*` is percent of all cores, `process.cpu` and `sampler.cpu` of one, `disk.util` that of the busiest disk,
/// `psi.*` the share of the interval in which some task waited.
pub const COLUMNS: &[Column] = &[
    column("cpu.user", "percent", |a, b| cpu_percent(&a.cpu, &b.cpu, |c| c.user + c.nice)),
    column("cpu.system", "percent", |a, b| cpu_percent(&a.cpu, &b.cpu, system_ticks)),
    column("cpu.iowait", "percent", |a, b| cpu_percent(&a.cpu, &b.cpu, |c| c.iowait.unwrap_or(0))),
    column("cpu.steal", "percent", |a, b| cpu_percent(&a.cpu, &b.cpu, |c| c.steal.unwrap_or(0))),
    column("disk.read", "MiB/s", |a, b| disks(a, b, |d| Some(d.sectors_read), SECTOR / MIB)),
    column("disk.write", "MiB/s", |a, b| disks(a, b, |d| Some(d.sectors_written), SECTOR / MIB)),
    column("disk.read_iops", "1/s", |a, b| disks(a, b, |d| Some(d.reads), 1.0)),
    column("disk.write_iops", "1/s", |a, b| disks(a, b, |d| Some(d.writes), 1.0)),
    column("disk.flush", "1/s", |a, b| disks(a, b, |d| d.flushes, 1.0)),
    column("disk.util", "percent", busiest_disk),
    column("memory.cached", "MiB", |_, b| mib(Some(b.memory.cached))),
    column("memory.dirty", "MiB", |_, b| mib(Some(b.memory.dirty))),
    column("memory.writeback", "MiB", |_, b| mib(Some(b.memory.writeback))),
    column("memory.free", "MiB", |_, b| mib(Some(b.memory.mem_free))),
    column("memory.available", "MiB", |_, b| mib(b.memory.mem_available)),
    column("psi.cpu", "percent", |a, b| stalled_percent(a, b, |stalled| stalled.cpu)),
    column("psi.io", "percent", |a, b| stalled_percent(a, b, |stalled| stalled.io)),
    column("psi.memory", "percent", |a, b| stalled_percent(a, b, |stalled| stalled.memory)),
    column("context_switches", "1/s", |a, b| {
        Some(rate(a, b, a.context_switches, b.context_switches))
    }),
    column("process.cpu", "percent", |a, b| {
        processes_rate(a, b, |p, q| Some(q.cpu_seconds - p.cpu_seconds), 100.0)
    }),
    column("process.rss", "MiB", |_, b| mib(resident_bytes(&b.processes))),
    column("process.read", "B/s", |a, b| {
        processes_rate(a, b, |p, q| Some(change(p.io?.0, q.io?.0)), 1.0)
    }),
    column("process.write", "B/s", |a, b| {
        processes_rate(a, b, |p, q| Some(change(p.io?.1, q.io?.1)), 1.0)
    }),
    column("sampler.cpu", "percent", |a, b| Some((b.own_cpu - a.own_cpu) / span(a, b) * 100.0)),
];

/// One value for each of [`COLUMNS`]; what is no finite number is None.
pub fn values(before: &Snapshot, after: &Snapshot) -> Vec<Option<f64>> {
    let value = |column: &Column| (column.value)(before, after).filter(|value| value.is_finite());
    COLUMNS.iter().map(value).collect()
}

/// Seconds between two snapshots.
fn span(before: &Snapshot, after: &Snapshot) -> f64 {
    after.monotonic - before.monotonic
}

/// A counter that went back (a device came anew, iowait was corrected) has not counted.
fn change(before: u64, after: u64) -> f64 {
    after.saturating_sub(before) as f64
}

fn rate(a: &Snapshot, b: &Snapshot, before: u64, after: u64) -> f64 {
    change(before, after) / span(a, b)
}

fn mib(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64 / MIB)
}

fn cpu_percent(before: &CpuTime, after: &CpuTime, part: fn(&CpuTime) -> u64) -> Option<f64> {
    let all = change(all_ticks(before), all_ticks(after));
    // Below a tick there is nothing to divide by.
    (all > 0.0).then(|| change(part(before), part(after)) / all * 100.0)
}

fn system_ticks(cpu: &CpuTime) -> u64 {
    cpu.system + cpu.irq.unwrap_or(0) + cpu.softirq.unwrap_or(0)
}

/// Guest time is in user and nice already.
fn all_ticks(cpu: &CpuTime) -> u64 {
    let waiting = cpu.idle + cpu.iowait.unwrap_or(0) + cpu.steal.unwrap_or(0);
    cpu.user + cpu.nice + system_ticks(cpu) + waiting
}

/// The disks that are in both snapshots.
fn disk_pairs<'a>(
    before: &'a Snapshot,
    after: &'a Snapshot,
) -> impl Iterator<Item = (&'a DiskStat, &'a DiskStat)> {
    after.disks.iter().filter_map(|disk| {
        Some((before.disks.iter().find(|earlier| earlier.name == disk.name)?, disk))
    })
}

fn disks(
    a: &Snapshot,
    b: &Snapshot,
    counter: fn(&DiskStat) -> Option<u64>,
    scale: f64,
) -> Option<f64> {
    let changes = disk_pairs(a, b).map(|(p, q)| Some(change(counter(p)?, counter(q)?)));
    sum_known(changes).map(|sum| sum * scale / span(a, b))
}

/// None when there is nothing to sum up, or one does not tell: a part is no sum.
fn sum_known(numbers: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let mut numbers = numbers.peekable();
    numbers.peek()?;
    numbers.sum()
}

fn busiest_disk(a: &Snapshot, b: &Snapshot) -> Option<f64> {
    let milliseconds =
        disk_pairs(a, b).map(|(p, q)| change(p.time_in_progress, q.time_in_progress));
    // The kernel's clock of this counter is coarser than ours: 100.4 percent would only confuse.
    milliseconds.map(|ms| (ms / 10.0 / span(a, b)).min(100.0)).reduce(f64::max)
}

fn stalled_percent(a: &Snapshot, b: &Snapshot, of: fn(&Stalled) -> Option<u64>) -> Option<f64> {
    let microseconds = change(of(&a.stalled)?, of(&b.stalled)?);
    Some((microseconds / 1e4 / span(a, b)).min(100.0))
}

/// Over the processes that lived through the interval.
fn processes_rate(
    a: &Snapshot,
    b: &Snapshot,
    difference: fn(&ProcessCounters, &ProcessCounters) -> Option<f64>,
    scale: f64,
) -> Option<f64> {
    let same = |p: &ProcessCounters, q: &ProcessCounters| (p.pid, p.started) == (q.pid, q.started);
    let pairs =
        b.processes.iter().filter_map(|q| Some((a.processes.iter().find(|p| same(p, q))?, q)));
    sum_known(pairs.map(|(p, q)| difference(p, q))).map(|sum| sum * scale / span(a, b))
}

fn resident_bytes(processes: &[ProcessCounters]) -> Option<u64> {
    (!processes.is_empty()).then(|| processes.iter().map(|process| process.rss_bytes).sum())
}

#[cfg(test)]
mod tests;
