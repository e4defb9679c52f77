//! `-c`: where the processors' time goes.

use crate::counter::{change, percent};
use crate::files::{FileId, Files};
use crate::module::{Column, Group, Module, Moment, Refusal, Setup, Unit};
use crate::scan;

/// Clock ticks of /proc/stat's `cpu` lines: guest time is in user and nice already.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ticks {
    pub user: u64,
    pub system: u64,
    pub idle: u64,
    pub wait: u64,
    pub hard_irq: u64,
    pub soft_irq: u64,
    pub steal: u64,
}

impl Ticks {
    /// The line `cpu` or `cpu0`; kernels before 2.6.11 end it before `steal`. None when it is not
    /// there.
    pub fn find(stat: &[u8], key: &[u8]) -> Option<Ticks> {
        Self::parse(scan::after_key(stat, key)?)
    }

    fn parse(numbers: &[u8]) -> Option<Ticks> {
        let ([user, nice, system, idle, wait, hard_irq, soft_irq, steal], count) =
            scan::numbers::<8>(numbers);
        let user = user.saturating_add(nice);
        (count >= 4).then_some(Ticks { user, system, idle, wait, hard_irq, soft_irq, steal })
    }

    fn since(&self, before: &Ticks) -> Shares {
        let system = change(before.system, self.system);
        let (hard, soft) =
            (change(before.hard_irq, self.hard_irq), change(before.soft_irq, self.soft_irq));
        Shares {
            user: change(before.user, self.user),
            system: system + hard + soft,
            idle: change(before.idle, self.idle),
            wait: change(before.wait, self.wait),
            steal: change(before.steal, self.steal),
        }
    }
}

/// Ticks between two readings; `system` with interrupts.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    pub user: f64,
    pub system: f64,
    pub idle: f64,
    pub wait: f64,
    pub steal: f64,
}

impl Shares {
    /// NaN before there are two readings.
    pub fn between(before: Option<&Ticks>, after: Option<&Ticks>) -> Shares {
        match (before, after) {
            (Some(before), Some(after)) => after.since(before),
            _ => Shares {
                user: f64::NAN,
                system: f64::NAN,
                idle: f64::NAN,
                wait: f64::NAN,
                steal: f64::NAN,
            },
        }
    }

    /// Percent of all time; NaN below a tick, when there is nothing to divide by.
    pub fn percent(&self, part: f64) -> f64 {
        percent(part, self.user + self.system + self.idle + self.wait + self.steal)
    }
}

/// Keys of the lines that are shown (`cpu`, `cpu0`), and their last reading.
struct Cpu {
    stat: FileId,
    lines: Vec<(Vec<u8>, Option<Ticks>)>,
    groups: Vec<Group>,
}

pub fn open(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    let stat = setup.files.share("proc/stat");
    let names = choose(setup, stat)?;
    let lines = names.iter().map(|name| (key(name), None)).collect();
    let groups = names.iter().map(|name| group(name)).collect();
    Ok(Box::new(Cpu { stat, lines, groups }))
}

fn choose(setup: &Setup<'_>, stat: FileId) -> Result<Vec<String>, Refusal> {
    let text = setup.files.text(stat);
    let there: Vec<String> = scan::lines(text)
        .filter_map(|line| line.strip_prefix(b"cpu"))
        .filter_map(|rest| scan::words(rest).next().filter(|_| !rest.starts_with(b" ")))
        .map(scan::name)
        .collect();
    setup.choices.choose("processor", &setup.choices.cpus, &there)
}

fn key(name: &str) -> Vec<u8> {
    if name == "total" {
        b"cpu".to_vec()
    } else {
        format!("cpu{name}").into_bytes()
    }
}

/// True load is user and system: waiting is idle time with a request under way.
fn group(name: &str) -> Group {
    let (prefix, title) = match name {
        "total" => ("cpu".to_owned(), "total cpu usage".to_owned()),
        _ => (format!("cpu.{name}"), format!("cpu{name} usage")),
    };
    let column = |name, label| Column::new(format!("{prefix}.{name}"), label, Unit::Percent);
    let columns = [
        ("user", "usr"),
        ("system", "sys"),
        ("idle", "idl"),
        ("iowait", "wai"),
        ("steal", "stl"),
        ("true_load", "tru"),
    ];
    Group::new(title, columns.map(|(name, label)| column(name, label)).to_vec())
}

impl Module for Cpu {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, files: &Files, _now: Moment, row: &mut Vec<f64>) {
        for (key, before) in &mut self.lines {
            let after = Ticks::find(files.text(self.stat), key);
            let shares = Shares::between(before.as_ref(), after.as_ref());
            let Shares { user, system, idle, wait, steal } = shares;
            row.extend(
                [user, system, idle, wait, steal, user + system].map(|part| shares.percent(part)),
            );
            *before = after;
        }
    }
}
