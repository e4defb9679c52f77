//! CSV: one header row with unique names and units, then one row a sample; what is not known is
//! empty.
//!
//! `time [s],cpu.user [percent],...`. With rows (VMs) their columns follow, and the line stands
//! once for each row, or once with the row's columns empty when there is none.

use std::io;
use std::path::Path;

use super::figures::push_number;
use super::{Output, Sample, Sheet, Sink};
use crate::module::Column;

pub struct Csv {
    sink: Sink,
}

impl Csv {
    pub fn open(path: &Path) -> io::Result<Csv> {
        Ok(Csv { sink: Sink::open(path)? })
    }

    fn push_values(&mut self, values: impl Iterator<Item = f64>) {
        for value in values {
            self.sink.line.push(',');
            push_number(&mut self.sink.line, value);
        }
    }
}

impl Output for Csv {
    fn start(&mut self, sheet: &Sheet) -> io::Result<()> {
        let line = &mut self.sink.line;
        line.push_str("time [s]");
        for column in sheet.recorded_columns() {
            push_title(line, column);
        }
        if let Some(table) = &sheet.row_table {
            line.push(',');
            push_field(line, table.key);
            for column in &table.columns {
                push_title(line, column);
            }
        }
        line.push('\n');
        self.sink.write()
    }

    fn sample(&mut self, sheet: &Sheet, sample: &Sample<'_>) -> io::Result<()> {
        let line_start = |csv: &mut Csv| {
            push_number(&mut csv.sink.line, sample.now.time);
            csv.push_values(sheet.recorded_values(sample.values));
        };
        for (id, values) in sample.rows {
            line_start(self);
            self.sink.line.push(',');
            push_field(&mut self.sink.line, id);
            self.push_values(values.iter().copied());
            self.sink.line.push('\n');
        }
        if sample.rows.is_empty() {
            line_start(self);
            let missing = sheet.row_table.as_ref().map_or(0, |table| table.columns.len() + 1);
            self.sink.line.extend(std::iter::repeat_n(',', missing));
            self.sink.line.push('\n');
        }
        self.sink.write()
    }

    fn name(&self) -> String {
        self.sink.name()
    }
}

fn push_title(line: &mut String, column: &Column) {
    line.push(',');
    push_field(line, &format!("{} [{}]", column.name, column.unit.name()));
}

/// RFC 4180: what could be taken for structure is put into quotes.
fn push_field(line: &mut String, text: &str) {
    if text.contains([',', '"', '\n', '\r']) {
        line.push('"');
        line.push_str(&text.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(text);
    }
}
