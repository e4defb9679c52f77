//! The text for people, in 80 columns.

use std::fmt::Write;

use crate::advice::find_advice;
use crate::quantities::{
    render_bytes, render_count, render_end_of, render_percent, render_safe, render_start_of,
    render_time,
};
use crate::session::Session;
use crate::tally::{Latencies, Tally};

const WIDTH: usize = 80;
const BAR: usize = 40;
const MOST_ROWS: usize = 12;
const MOST_HISTOGRAMS: usize = 4;
const MOST_WAITS: usize = 5;

pub fn render_report(session: &Session, top: usize) -> String {
    let parts = [
        render_header(session),
        render_calls(session),
        render_histograms(&session.tally, MOST_HISTOGRAMS),
        render_files(session, top),
        render_written(&session.tally),
        render_waits(&session.tally),
        render_advice(session),
        render_limits(session),
    ];
    let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

fn render_header(session: &Session) -> String {
    let sums = &session.tally.sums;
    let busy = session.tally.busy.total();
    let errors = match sums.errors {
        0 => String::new(),
        errors => format!(", {} failed", render_count(errors)),
    };
    format!(
        "sync trace by {}: {} calls took {}{errors}\nof {} wall time, {} had a call in flight: {}\n",
        session.mechanism.name(),
        render_count(sums.calls),
        render_time(sums.total),
        render_time(session.wall()),
        render_time(busy),
        render_percent(busy, session.wall()),
    )
}

/// Percentiles by process name and call; the share is of the wall time, summed over threads.
fn render_calls(session: &Session) -> String {
    let mut rows: Vec<_> = session.tally.latencies.iter().collect();
    rows.sort_by_key(|(_, latencies)| std::cmp::Reverse(latencies.sums.total));
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "{:<15} {:<15}{:>8}{:>7}{:>7}{:>7}{:>7}{:>7}{:>6}\n",
        "process", "call", "calls", "mean", "p50", "p99", "p99.9", "max", "share"
    );
    for ((process, call), latencies) in rows.iter().take(MOST_ROWS) {
        let sums = &latencies.sums;
        let _ = write!(text, "{:<15} {:<15}", render_start_of(process, 15), call.name());
        let _ = write!(text, "{:>8}", render_short_count(sums.calls));
        for time in [
            sums.mean(),
            latencies.percentile(50.0),
            latencies.percentile(99.0),
            latencies.percentile(99.9),
            sums.most,
        ] {
            let _ = write!(text, "{:>7}", render_time(time).replace(' ', ""));
        }
        let share = render_percent(sums.total, session.wall()).replace(' ', "");
        let _ = writeln!(text, "{share:>6}");
    }
    text + &render_left_out(rows.len(), MOST_ROWS, "rows")
}

/// A count in at most seven characters.
fn render_short_count(count: u64) -> String {
    if count < 1_000_000 {
        render_count(count)
    } else {
        format!("{:.4}", count as f64 / 1e6).chars().take(5).collect::<String>() + "M"
    }
}

fn render_left_out(all: usize, shown: usize, what: &str) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        more => format!("({} more {what}: --json has all)\n", render_count(more as u64)),
    }
}

/// The histograms of the dearest calls, in powers of two like DTrace's quantize.
pub fn render_histograms(tally: &Tally, most: usize) -> String {
    let mut rows: Vec<_> = tally.latencies.iter().collect();
    rows.sort_by_key(|(_, latencies)| std::cmp::Reverse(latencies.sums.total));
    let texts = rows.iter().take(most).map(|((process, call), latencies)| {
        let process = render_safe(process);
        format!("{process} {}\n{}", call.name(), render_histogram(latencies))
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn render_histogram(latencies: &Latencies) -> String {
    let used = |count: &u64| *count > 0;
    let (Some(first), Some(last)) =
        (latencies.powers.iter().position(used), latencies.powers.iter().rposition(used))
    else {
        return String::new();
    };
    let mut text = format!("{:>9}  {:-^BAR$} count\n", "at least", " distribution ");
    for power in first.saturating_sub(1)..=(last + 1).min(63) {
        let count = latencies.powers[power];
        let length = (count as u128 * BAR as u128).div_ceil(latencies.sums.calls as u128) as usize;
        let bar = "@".repeat(length.min(BAR));
        let from = render_time(1 << power);
        let _ = writeln!(text, "{from:>9} |{bar:<BAR$} {}", render_count(count));
    }
    text
}

fn render_files(session: &Session, top: usize) -> String {
    let files = session.tally.files();
    if files.is_empty() || top == 0 {
        return String::new();
    }
    let head = "files that cost most";
    let mut text = format!("{head:<44}{:>9}{:>9}{:>9}{:>8}\n", "calls", "mean", "max", "share");
    for (file, sums) in files.iter().take(top) {
        let _ = writeln!(
            text,
            "{:<44}{:>9}{:>9}{:>9}{:>8}",
            render_end_of(file, 43),
            render_short_count(sums.calls),
            render_time(sums.mean()),
            render_time(sums.most),
            render_percent(sums.total, session.tally.sums.total)
        );
    }
    text + &render_left_out(files.len(), top, "files")
}

fn render_written(tally: &Tally) -> String {
    let mut text = String::new();
    let writers = tally.writers_by_name();
    for (process, (syncs, written, empty)) in writers.iter().take(MOST_ROWS) {
        let Some(written) = written else { continue };
        let between = *written as f64 / *syncs as f64;
        let _ = writeln!(
            text,
            "{:<15} {:>9} syncs, {} between two, {} with nothing new",
            render_start_of(process, 15),
            render_short_count(*syncs),
            render_bytes(between),
            render_count(*empty)
        );
    }
    match text.is_empty() {
        true => text,
        false => format!("written by write calls between syncs\n{text}"),
    }
}

fn render_waits(tally: &Tally) -> String {
    let pairs = tally.waits.sorted();
    if pairs.is_empty() {
        return String::new();
    }
    let mut text = String::from("who waited while another one synced the same file\n");
    for (pair, (calls, together)) in pairs.iter().take(MOST_WAITS) {
        let who = format!(
            "{}[{}] beside {}[{}]",
            render_start_of(&pair.waiter.1, 15),
            pair.waiter.0,
            render_start_of(&pair.before.1, 15),
            pair.before.0
        );
        let _ = writeln!(
            text,
            "{:<46}{:>9} times{:>9}  {}",
            render_start_of(&who, 46),
            render_short_count(*calls),
            render_time(*together),
            render_end_of(&pair.file, 8)
        );
    }
    text
}

fn render_advice(session: &Session) -> String {
    let lines = find_advice(&session.tally, session.wall());
    lines.iter().map(|line| wrap(&render_safe(line), "advice: ")).collect()
}

fn render_limits(session: &Session) -> String {
    let not_seen =
        session.mechanism.not_seen(session.unreached.as_deref(), session.writes).join("; ");
    let mut text = wrap(&not_seen, "not seen: ");
    if session.tally.late > 0 {
        let late = render_count(session.tally.late);
        let line = format!("{late} calls had returned before their file was looked up");
        text += &wrap(&line, "note: ");
    }
    if session.lost > 0 {
        let lost = render_count(session.lost);
        text += &wrap(&format!("{lost} records came too fast and are missing"), "note: ");
    }
    text
}

/// Lines of at most 80 characters, where words allow it.
fn wrap(text: &str, head: &str) -> String {
    let mut lines = String::new();
    let mut line = head.trim_end().to_owned();
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines += &line;
            lines.push('\n');
            line = " ".repeat(head.len() - 1);
        }
        line.push(' ');
        line += word;
    }
    lines + &line + "\n"
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
