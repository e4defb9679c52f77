//! Aligned columns in the manner of dstat: titles, labels, then a line a sample.

use std::env;
use std::io::{self, IsTerminal};
use std::path::Path;

use rustix::termios::tcgetwinsize;

use super::cell::{self, Shade};
use super::{local_time, say, Output, Sample, Sheet, Sink};
use crate::command_line::Look;
use crate::module::{Column, Group};

pub struct Terminal {
    sink: Sink,
    look: Look,
    colour: bool,
    /// Columns and lines; None when it is no terminal: nothing is cut off or repeated then.
    size: Option<(usize, usize)>,
    /// Groups that fit.
    fitting: usize,
    lines_since_header: usize,
    header_is_due: bool,
    cell: String,
}

impl Terminal {
    pub fn open(look: Look) -> io::Result<Terminal> {
        let size = find_size();
        let plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || env::var_os("TERM").is_some_and(|value| value == "dumb");
        Ok(Terminal {
            sink: Sink::open(Path::new("-"))?,
            look,
            colour: size.is_some() && !look.no_colour && !plain,
            size,
            fitting: 0,
            lines_since_header: 0,
            header_is_due: true,
            cell: String::new(),
        })
    }

    /// What stands at the left of each line: the time, if wanted.
    fn clock_width(&self) -> usize {
        (if self.look.clock { 15 } else { 0 }) + (if self.look.epoch { 15 } else { 0 })
    }

    /// As many groups as fit next to each other, at least one.
    fn fit(&self, sheet: &Sheet) -> usize {
        let Some((columns, _)) = self.size else { return sheet.groups.len() };
        let mut used = self.clock_width();
        let fits = sheet.groups.iter().take_while(|group| {
            used += group_width(group, self.look.float) + 1;
            // The last bar may be cut off.
            used <= columns + 1
        });
        fits.count().max(1).min(sheet.groups.len())
    }

    fn push_header(&mut self, sheet: &Sheet) {
        self.fitting = self.fit(sheet);
        let cut = self.fitting < sheet.groups.len();
        self.push_titles(sheet);
        self.sink.line.push_str(if cut { ">\n" } else { "\n" });
        self.push_labels(sheet);
        self.sink.line.push_str(if cut { ">\n" } else { "\n" });
        if let Some(table) = &sheet.row_table {
            let widths = table.columns.iter().map(|column| column_width(column, self.look.float));
            let labels = table.columns.iter().map(|column| column.label.as_str());
            let labels: Vec<String> =
                labels.zip(widths).map(|(label, width)| format!("{label:>width$}")).collect();
            self.paint(Shade::Low, &format!("  {:<20} {}", table.key, labels.join(" ")));
            self.sink.line.push('\n');
        }
        (self.lines_since_header, self.header_is_due) = (0, false);
    }

    fn push_titles(&mut self, sheet: &Sheet) {
        let mut titles = Vec::new();
        if self.look.clock {
            titles.push(filled("system", 14));
        }
        if self.look.epoch {
            titles.push(filled("epoch", 14));
        }
        for group in &sheet.groups[..self.fitting] {
            titles.push(filled(&group.title, group_width(group, self.look.float)));
        }
        self.paint(Shade::Low, &titles.join(" "));
    }

    fn push_labels(&mut self, sheet: &Sheet) {
        let mut labels = Vec::new();
        if self.look.clock {
            labels.push(format!("{:^14}", "time"));
        }
        if self.look.epoch {
            labels.push(format!("{:^14}", "epoch"));
        }
        for group in &sheet.groups[..self.fitting] {
            let of = |column: &Column| {
                let width = column_width(column, self.look.float);
                format!("{:>width$}", column.label)
            };
            let text = group.columns.iter().map(of).collect::<Vec<_>>().join(" ");
            labels.push(format!("{text:<width$}", width = group_width(group, self.look.float)));
        }
        self.paint(Shade::Low, &labels.join("|"));
    }

