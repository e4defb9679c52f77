//! `--self`: what the monitor itself costs.

use crate::counter::ratio;
use crate::files::Files;
use crate::module::{Column, Group, Module, Moment, Refusal, Setup, Unit};
use crate::own_cost::{cpu_seconds, OwnMemory};

struct Own {
    memory: OwnMemory,
    last: f64,
    groups: Vec<Group>,
}

pub fn open(_setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    let columns = vec![
        Column::new("monitor.cpu", "cpu%", Unit::Percent),
        Column::new("monitor.rss", "rss", Unit::Mib),
    ];
    let groups = vec![Group::new("monitor", columns)];
    Ok(Box::new(Own { memory: OwnMemory::open(), last: f64::NAN, groups }))
}

impl Module for Own {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, _files: &Files, now: Moment, row: &mut Vec<f64>) {
        let used = cpu_seconds();
        row.push(ratio((used - self.last) * 100.0, now.span));
        row.push(self.memory.resident() / 1048576.0);
        self.last = used;
    }
}
