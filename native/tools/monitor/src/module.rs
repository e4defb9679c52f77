//! What a module is: columns with names that stay, and their values at each tick.
//!
//! A module is one row in `modules::KINDS` and one type that implements [`Module`]. It is opened
//! once, then sampled at each tick, the first time only to know where the counters start. Values
//! are `f64`; NaN is "not known" (this kernel does not tell, or the disk is gone), shown as `-`, an
//! empty CSV field and JSON's null.

use crate::choices::Choices;
use crate::files::Files;

/// What a number counts, and with it how it is written in a terminal. Values have the unit they are
/// named with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Percent,
    /// 1024-based in a terminal, as all that is bytes.
    Bytes,
    BytesPerSecond,
    Mib,
    MibPerSecond,
    Kib,
    PerSecond,
    Milliseconds,
    Seconds,
    /// A number of things now: processes, requests, pages.
    Count,
    /// MiB/s for each percent of utilisation.
    MibPerSecondPerPercent,
}

impl Unit {
    /// The name that stands in a header.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Percent => "percent",
            Unit::Bytes => "B",
            Unit::BytesPerSecond => "B/s",
            Unit::Mib => "MiB",
            Unit::MibPerSecond => "MiB/s",
            Unit::Kib => "KiB",
            Unit::PerSecond => "1/s",
            Unit::Milliseconds => "ms",
            Unit::Seconds => "s",
            Unit::Count => "count",
            Unit::MibPerSecondPerPercent => "MiB/s/percent",
        }
    }
}

/// One metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Unique over all modules and stable over versions: `disk.sda.read`.
    pub name: String,
    /// What stands over it in a terminal, a few letters: `read`.
    pub label: String,
    pub unit: Unit,
}

impl Column {
    pub fn new(name: impl Into<String>, label: impl Into<String>, unit: Unit) -> Self {
        Column { name: name.into(), label: label.into(), unit }
    }
}

/// Columns under one title in a terminal: `dsk/sda`.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub title: String,
    pub columns: Vec<Column>,
}

impl Group {
    pub fn new(title: impl Into<String>, columns: Vec<Column>) -> Self {
        Group { title: title.into(), columns }
    }
}

/// The moment of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// CLOCK_MONOTONIC, seconds.
    pub monotonic: f64,
    /// CLOCK_REALTIME, seconds; it may jump.
    pub time: f64,
    /// Seconds since the sample before; NaN at the first.
    pub span: f64,
}

/// Columns of things of which there is a varying number, one row each at every tick: virtual
/// machines. They are fixed when the module is opened.
///
/// In a terminal the rows are lines of their own below the line, in JSON `"rows":{KEY:[[id,
/// values...], ...]}` in the sample; in CSV the row's identity and columns follow those of the
/// line, which is written again for each row.
#[derive(Clone, Debug, PartialEq)]
pub struct RowTable {
    /// What a row is one of, and the name of the column of its identity: `vm`.
    pub key: &'static str,
    pub columns: Vec<Column>,
}

/// Something that is looked at, opened and running.
pub trait Module {
    /// The columns of the line; they do not change.
    fn groups(&self) -> &[Group];

    /// Look now and append one value for each column to `row`, rates as the mean since the sample
    /// before.
    ///
    /// The files that were shared at opening have just been read: `files.text(id)`. What is
    /// appended at the first sample is not shown. Never panics, whatever the files hold.
    fn sample(&mut self, files: &Files, now: Moment, row: &mut Vec<f64>);

    /// For a module with rows: their columns.
    fn row_table(&self) -> Option<&RowTable> {
        None
    }

    /// For a module with rows: those of the last sample, in a stable order.
    fn rows(&self) -> &[(String, Vec<f64>)] {
        &[]
    }
}

/// What a module is opened with.
pub struct Setup<'a> {
    /// Files below the root (`/`, or that of a recorded tree).
    pub files: &'a mut Files,
    /// What was asked for on the command line.
    pub choices: &'a Choices,
}

/// Why a module cannot be opened: bad usage, told with what to do.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    pub what: String,
    pub why: String,
    pub hint: String,
}

/// A row in the table of modules.
pub struct Kind {
    /// Long option without dashes, as `--list` names it.
    pub name: &'static str,
    /// dstat's letter.
    pub short: Option<char>,
    /// One line.
    pub help: &'static str,
    pub open: Open,
}

pub type Open = fn(&mut Setup<'_>) -> Result<Box<dyn Module>, Refusal>;
