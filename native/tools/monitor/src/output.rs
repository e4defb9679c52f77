//! Where samples go: a terminal, CSV, JSON lines.

mod cell;
pub mod csv;
mod figures;
pub mod json;
mod local_time;
pub mod terminal;

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use crate::module::{Column, Group, Moment, RowTable};

/// What every line of a recording has.
pub struct Sheet {
    pub groups: Vec<Group>,
    pub row_table: Option<RowTable>,
    /// Seconds.
    pub delay: f64,
    /// Places in the line of the columns that a recording has: a name that two modules share stands
    /// once.
    recorded: Vec<usize>,
}

impl Sheet {
    pub fn new(groups: Vec<Group>, row_table: Option<RowTable>, delay: f64) -> Sheet {
        let names: Vec<&str> = groups
            .iter()
            .flat_map(|group| &group.columns)
            .map(|column| column.name.as_str())
            .collect();
        let is_first = |at: &usize| !names[..*at].contains(&names[*at]);
        let recorded = (0..names.len()).filter(is_first).collect();
        Sheet { groups, row_table, delay, recorded }
    }

    /// The columns of a recording, in order, without those of the rows.
    pub fn recorded_columns(&self) -> Vec<&Column> {
        let all: Vec<&Column> = self.groups.iter().flat_map(|group| &group.columns).collect();
        self.recorded.iter().map(|&at| all[at]).collect()
    }

    /// Their values.
    pub fn recorded_values<'a>(&'a self, values: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
        self.recorded.iter().map(|&at| values[at])
    }
}

/// One line: as many values as the sheet has columns; NaN is not known.
pub struct Sample<'a> {
    pub now: Moment,
    pub values: &'a [f64],
    pub rows: &'a [(String, Vec<f64>)],
}

pub trait Output {
    fn start(&mut self, sheet: &Sheet) -> io::Result<()>;
    fn sample(&mut self, sheet: &Sheet, sample: &Sample<'_>) -> io::Result<()>;
    /// The terminal has another size now.
    fn resize(&mut self) {}
    /// Who is to be named when writing fails.
    fn name(&self) -> String;
}

/// A file or the standard output, written a line at once: a reader sees whole lines or nothing.
pub struct Sink {
    to: To,
    pub line: String,
}

enum To {
    Stdout(io::Stdout),
    File(File, PathBuf),
}

/// What cannot be told to the standard error is not told.
pub fn say(text: &str) {
    let _ = io::stderr().write_all(format!("diskproof-monitor: {text}\n").as_bytes());
}

impl Sink {
    /// `-` is the standard output. An existing file is written anew, as dstat does.
    pub fn open(path: &Path) -> io::Result<Sink> {
        let to = if path == Path::new("-") {
            To::Stdout(io::stdout())
        } else {
            To::File(File::create(path)?, path.to_owned())
        };
        Ok(Sink { to, line: String::new() })
    }

    pub fn name(&self) -> String {
        match &self.to {
            To::Stdout(_) => "standard output".to_owned(),
            To::File(_, path) => path.display().to_string(),
        }
    }

    /// Write what was gathered in `line`, and forget it.
    pub fn write(&mut self) -> io::Result<()> {
        let bytes = self.line.as_bytes();
        let done = match &mut self.to {
            To::Stdout(stdout) => {
                let mut stdout = stdout.lock();
                stdout.write_all(bytes).and_then(|()| stdout.flush())
            }
            To::File(file, _) => write_or_take_back(file, bytes),
        };
        self.line.clear();
        done
    }
}

/// A full disk leaves whole lines: what was written of the last one is cut off again.
fn write_or_take_back(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    let before = file.stream_position();
    file.write_all(bytes).inspect_err(|_| {
        // A pipe or device has no length; the error that counts is the first.
        let _ = before.and_then(|length| file.set_len(length));
    })
}
