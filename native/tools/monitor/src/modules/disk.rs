//! `-d`, `-r`, `-x` and all else about disks: a module is a choice of fields.

pub mod counters;
mod physical;

use crate::choices::TOTAL;
use crate::files::{FileId, Files};
use crate::module::{Column, Group, Module, Moment, Refusal, Setup, Unit};
use crate::scan;

use counters::{Activity, Counters};
use physical::Physical;

/// A metric of a disk, or of all of them.
struct Field {
    name: &'static str,
    label: &'static str,
    unit: Unit,
    value: fn(&Activity) -> f64,
}

const fn field(
    name: &'static str,
    label: &'static str,
    unit: Unit,
    value: fn(&Activity) -> f64,
) -> Field {
    Field { name, label, unit, value }
}

const READ: Field = field("read", "read", Unit::MibPerSecond, |a| a.mib_rate(a.reads.sectors));
const WRITE: Field = field("write", "writ", Unit::MibPerSecond, |a| a.mib_rate(a.writes.sectors));
const READS: Field = field("read_iops", "r/s", Unit::PerSecond, |a| a.rate(a.reads.requests));
const WRITES: Field = field("write_iops", "w/s", Unit::PerSecond, |a| a.rate(a.writes.requests));
const FLUSHES: Field = field("flush", "f/s", Unit::PerSecond, |a| a.rate(a.flushes.requests));
const DISCARDS: Field =
    field("discard_iops", "d/s", Unit::PerSecond, |a| a.rate(a.discards.requests));
const READ_WAIT: Field = field("read_await", "r_awt", Unit::Milliseconds, |a| a.reads.wait());
const WRITE_WAIT: Field = field("write_await", "w_awt", Unit::Milliseconds, |a| a.writes.wait());
const FLUSH_WAIT: Field = field("flush_await", "f_awt", Unit::Milliseconds, |a| a.flushes.wait());
const DISCARD_WAIT: Field =
    field("discard_await", "d_awt", Unit::Milliseconds, |a| a.discards.wait());
const QUEUE: Field = field("aqu_sz", "aqusz", Unit::Count, Activity::queue);
const SIZE: Field = field("areq_sz", "rq-sz", Unit::Kib, Activity::size);
const UTIL: Field = field("util", "utl", Unit::Percent, Activity::util);
const EFFICIENCY: Field =
    field("efficiency", "eff", Unit::MibPerSecondPerPercent, Activity::efficiency);

const EXTENDED: &[Field] = &[
    READS,
    WRITES,
    FLUSHES,
    READ,
    WRITE,
    READ_WAIT,
    WRITE_WAIT,
    FLUSH_WAIT,
    QUEUE,
    SIZE,
    UTIL,
    EFFICIENCY,
    field("read_merged", "rrqm", Unit::PerSecond, |a| a.rate(a.reads.merged)),
    field("write_merged", "wrqm", Unit::PerSecond, |a| a.rate(a.writes.merged)),
    field("read_size", "r-sz", Unit::Kib, |a| a.reads.size()),
    field("write_size", "w-sz", Unit::Kib, |a| a.writes.size()),
    DISCARDS,
    field("discard", "dMB/s", Unit::MibPerSecond, |a| a.mib_rate(a.discards.sectors)),
    DISCARD_WAIT,
    field("discard_merged", "drqm", Unit::PerSecond, |a| a.rate(a.discards.merged)),
    field("discard_size", "d-sz", Unit::Kib, |a| a.discards.size()),
    field("in_flight", "infl", Unit::Count, |a| a.in_flight),
];

pub fn open_bytes(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    open(setup, "dsk", &[READ, WRITE])
}

pub fn open_requests(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    open(setup, "io", &[READS, WRITES])
}

pub fn open_extended(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    open(setup, "ext", EXTENDED)
}

pub fn open_flushes(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    open(setup, "flush", &[FLUSHES, FLUSH_WAIT])
}

