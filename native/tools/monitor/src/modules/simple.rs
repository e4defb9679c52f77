//! Modules whose columns are each one number of one file: a state now, or the rate of a counter.

use crate::counter::{change, ratio};
use crate::files::{FileId, Files};
use crate::module::{Column, Group, Module, Moment, Refusal, Setup, Unit};
use crate::scan;

/// How a column comes from the files.
pub struct Field {
    pub name: &'static str,
    pub label: &'static str,
    pub unit: Unit,
    pub file: &'static str,
    pub read: fn(&[u8]) -> Option<f64>,
    pub is_counter: bool,
}

/// A state: what is read is shown.
pub const fn now(
    name: &'static str,
    label: &'static str,
    unit: Unit,
    file: &'static str,
    read: fn(&[u8]) -> Option<f64>,
) -> Field {
    Field { name, label, unit, file, read, is_counter: false }
}

/// A counter, of which the change in a second is shown.
pub const fn rate(
    name: &'static str,
    label: &'static str,
    unit: Unit,
    file: &'static str,
    read: fn(&[u8]) -> Option<f64>,
) -> Field {
    Field { name, label, unit, file, read, is_counter: true }
}

struct Simple {
    fields: &'static [Field],
    sources: Vec<(FileId, Option<f64>)>,
    groups: Vec<Group>,
}

pub fn open(
    setup: &mut Setup<'_>,
    title: &str,
    fields: &'static [Field],
) -> Result<Box<dyn Module>, Refusal> {
    let sources = fields.iter().map(|field| (setup.files.share(field.file), None)).collect();
    let columns =
        fields.iter().map(|field| Column::new(field.name, field.label, field.unit)).collect();
    Ok(Box::new(Simple { fields, sources, groups: vec![Group::new(title, columns)] }))
}

impl Module for Simple {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn sample(&mut self, files: &Files, now: Moment, row: &mut Vec<f64>) {
        for (field, (file, last)) in self.fields.iter().zip(&mut self.sources) {
            let read = (field.read)(files.text(*file));
            row.push(match (field.is_counter, *last, read) {
                (false, _, Some(state)) => state,
                (true, Some(before), Some(after)) => ratio((after - before).max(0.0), now.span),
                _ => f64::NAN,
            });
            *last = read;
        }
    }
}

/// The number after a key, as it is.
pub fn value(text: &[u8], key: &[u8]) -> Option<f64> {
    scan::value_of(text, key).map(|number| number as f64)
}

/// The `at`th word of the text as a decimal fraction.
pub fn word(text: &[u8], at: usize) -> Option<f64> {
    scan::words(text).nth(at).and_then(scan::decimal)
}

/// Percent of the time between two counts of microseconds.
pub fn share(before: Option<u64>, after: Option<u64>, span: f64) -> f64 {
    match (before, after) {
        (Some(before), Some(after)) => crate::counter::percent(change(before, after), span * 1e6),
        _ => f64::NAN,
    }
}
