//! JSON lines: a header that names the columns, then one line of values an interval.
//!
//! `{"type":"header","protocol":1,"interval_ms":500,"columns":[{"name":"cpu.user",...},...]}`
//! `{"type":"sample","time":1700000000.25,"values":[1.5,null,...]}`: `time` is CLOCK_REALTIME in
//! seconds; a value is the mean over the interval that ends then, or the state at its end; null is
//! what this kernel or process does not tell. With rows the header has
//! `"rows":{"key":"vm","columns":[...]}` and a sample `"rows":[["name",1.5,...],...]`.

use std::io;
use std::path::Path;

use serde_json::{json, Value};

use super::figures::push_number;
use super::{Output, Sample, Sheet, Sink};
use crate::module::Column;

/// Raised whenever a reader of the old version would misread a line.
const PROTOCOL: u32 = 1;

pub struct Json {
    sink: Sink,
}

impl Json {
    pub fn open(path: &Path) -> io::Result<Json> {
        Ok(Json { sink: Sink::open(path)? })
    }
}

impl Output for Json {
    fn start(&mut self, sheet: &Sheet) -> io::Result<()> {
        let columns: Vec<Value> = sheet.recorded_columns().into_iter().map(described).collect();
        let mut header = json!({
            "type": "header",
            "protocol": PROTOCOL,
            "interval_ms": (sheet.delay * 1000.0).round() as u64,
            "columns": columns,
        });
        if let Some(table) = &sheet.row_table {
            let columns: Vec<Value> = table.columns.iter().map(described).collect();
            header["rows"] = json!({"key": table.key, "columns": columns});
        }
        self.sink.line.push_str(&header.to_string());
        self.sink.line.push('\n');
        self.sink.write()
    }

    fn sample(&mut self, sheet: &Sheet, sample: &Sample<'_>) -> io::Result<()> {
        let line = &mut self.sink.line;
        line.push_str(r#"{"type":"sample","time":"#);
        push_value(line, sample.now.time);
        line.push_str(r#","values":["#);
        push_values(line, sheet.recorded_values(sample.values));
        line.push(']');
        if sheet.row_table.is_some() {
            push_rows(line, sample.rows);
        }
        line.push_str("}\n");
        self.sink.write()
    }

    fn name(&self) -> String {
        self.sink.name()
    }
}

fn described(column: &Column) -> Value {
    json!({"name": column.name, "unit": column.unit.name()})
}

fn push_rows(line: &mut String, rows: &[(String, Vec<f64>)]) {
    line.push_str(r#","rows":["#);
    for (at, (id, values)) in rows.iter().enumerate() {
        line.push_str(if at == 0 { "[" } else { ",[" });
        line.push_str(&Value::from(id.as_str()).to_string());
        for &value in values {
            line.push(',');
            push_value(line, value);
        }
        line.push(']');
    }
    line.push(']');
}

fn push_values(line: &mut String, values: impl Iterator<Item = f64>) {
    for (at, value) in values.enumerate() {
        if at > 0 {
            line.push(',');
        }
        push_value(line, value);
    }
}

fn push_value(line: &mut String, value: f64) {
    if value.is_finite() {
        push_number(line, value);
    } else {
        line.push_str("null");
    }
}
