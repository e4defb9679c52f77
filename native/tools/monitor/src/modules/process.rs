//! `--process`: what the processes given with `--pid` cost, together.

use crate::files::{FileId, Files};
use crate::module::{Column, Group, Module, Moment, Refusal, Setup, Unit};
use crate::scan;

const MIB: f64 = 1048576.0;

/// One process that lives.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Counters {
    /// Clock ticks since boot: with the number it names the process, for the number may be used
    /// again.
    started: u64,
    cpu_seconds: f64,
    resident: f64,
    /// Bytes read from and written to storage; None without the right to know.
    io: Option<(u64, u64)>,
}

impl Counters {
    /// None when the process is gone; a zombie is.
    fn parse(stat: &[u8], io: &[u8]) -> Option<Counters> {
        // The name in brackets may hold anything, brackets and blanks too.
        let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
        let fields: Vec<&[u8]> = scan::words(&stat[after_name..]).collect();
        let number = |at: usize| fields.get(at).copied().and_then(scan::whole_number);
        if *fields.first()? == b"Z" {
            return None;
        }
        let ticks = number(11)?.saturating_add(number(12)?);
        let read_written = (scan::value_of(io, b"read_bytes"), scan::value_of(io, b"write_bytes"));
        Some(Counters {
            started: number(19)?,
            cpu_seconds: ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
            resident: number(21)? as f64 * rustix::param::page_size() as f64,
            io: read_written.0.zip(read_written.1),
        })
    }
}

struct Watched {
    stat: FileId,
    io: FileId,
    before: Option<Counters>,
    after: Option<Counters>,
}

struct Processes {
    watched: Vec<Watched>,
    groups: Vec<Group>,
}

/// A process that has ended by now is no error: it may end at any time.
pub fn open(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    if setup.choices.pids.is_empty() {
        return Err(Refusal {
            what: "--process without a process".to_owned(),
            why: "it shows what the processes given with --pid cost".to_owned(),
            hint: "--process --pid 1234".to_owned(),
        });
    }
    let files = &mut setup.files;
    let watched = setup.choices.pids.iter().map(|pid| Watched {
        stat: files.share(&format!("proc/{pid}/stat")),
        io: files.share(&format!("proc/{pid}/io")),
        before: None,
        after: None,
    });
    let watched = watched.collect();
    let columns = vec![
        Column::new("process.cpu", "cpu", Unit::Percent),
        Column::new("process.rss", "rss", Unit::Mib),
        Column::new("process.read", "read", Unit::BytesPerSecond),
        Column::new("process.write", "writ", Unit::BytesPerSecond),
    ];
    Ok(Box::new(Processes { watched, groups: vec![Group::new("processes", columns)] }))
}

impl Watched {
    /// Both ends of the interval, when it is the same process.
    fn pair(&self) -> Option<(Counters, Counters)> {
        let pair = self.before.zip(self.after)?;
        (pair.0.started == pair.1.started).then_some(pair)
    }
}

/// Over the processes that lived through the interval. NaN when there is none, or one does not
/// tell: a part is no sum.
fn sum(numbers: impl Iterator<Item = Option<f64>>) -> f64 {
    let mut numbers = numbers.peekable();
    if numbers.peek().is_none() {
        return f64::NAN;
    }
    numbers.sum::<Option<f64>>().unwrap_or(f64::NAN)
}

impl Module for Processes {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, files: &Files, now: Moment, row: &mut Vec<f64>) {
        for watched in &mut self.watched {
            watched.before = watched.after;
            watched.after = Counters::parse(files.text(watched.stat), files.text(watched.io));
        }
        let rate = |of: fn(&Counters) -> Option<f64>, scale: f64| {
            let pairs = self.watched.iter().filter_map(Watched::pair);
            sum(pairs.map(|(a, b)| Some((of(&b)? - of(&a)?).max(0.0)))) * scale / now.span
        };
        let resident = self.watched.iter().filter_map(|w| Some(Some(w.after?.resident / MIB)));
        row.extend([
            rate(|c| Some(c.cpu_seconds), 100.0),
            sum(resident),
            rate(|c| Some(c.io?.0 as f64), 1.0),
            rate(|c| Some(c.io?.1 as f64), 1.0),
        ]);
    }
}
