//! `diskproof-sync-ways-dynamic`: a probe that a preloaded library reaches. For the check only.

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == diskproof_sync_ways::PROBE => {
            diskproof_sync_ways::run_probe(rest)
        }
        _ => {
            eprintln!("This is a part of diskproof-sync-ways, which starts it.");
            ExitCode::from(2)
        }
    }
}
