//! `diskproof-ledger`: writes a ledger to a disk, an NBD export or a directory, and tells after a
//! crash what is lost.
//!
//! `docs/ledger.md` has the format, `docs/crash-writers.md` the use. Exit: 0 done, or all is there;
//! 1 lost (their number is printed); 2 what is there cannot be read; 3 the writer failed; 64 wrong
//! usage.

mod acks;
mod files;
mod judging;
mod nbd;
mod options;
mod place;
mod raw;
mod target;
mod writer;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use diskproof_nbd::Nbd;
use diskproof_wire::ledger::Geometry;
use serde_json::json;

use crate::acks::Acks;
use crate::files::{Files, MAX_FILES};
use crate::nbd::NbdLedger;
use crate::options::{Command, Options, Verify, Write, WriteTo};
use crate::place::TargetPlace;
use crate::raw::Raw;
use crate::target::Target;
use crate::writer::Plan;

const LOST: u8 = 1;
const UNREADABLE: u8 = 2;
const FAILED: u8 = 3;
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    let (result, otherwise) = match options.command {
        Command::Write(options) => (write_disk(&options), FAILED),
        Command::WriteFiles(options) => (write_files(&options), FAILED),
        Command::Verify(options) => (verify(&options, false), UNREADABLE),
        Command::VerifyFiles(options) => (verify(&options, true), UNREADABLE),
    };
    result.unwrap_or_else(|error| {
        eprintln!("diskproof-ledger: {error}");
        otherwise.into()
    })
}

fn write_disk(options: &WriteTo) -> io::Result<ExitCode> {
    match &options.target {
        TargetPlace::Path(path) => {
            let (file, size) = raw::open(path, !options.buffered, options.create)?;
            let geometry = options.geometry(size)?;
            write(&Raw::new(file, geometry), geometry, &options.how)
        }
        TargetPlace::Nbd { export, socket } => {
            let patience = Duration::from_secs(options.how.patience);
            let nbd = Nbd::connect(socket, export, patience)?;
            let geometry = options.geometry(nbd.export.size)?;
            let ledger = NbdLedger::new(nbd, geometry, options.how.durable)?;
            write(&ledger, geometry, &options.how)
        }
    }
}

fn write_files(options: &options::WriteFiles) -> io::Result<ExitCode> {
    if options.how.slots > MAX_FILES {
        return Err(io::Error::other(format!("a directory takes {MAX_FILES} slots at most")));
    }
    let geometry = options.how.geometry(0)?;
    write(&Files::open(&options.folder)?, geometry, &options.how)
}

/// Writes, and says as JSON what was done.
fn write(target: &dyn Target, geometry: Geometry, how: &Write) -> io::Result<ExitCode> {
    let mut acks = Acks::open(&how.acks)?;
    let plan = Plan {
        geometry,
        depth: how.depth.into(),
        flush_every: how.flush_every,
        durable: how.durable,
        records: how.records.unwrap_or(u64::MAX - 1),
        seconds: how.seconds,
        rate: how.rate,
    };
    let written = writer::write(target, plan, &mut acks)?;
    let summary = json!({
        "id": format!("{:016x}", geometry.id),
        "records": written.records,
        "acknowledged": written.acknowledged,
        "flushes": written.flushes,
        "seconds": written.elapsed.as_secs_f64(),
    });
    println!("{summary}");
    written.error.map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Reads, and says what is lost: a number, or all of it as JSON.
fn verify(options: &Verify, as_files: bool) -> io::Result<ExitCode> {
    let report = judging::judge(options, as_files)?;
    if options.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        println!("{}", report.lost);
    }
    Ok(if report.lost > 0 { LOST.into() } else { ExitCode::SUCCESS })
}
