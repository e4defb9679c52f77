//! `diskproof-sync-ways`: which ways to force data to disk does a dropper of syncs stop?

#![forbid(unsafe_code)]

use clap::Parser;
use diskproof_sync_ways::{check, render_json, render_table, run_probe, Probes, Setup, PROBE};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// Tries the 23 ways a program can force its data to disk, and 15 errors.
///
/// Each way is tried without dropping, where it must reach the disk, and then under DROPPER. A
/// look at the page cache tells what reached the disk. Without DROPPER: what syncs here.
#[derive(Parser)]
#[command(name = "diskproof-sync-ways", version, after_help = HELP)]
struct Options {
    /// Folder on the file system to try; memory file systems prove nothing
    #[arg(long, default_value = "/var/tmp")]
    dir: PathBuf,
    /// Print one JSON object instead of the tables
    #[arg(long)]
    json: bool,
    /// Command that starts another command under dropping
    #[arg(last = true, value_name = "DROPPER")]
    dropper: Vec<OsString>,
}

const HELP: &str = "\
Examples:
  diskproof-sync-ways -- eatmydata
  diskproof-sync-ways --dir /srv --json -- diskproof-sync-drop --

Exit status: 0 all ways are stopped and all errors are the kernel's own (or no DROPPER was named),
1 not so, 2 wrong usage, 3 nothing can be proved here.";

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if let Some((first, rest)) = arguments.split_first() {
        if first == PROBE {
            return run_probe(rest);
        }
    }
    match Options::try_parse() {
        Ok(options) => run(&options),
        Err(error) => {
            let _ = error.print();
            if error.use_stderr() {
                ExitCode::from(2)
            } else {
                ExitCode::SUCCESS
            }
        }
    }
}

fn run(options: &Options) -> ExitCode {
    let checked = Probes::find().and_then(|probes| {
        check(&Setup {
            prefix: &options.dropper,
            folder: &options.dir,
            promised: &|_| !options.dropper.is_empty(),
            probes: &probes,
        })
    });
    let report = match checked {
        Ok(report) => report,
        Err(error) => {
            eprintln!("diskproof-sync-ways: {error}");
            return ExitCode::from(3);
        }
    };
    let text = match options.json {
        true => format!("{}\n", render_json(&report)),
        false => render_table(&report),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::from(report.exit_code()),
        Err(error) => {
            eprintln!("diskproof-sync-ways: the result cannot be written: {error}");
            ExitCode::from(3)
        }
    }
}
