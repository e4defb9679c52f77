//! /proc/diskstats: one line a disk, since it appeared.

use crate::counter::{change, change32, percent, ratio};
use crate::scan;

/// The unit of the kernel's sectors whatever the disk.
const SECTOR: f64 = 512.0;
const MIB: f64 = 1024.0 * 1024.0;

/// Requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    pub done: u64,
    pub merged: u64,
    pub sectors: u64,
    /// Milliseconds from issue to end, summed over requests; 32 bits in the kernel.
    pub ms: u64,
}

/// One line. Fields that the kernel does not have are None: discards came with 4.18, flushes with
/// 5.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub reads: Kind,
    pub writes: Kind,
    pub discards: Option<Kind>,
    pub flushes: Option<Kind>,
    pub in_flight: u64,
    /// Milliseconds with a request under way.
    pub busy_ms: u64,
    /// Milliseconds times requests under way.
    pub weighted_ms: u64,
}

/// Name and counters of a line; None for what is no such line (partitions before 2.6.25 have four
/// fields).
pub fn parse(line: &[u8]) -> Option<(&[u8], Counters)> {
    let mut words = scan::words(line);
    let (name, mut numbers, mut count) = (words.nth(2)?, [0u64; 17], 0);
    for (place, number) in numbers.iter_mut().zip(words.map_while(scan::whole_number)) {
        *place = number;
        count += 1;
    }
    if count < 11 {
        return None;
    }
    let kind = |at: usize| Kind {
        done: numbers[at],
        merged: numbers[at + 1],
        sectors: numbers[at + 2],
        ms: numbers[at + 3],
    };
    let flushes = Kind { done: numbers[15], ms: numbers[16], ..Kind::default() };
    let counters = Counters {
        reads: kind(0),
        writes: kind(4),
        discards: (count >= 15).then(|| kind(11)),
        flushes: (count >= 17).then_some(flushes),
        in_flight: numbers[8],
        busy_ms: numbers[9],
        weighted_ms: numbers[10],
    };
    Some((name, counters))
}

/// What one kind did in an interval; NaN throughout when the kernel does not tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Done {
    pub requests: f64,
    pub merged: f64,
    pub sectors: f64,
    pub ms: f64,
}

impl Done {
    const NONE: Done = Done { requests: 0.0, merged: 0.0, sectors: 0.0, ms: 0.0 };

    fn between(before: Option<Kind>, after: Option<Kind>) -> Done {
        let (Some(before), Some(after)) = (before, after) else {
            let nan = f64::NAN;
            return Done { requests: nan, merged: nan, sectors: nan, ms: nan };
        };
        Done {
            requests: change(before.done, after.done),
            merged: change(before.merged, after.merged),
            sectors: change(before.sectors, after.sectors),
            ms: change32(before.ms, after.ms),
        }
    }

    fn add(&mut self, other: Done) {
        self.requests += other.requests;
        self.merged += other.merged;
        self.sectors += other.sectors;
        self.ms += other.ms;
    }

    /// Milliseconds a request took; not known when there was none.
    pub fn wait(&self) -> f64 {
        ratio(self.ms, self.requests)
    }

    /// KiB a request.
    pub fn size(&self) -> f64 {
        ratio(self.sectors * SECTOR / 1024.0, self.requests)
    }
}

/// What disks did in an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Activity {
    pub reads: Done,
    pub writes: Done,
    pub discards: Done,
    pub flushes: Done,
    pub weighted_ms: f64,
    /// The time that the busiest disk was busy.
    pub busy_ms: f64,
    pub in_flight: f64,
    pub seconds: f64,
}

impl Activity {
    pub fn between(before: &Counters, after: &Counters, seconds: f64) -> Activity {
        Activity {
            reads: Done::between(Some(before.reads), Some(after.reads)),
            writes: Done::between(Some(before.writes), Some(after.writes)),
            discards: Done::between(before.discards, after.discards),
            flushes: Done::between(before.flushes, after.flushes),
            weighted_ms: change32(before.weighted_ms, after.weighted_ms),
            busy_ms: change32(before.busy_ms, after.busy_ms),
            in_flight: after.in_flight as f64,
            seconds,
        }
    }

    /// Adds several disks together; None when there is none.
    pub fn sum(parts: impl Iterator<Item = Activity>) -> Option<Activity> {
        parts.reduce(|mut sum, part| {
            sum.reads.add(part.reads);
            sum.writes.add(part.writes);
            sum.discards.add(part.discards);
            sum.flushes.add(part.flushes);
            sum.weighted_ms += part.weighted_ms;
            sum.busy_ms = sum.busy_ms.max(part.busy_ms);
            sum.in_flight += part.in_flight;
            sum
        })
    }

    pub fn rate(&self, number: f64) -> f64 {
        ratio(number, self.seconds)
    }

    pub fn mib_rate(&self, sectors: f64) -> f64 {
        self.rate(sectors * SECTOR / MIB)
    }

    /// Percent of the time with a request under way.
    pub fn util(&self) -> f64 {
        percent(self.busy_ms, self.seconds * 1000.0)
    }

    /// Mean number of requests under way.
    pub fn queue(&self) -> f64 {
        ratio(self.weighted_ms, self.seconds * 1000.0)
    }

    /// KiB a request, reads, writes and discards together, as iostat's areq-sz.
    pub fn size(&self) -> f64 {
        let mut all = Done::NONE;
        all.add(self.reads);
        all.add(self.writes);
        if self.discards.requests > 0.0 {
            all.add(self.discards);
        }
        all.size()
    }

    /// MiB/s for each percent of utilisation.
    pub fn efficiency(&self) -> f64 {
        ratio(self.mib_rate(self.reads.sectors + self.writes.sectors), self.util())
    }
}
