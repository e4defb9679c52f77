//! `--module COMMAND`: columns of a program of one's own, which writes the JSON lines that the
//! monitor writes itself.

mod command_text;
mod lines;
mod process;

use std::path::Path;
use std::time::Duration;

use self::lines::{parse_header, parse_sample};
use self::process::Program;
use crate::files::Files;
use crate::module::{Column, Group, Module, Moment, Refusal, Setup, Unit};
use crate::output::say;

/// From its start to its header.
const PATIENCE: Duration = Duration::from_secs(30);
/// Values are shown until they are older than this many seconds, and than this many samples.
const STALE_SECONDS: f64 = 3.0;
const STALE_SAMPLES: f64 = 3.0;

struct Watched {
    name: String,
    program: Program,
    values: Vec<f64>,
    /// CLOCK_MONOTONIC of the last sample line.
    heard: f64,
}

struct Programs {
    groups: Vec<Group>,
    programs: Vec<Watched>,
}

/// Starts all programs and reads their headers.
pub fn open(setup: &mut Setup<'_>) -> Result<Box<dyn Module>, Refusal> {
    let mut opened = Programs { groups: Vec::new(), programs: Vec::new() };
    for command in &setup.choices.programs {
        let (group, watched) = start(command, setup.choices.delay).map_err(|why| Refusal {
            what: format!("the module {command:?} cannot be used"),
            why,
            hint: "docs/monitor-modules.md says what it must write".to_owned(),
        })?;
        if opened.groups.iter().any(|known| known.title == group.title) {
            return Err(Refusal {
                what: format!("two modules are named {:?}", group.title),
                why: "their columns would have the same names".to_owned(),
                hint: "let one of them write another \"name\" in its header".to_owned(),
            });
        }
        opened.groups.push(group);
        opened.programs.push(watched);
    }
    Ok(Box::new(opened))
}

fn start(command: &str, delay: f64) -> Result<(Group, Watched), String> {
    let words = command_text::split_words(command)?;
    let mut program = Program::start(&words, delay)
        .map_err(|error| format!("{} cannot be started: {error}", words[0]))?;
    let line = program.wait_line(PATIENCE)?;
    let given =
        Path::new(&words[0]).file_stem().map(|name| name.to_string_lossy()).unwrap_or_default();
    let header = parse_header(&line, &given)?;
    let age = Column::new(format!("{}.age", header.name), "age", Unit::Seconds);
    if header.columns.iter().any(|column| column.name == age.name) {
        return Err("the column \"age\" is the monitor's own".to_owned());
    }
    let values = vec![f64::NAN; header.columns.len()];
    let columns = header.columns.into_iter().chain([age]).collect();
    let watched = Watched { name: header.name.clone(), program, values, heard: f64::NAN };
    Ok((Group::new(header.name, columns), watched))
}

impl Module for Programs {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, _: &Files, now: Moment, row: &mut Vec<f64>) {
        for watched in &mut self.programs {
            watched.sample(now, row);
        }
    }
}

impl Watched {
    fn sample(&mut self, now: Moment, row: &mut Vec<f64>) {
        if self.heard.is_nan() {
            self.heard = now.monotonic;
        }
        let line = self.program.take_last_line();
        if let Some(values) = line.and_then(|line| parse_sample(&line, self.values.len())) {
            self.values = values;
            self.heard = now.monotonic;
        }
        let age = now.monotonic - self.heard;
        let over = self.program.take_end();
        if let Some(why) = &over {
            say(&format!("module {}: {why}", self.name));
        }
        if over.is_some() || age > STALE_SECONDS.max(STALE_SAMPLES * now.span) {
            self.values.fill(f64::NAN);
        }
        row.extend_from_slice(&self.values);
        row.push(age);
    }
}

#[cfg(test)]
mod tests;