    fn push_line(&mut self, sheet: &Sheet, sample: &Sample<'_>) {
        let mut parts = 0;
        // Both clocks show one moment: 29.9996 s are 30.000 in the one, so no 29 in the other.
        let moment = local_time::to_millisecond(sample.now.time);
        if self.look.clock {
            let text = format!("{:^14}", local_time::day_and_time(moment));
            self.paint(Shade::Low, &text);
            parts += 1;
        }
        if self.look.epoch {
            self.bar(parts);
            let text = format!("{moment:>14.3}");
            self.paint(Shade::Low, &text);
            parts += 1;
        }
        let mut values = sample.values;
        for group in &sheet.groups[..self.fitting] {
            let (own, rest) = values.split_at(group.columns.len());
            values = rest;
            self.bar(parts);
            let start = self.push_cells(&group.columns, own);
            let missing = group_width(group, self.look.float).saturating_sub(start);
            self.sink.line.extend(std::iter::repeat_n(' ', missing));
            parts += 1;
        }
        self.sink.line.push('\n');
    }

    fn bar(&mut self, parts: usize) {
        if parts > 0 {
            self.paint(Shade::Faint, "|");
        }
    }

    /// The letters that were written.
    fn push_cells(&mut self, columns: &[Column], values: &[f64]) -> usize {
        let mut written = 0;
        for (at, (column, &value)) in columns.iter().zip(values).enumerate() {
            let width = column_width(column, self.look.float);
            let mut text = std::mem::take(&mut self.cell);
            text.clear();
            let shade = cell::push(&mut text, value, column.unit, self.look.float);
            let blanks = width.saturating_sub(text.len()) + usize::from(at > 0);
            self.sink.line.extend(std::iter::repeat_n(' ', blanks));
            self.paint(shade, &text);
            written += blanks + text.len();
            self.cell = text;
        }
        written
    }

    fn push_rows(&mut self, sheet: &Sheet, sample: &Sample<'_>) {
        let Some(table) = &sheet.row_table else { return };
        for (id, values) in sample.rows {
            // What another program chose as its name does not reach the terminal as control
            // characters.
            let id: String = id.chars().filter(|letter| !letter.is_control()).take(20).collect();
            self.paint(Shade::Middle, &format!("  {id:<20} "));
            self.push_cells(&table.columns, values);
            self.sink.line.push('\n');
        }
    }

    fn paint(&mut self, shade: Shade, text: &str) {
        if !self.colour {
            self.sink.line.push_str(text);
            return;
        }
        let code = match shade {
            Shade::Faint => "90",
            Shade::Low => "36",
            Shade::Middle => "32",
            Shade::High => "33",
            Shade::Highest => "31",
        };
        for part in ["\x1b[", code, "m", text, "\x1b[0m"] {
            self.sink.line.push_str(part);
        }
    }
}

impl Output for Terminal {
    fn start(&mut self, sheet: &Sheet) -> io::Result<()> {
        let fitting = self.fit(sheet);
        if fitting < sheet.groups.len() {
            let titles: Vec<&str> =
                sheet.groups[fitting..].iter().map(|group| group.title.as_str()).collect();
            let titles = titles.join(", ");
            say(&format!("not shown, the terminal is too narrow: {titles}; --csv has all"));
        }
        Ok(())
    }

    fn sample(&mut self, sheet: &Sheet, sample: &Sample<'_>) -> io::Result<()> {
        let lines = 1 + sample.rows.len();
        let scrolled_off =
            self.size.is_some_and(|(_, rows)| self.lines_since_header + lines + 2 > rows.max(8));
        if self.header_is_due || (scrolled_off && !self.look.no_headers) {
            self.push_header(sheet);
        }
        self.push_line(sheet, sample);
        self.push_rows(sheet, sample);
        self.lines_since_header += lines;
        self.sink.write()
    }

    fn resize(&mut self) {
        self.size = self.size.and_then(|_| find_size());
        self.header_is_due = true;
    }

    fn name(&self) -> String {
        self.sink.name()
    }
}

fn find_size() -> Option<(usize, usize)> {
    let stdout = io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = tcgetwinsize(&stdout).ok();
    // A terminal that does not know its size (a serial line) says 0.
    let known = |number: u16, or: usize| if number == 0 { or } else { usize::from(number) };
    Some(size.map_or((80, 24), |size| (known(size.ws_col, 80), known(size.ws_row, 24))))
}

fn column_width(column: &Column, float: bool) -> usize {
    cell::width(column.unit, float).max(column.label.chars().count())
}

fn group_width(group: &Group, float: bool) -> usize {
    let columns: usize =
        group.columns.iter().map(|column| column_width(column, float) + 1).sum::<usize>();
    columns.saturating_sub(1)
}

/// A title in the middle of dashes, as wide as its columns.
fn filled(title: &str, width: usize) -> String {
    let title: String = title.chars().take(width).collect::<String>().replace(' ', "-");
    format!("{title:-^width$}")
}
