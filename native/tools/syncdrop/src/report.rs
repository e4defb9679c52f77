//! What is said at the end: counts by kind, what was not dropped, and the time saved.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde_json::{json, Map, Value};

use crate::page::{Left, Page, KINDS};

/// In the order of the counters.
const NAMES: [&str; KINDS] = [
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "msync",
    "sync_file_range",
    "open with O_SYNC",
    "write with RWF_SYNC",
    "io_submit with a sync",
    "chattr +S",
];

pub struct Report {
    dropped: Vec<(&'static str, u64)>,
    passed: u64,
    rings: u64,
    unreachable: u64,
    refused: u64,
    /// Time of one real sync here, if it was measured.
    pub real_sync: Option<Duration>,
    pub still_running: u32,
    pub code: u8,
}

impl Report {
    pub fn read(page: &Page, real_sync: Option<Duration>, still_running: u32, code: u8) -> Report {
        let counts = page.dropped.iter().map(|count| count.load(Relaxed));
        let left = |kind: Left| page.left[kind as usize].load(Relaxed);
        Report {
            dropped: NAMES.into_iter().zip(counts).filter(|(_, count)| *count > 0).collect(),
            passed: page.passed.load(Relaxed),
            rings: left(Left::Ring),
            unreachable: left(Left::Unreachable),
            refused: left(Left::Refused),
            real_sync,
            still_running,
            code,
        }
    }

    fn total(&self) -> u64 {
        self.dropped.iter().map(|(_, count)| count).sum()
    }

    /// Seconds: every dropped sync at the price of the one that was measured.
    fn saved(&self) -> Option<f64> {
        self.real_sync.map(|one| one.as_secs_f64() * self.total() as f64)
    }

    /// For people; one line, and one more for each thing that went another way.
    pub fn render(&self) -> String {
        let mut kinds: Vec<_> = self.dropped.iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let kinds: Vec<_> =
            kinds.iter().map(|(name, count)| format!("{name} {}", group(*count))).collect();
        let mut lines = vec![match self.total() {
            0 => "no sync was dropped".to_string(),
            total => format!("{} syncs dropped ({})", group(total), kinds.join(", ")),
        }];
        if let (Some(saved), Some(one), true) = (self.saved(), self.real_sync, self.total() > 0) {
            lines[0] += &format!(
                "; about {} saved if each cost {:.2} ms, as one fdatasync of 4 KiB did here before",
                render_seconds(saved),
                one.as_secs_f64() * 1e3
            );
        }
        let also = [
            (self.passed, "let through as asked"),
            (self.rings, "io_uring set up: its syncs are real (--strict hides io_uring)"),
            (self.unreachable, "not dropped: the caller could not be looked into"),
            (self.refused, "refused: the caller could not be looked into"),
            (
                self.still_running.into(),
                "processes still run; their syncs are dropped until they end",
            ),
        ];
        for (count, what) in also {
            if count > 0 {
                lines.push(format!("{} {what}", group(count)));
            }
        }
        lines.join("\n")
    }

    /// One line; the fields stay.
    pub fn to_json(&self) -> Value {
        let key = |name: &str| name.replace([' ', '+'], "_").to_lowercase();
        let dropped: Map<_, _> =
            self.dropped.iter().map(|(name, count)| (key(name), json!(count))).collect();
        json!({
            "dropped": dropped,
            "dropped_total": self.total(),
            "passed": self.passed,
            "not_dropped": self.unreachable,
            "refused": self.refused,
            "io_uring_setups": self.rings,
            "seconds_per_sync": self.real_sync.map(|one| one.as_secs_f64()),
            "seconds_saved_estimate": self.saved(),
            "processes_still_running": self.still_running,
            "exit_code": self.code,
        })
    }

    /// # Errors
    /// The file cannot be written.
    pub fn write_json(&self, to: &mut JsonFile) -> io::Result<()> {
        to.write_line(&self.to_json())
    }
}

/// Opened before the command runs: a place that cannot be written is told in time.
pub enum JsonFile {
    Stdout,
    File(File),
}

impl JsonFile {
    /// # Errors
    /// It cannot be made.
    pub fn create(path: &Path) -> io::Result<JsonFile> {
        Ok(if path == Path::new("-") {
            JsonFile::Stdout
        } else {
            JsonFile::File(File::create(path)?)
        })
    }

    /// # Errors
    /// It cannot be written.
    pub fn write_line(&mut self, value: &Value) -> io::Result<()> {
        let line = format!("{value}\n");
        match self {
            JsonFile::Stdout => io::stdout().lock().write_all(line.as_bytes()),
            JsonFile::File(file) => file.write_all(line.as_bytes()),
        }
    }
}

fn render_seconds(seconds: f64) -> String {
    match seconds {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 100.0 => format!("{s:.1} s"),
        s => format!("{} s", group(s as u64)),
    }
}

/// 1,204
fn group(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        Report {
            dropped: vec![("fsync", 1200), ("chattr +S", 4)],
            passed: 0,
            rings: 1,
            unreachable: 0,
            refused: 0,
            real_sync: Some(Duration::from_millis(30)),
            still_running: 0,
            code: 3,
        }
    }

    #[test]
    fn people_get_counts_time_and_what_was_not_dropped() {
        assert_eq!(
            report().render(),
            "1,204 syncs dropped (fsync 1,200, chattr +S 4); about 36.1 s saved if each cost 30.00 ms, as one \
             fdatasync of 4 KiB did here before\n1 io_uring set up: its syncs are real (--strict hides io_uring)"
        );
        let none = Report { dropped: vec![], rings: 0, ..report() };
        assert_eq!(none.render(), "no sync was dropped");
    }

    #[test]
    fn json_has_the_same_numbers() {
        let value = report().to_json();
        assert_eq!(value["dropped"], json!({"fsync": 1200, "chattr__s": 4}));
        assert_eq!((&value["dropped_total"], &value["exit_code"]), (&json!(1204), &json!(3)));
        assert_eq!(value["seconds_per_sync"], json!(0.03));
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(group), ["0", "999", "1,000", "1,234,567"]);
    }
}
