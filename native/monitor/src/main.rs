//! Host metrics as JSON lines: a header that names the columns, then one line of values an interval.
//!
//! `{"type":"header","protocol":1,"interval_ms":500,"disks":["sda"],"columns":[{"name":"cpu.user","unit":"percent"},...]}`
//! `{"type":"sample","time":1700000000.25,"values":[1.5,null,...]}`: `time` is CLOCK_REALTIME in seconds; a value is the mean
//! over the interval that ends then, or the state at its end; null is what this kernel or process does not tell.

mod columns;
mod disks;
mod pace;
mod snapshot;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;
use rustix::process::{set_parent_process_death_signal, Signal};
use serde::Serialize;

use crate::columns::{Column, COLUMNS};
use crate::pace::Pace;
use crate::snapshot::{Snapshot, Sources};

/// Raised whenever a reader of the old version would misread a line.
const PROTOCOL: u32 = 1;

/// Samples this host's CPU, disks, memory, pressure and the given processes; ends with its parent or its reader.
#[derive(Parser)]
#[command(name = "diskproof-monitor", version)]
struct Options {
    /// Milliseconds between samples
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    interval_ms: u64,
    /// A process to sum up in the process columns; may be given again
    #[arg(long = "pid", value_parser = clap::value_parser!(i32).range(1..))]
    pids: Vec<i32>,
    /// A disk or partition by its kernel name, instead of all physical disks; may be given again
    #[arg(long = "disk")]
    disks: Vec<String>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Header { protocol: u32, interval_ms: u64, disks: &'a [String], columns: &'a [Column] },
    Sample { time: f64, values: Vec<Option<f64>> },
}

fn main() -> ExitCode {
    match sample(Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has what it wanted.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("diskproof-monitor: {error}");
            ExitCode::FAILURE
        }
    }
}

fn sample(options: Options) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let disks = disks::choose(&options.disks)?;
    write_line(&Line::Header {
        protocol: PROTOCOL,
        interval_ms: options.interval_ms,
        disks: &disks,
        columns: COLUMNS,
    })?;
    let sources = Sources { disks, pids: options.pids };
    let mut before = Snapshot::take(&sources)?;
    let mut pace = Pace::new(options.interval_ms);
    while pace.wait_for_tick(&io::stdout())? {
        let after = Snapshot::take(&sources)?;
        write_line(&Line::Sample { time: after.time, values: columns::values(&before, &after) })?;
        before = after;
    }
    Ok(())
}

/// One write a line: a reader sees whole lines or nothing.
fn write_line(line: &Line<'_>) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    let mut stdout = io::stdout().lock();
    stdout.write_all(&text)?;
    stdout.flush()
}
