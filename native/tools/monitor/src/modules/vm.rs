//! `--vm`: virtual machines, found as QEMU processes; no libvirt is needed.
//!
//! Guests come and go, so each is a row; the line has their sums. Percent are of one core.

mod command_line;
mod counters;
mod find;
mod guest_flushes;
mod host_syncs;
mod qmp;
mod rates;

use std::path::PathBuf;

use self::counters::{Watched, LONGEST_TEXT};
use self::find::{Finder, Found};
use self::guest_flushes::{Asked, Asker};
use self::host_syncs::{HostSyncs, Tracepoints};
use self::rates::{Rates, Reading};
use crate::files::Files;
use crate::module::{Column, Group, Module, Moment, Refusal, RowTable, Setup, Unit};

const MIB: f64 = 1024.0 * 1024.0;

/// Name, label, unit, and whether a sum over all guests means something.
const COLUMNS: [(&str, &str, Unit, bool); 13] = [
    ("vcpu", "vcpu", Unit::Percent, true),
    ("wait", "wait", Unit::Percent, true),
    ("iothread", "ioth", Unit::Percent, true),
    ("emulator", "emul", Unit::Percent, true),
    ("read", "read", Unit::MibPerSecond, true),
    ("write", "writ", Unit::MibPerSecond, true),
    ("guest_flush", "gflush", Unit::PerSecond, true),
    ("guest_flush_await", "gfawait", Unit::Milliseconds, false),
    ("host_fdatasync", "hsync", Unit::PerSecond, true),
    ("rss", "rss", Unit::Mib, true),
    ("swap", "swap", Unit::Mib, true),
    ("ksm", "ksm", Unit::Mib, true),
    ("pid", "pid", Unit::Count, false),
];

struct Guest {
    found: Found,
    watched: Watched,
    syncs: Option<HostSyncs>,
    last: Option<Reading>,
    rates: Rates,
}

pub struct Guests {
    groups: Vec<Group>,
    table: RowTable,
    proc: PathBuf,
    finder: Finder,
    tracepoints: Option<Tracepoints>,
    asker: Option<Asker>,
    guests: Vec<Guest>,
    rows: Vec<(String, Vec<f64>)>,
    buffer: Vec<u8>,
}

/// Always there: a host without guests has no rows.
pub fn open(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    let live = setup.files.root() == std::path::Path::new("/");
    Ok(Box::new(Guests {
        groups: vec![Group::new("vm/total", total_columns())],
        table: RowTable {
            key: "vm",
            columns: COLUMNS
                .map(|(name, label, unit, _)| Column::new(format!("vm.{name}"), label, unit))
                .to_vec(),
        },
        proc: setup.files.root().join("proc"),
        finder: Finder::new(),
        tracepoints: if live { Tracepoints::find() } else { None },
        asker: if live && setup.choices.qmp { Asker::start() } else { None },
        guests: Vec::new(),
        rows: Vec::new(),
        buffer: vec![0; LONGEST_TEXT],
    }))
}

fn total_columns() -> Vec<Column> {
    let count = Column::new("vm.total.count", "vms", Unit::Count);
    let sums = COLUMNS.iter().filter(|(.., summed)| *summed);
    let sums =
        sums.map(|(name, label, unit, _)| Column::new(format!("vm.total.{name}"), *label, *unit));
    std::iter::once(count).chain(sums).collect()
}

impl Module for Guests {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, _: &Files, now: Moment, row: &mut Vec<f64>) {
        self.take_in_new();
        self.rows.clear();
        let (asker, buffer, rows) = (&self.asker, &mut self.buffer, &mut self.rows);
        self.guests.retain_mut(|guest| match guest.read(asker.as_ref(), now, buffer) {
            Some(values) => {
                rows.push((guest.found.name.clone(), values));
                true
            }
            None => false,
        });
        if let Some(asker) = &mut self.asker {
            asker.ask(|| self.guests.iter().map(Guest::question).collect());
        }
        row.push(self.rows.len() as f64);
        row.extend(
            (0..COLUMNS.len())
                .filter(|&place| COLUMNS[place].3)
                .map(|place| sum_known(&self.rows, place)),
        );
    }

    fn row_table(&self) -> Option<&RowTable> {
        Some(&self.table)
    }

    fn rows(&self) -> &[(String, Vec<f64>)] {
        &self.rows
    }
}

impl Guests {
    fn take_in_new(&mut self) {
        let known: Vec<&Found> = self.guests.iter().map(|guest| &guest.found).collect();
        for found in self.finder.find_new(&self.proc, &known) {
            let Some(watched) = Watched::open(self.proc.join(found.pid.to_string())) else {
                continue;
            };
            let syncs = self.tracepoints.as_ref();
            let syncs = syncs.and_then(|points| HostSyncs::start(points, || watched.thread_ids()));
            self.guests.push(Guest { found, watched, syncs, last: None, rates: Rates::default() });
        }
        self.guests.sort_by(|a, b| a.found.name.cmp(&b.found.name));
    }
}

impl Guest {
    /// The row; None when the QEMU has ended.
    fn read(&mut self, asker: Option<&Asker>, now: Moment, buffer: &mut [u8]) -> Option<Vec<f64>> {
        let reading = Reading {
            at: now.monotonic,
            counters: self.watched.read(now.monotonic, buffer)?,
            host_syncs: self.syncs.as_ref().map_or(f64::NAN, HostSyncs::read),
            answer: asker
                .and_then(|asker| asker.find((self.found.pid, self.found.started), now.span)),
        };
        let before = self.last.replace(reading);
        self.rates.update(before.as_ref(), &reading, self.watched.has_named_threads());
        Some(self.values(&reading))
    }

    /// In the order of `COLUMNS`.
    fn values(&self, reading: &Reading) -> Vec<f64> {
        let (rates, counters) = (&self.rates, &reading.counters);
        vec![
            rates.vcpu,
            rates.wait,
            rates.iothread,
            rates.emulator,
            rates.read / MIB,
            rates.write / MIB,
            rates.guest_flush,
            rates.guest_flush_await,
            rates.host_sync,
            counters.rss / MIB,
            counters.swap / MIB,
            counters.merged / MIB,
            f64::from(self.found.pid),
        ]
    }

    fn question(&self) -> Asked {
        Asked {
            key: (self.found.pid, self.found.started),
            sockets: self.found.command_line.qmp.clone(),
        }
    }
}

/// Over the guests that tell; NaN when none does (without any guest 0).
fn sum_known(rows: &[(String, Vec<f64>)], place: usize) -> f64 {
    let known = rows.iter().map(|(_, values)| values[place]).filter(|value| !value.is_nan());
    let (count, sum) = known.fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    if count == 0 && !rows.is_empty() {
        f64::NAN
    } else {
        sum
    }
}

#[cfg(test)]
mod tests;