pub fn open_waits(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    open(setup, "await", &[READ_WAIT, WRITE_WAIT, FLUSH_WAIT, DISCARD_WAIT])
}

pub fn open_use(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    open(setup, "util", &[UTIL, EFFICIENCY])
}

pub fn open_queue(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    open(setup, "queue", &[QUEUE, SIZE])
}

/// A disk of /proc/diskstats, in the order in which they were first seen.
struct Disk {
    name: Vec<u8>,
    physical: bool,
    last: Option<Counters>,
    /// The counters of the interval that ends now; None when it was not there at both ends.
    activity: Option<Activity>,
    seen: bool,
}

struct Disks {
    diskstats: FileId,
    physical: Physical,
    known: Vec<Disk>,
    /// Names, `total` among them.
    shown: Vec<String>,
    fields: &'static [Field],
    groups: Vec<Group>,
}

fn open(
    setup: &mut Setup<'_>,
    title: &str,
    fields: &'static [Field],
) -> Result<Box<dyn Module>, Refusal> {
    let diskstats = setup.files.share("proc/diskstats");
    let text = setup.files.text(diskstats);
    let physical = Physical::of(setup.files.root(), text);
    let there: Vec<&[u8]> =
        scan::lines(text).filter_map(|line| Some(counters::parse(line)?.0)).collect();
    let names: Vec<String> = if setup.choices.full && setup.choices.disks.is_empty() {
        there.iter().filter(|name| physical.is(name)).map(|name| scan::name(name)).collect()
    } else {
        there.iter().map(|name| scan::name(name)).collect()
    };
    let shown = setup.choices.choose("disk", &setup.choices.disks, &names)?;
    let groups = shown.iter().map(|name| group(title, name, fields)).collect();
    Ok(Box::new(Disks { diskstats, physical, known: Vec::new(), shown, fields, groups }))
}

fn group(title: &str, disk: &str, fields: &[Field]) -> Group {
    let prefix = if disk == TOTAL { "disk".to_owned() } else { format!("disk.{disk}") };
    let column =
        |field: &Field| Column::new(format!("{prefix}.{}", field.name), field.label, field.unit);
    Group::new(format!("{title}/{disk}"), fields.iter().map(column).collect())
}

impl Disks {
    fn take_in(&mut self, text: &[u8], seconds: f64) {
        self.known.iter_mut().for_each(|disk| disk.seen = false);
        let mut next = 0;
        for (name, counters) in scan::lines(text).filter_map(counters::parse) {
            // The order hardly ever changes.
            let same = self.known.get(next).is_some_and(|disk| disk.name == name);
            let found = same
                .then_some(next)
                .or_else(|| self.known.iter().position(|disk| disk.name == name));
            let at = found.unwrap_or_else(|| {
                let physical = self.physical.is(name);
                let name = name.to_vec();
                self.known.push(Disk { name, physical, last: None, activity: None, seen: true });
                self.known.len() - 1
            });
            next = at + 1;
            let disk = &mut self.known[at];
            disk.activity = disk.last.map(|last| Activity::between(&last, &counters, seconds));
            (disk.last, disk.seen) = (Some(counters), true);
        }
        // What comes back counts from its return.
        self.known.retain(|disk| disk.seen);
    }

    fn activity(&self, name: &str) -> Option<Activity> {
        if name == TOTAL {
            let physical = self.known.iter().filter(|disk| disk.physical);
            return Activity::sum(physical.filter_map(|disk| disk.activity));
        }
        self.known.iter().find(|disk| disk.name == name.as_bytes())?.activity
    }
}

impl Module for Disks {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, files: &Files, now: Moment, row: &mut Vec<f64>) {
        self.take_in(files.text(self.diskstats), now.span);
        for name in &self.shown {
            let activity = self.activity(name);
            row.extend(
                self.fields.iter().map(|field| activity.as_ref().map_or(f64::NAN, field.value)),
            );
        }
    }
}
