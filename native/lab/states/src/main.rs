//! `diskproof-states explore [--shard K/N] [REQUEST]`: a request as JSON (a file or standard
//! input), findings as JSON lines. `diskproof-states causes [REQUEST]`: every cause of a loss, its
//! cure, and the flushes that no promise needs. `diskproof-states show LOG BASE STATE --to DIR`:
//! makes one state. `diskproof-states operations LOG BASE [STATE]`: what each record did, by names.
//! `diskproof-states unsynced LOG`: what a power cut at its end would take, by file.

#![forbid(unsafe_code)]

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use diskproof_rights::{host_memory, keep, limit};
use diskproof_states::causes::causes;
use diskproof_states::choice::StateId;
use diskproof_states::failure::{During, Failure, Result};
use diskproof_states::report::{say, Line};
use diskproof_states::request::{Request, MAX_REQUEST};
use diskproof_states::rights;
use diskproof_states::shard::Shard;
use diskproof_states::show::{list, show};
use diskproof_states::unsynced::unsynced;

#[derive(Parser)]
#[command(
    version,
    about = "The states a crash could have left, built from a crash log and checked"
)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build and check states; the request is one JSON object.
    Explore {
        /// A file; standard input without it.
        request: Option<PathBuf>,
        /// Check this part of the states only, the others elsewhere: 2/5 is the second of five.
        #[arg(long, value_name = "K/N")]
        shard: Option<Shard>,
    },
    /// Look for every cause of a loss; the request is that of `explore`.
    Causes {
        /// A file; standard input without it.
        request: Option<PathBuf>,
    },
    /// Make one state in a new directory.
    Show {
        log: PathBuf,
        /// The copy of the recorded directory from before.
        base: PathBuf,
        /// As an exploration names it.
        state: StateId,
        #[arg(long, value_name = "DIR")]
        to: PathBuf,
    },
    /// Tell what each record did by operation and path, as JSON lines.
    Operations {
        log: PathBuf,
        base: PathBuf,
        /// Only what this state knows, and what is missing in it.
        state: Option<StateId>,
    },
    /// Tell what is not durable at a log's end, by file, as JSON.
    Unsynced {
        log: PathBuf,
        /// It is being written: times are until now.
        #[arg(long)]
        live: bool,
    },
}

/// Every file of the base is open.
fn raise_open_files() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn main() -> ExitCode {
    raise_open_files();
    let limited = limit(host_memory() / 4 * 3).during("limiting memory");
    let done = limited.and_then(|()| match Arguments::parse().verb {
        Verb::Explore { request, shard } => explore(request, shard),
        Verb::Causes { request } => find_causes(request),
        Verb::Show { log, base, state, to } => keep(rights::TO_READ)
            .during("giving up rights")
            .and_then(|()| show(&log, &base, &state, &to)),
        Verb::Operations { log, base, state } => keep(rights::TO_READ)
            .during("giving up rights")
            .and_then(|()| list(&log, &base, state.as_ref())),
        Verb::Unsynced { log, live } => keep(rights::TO_READ)
            .during("giving up rights")
            .and_then(|()| unsynced(&log, live))
            .map(|found| say(&Line::Unsynced(found))),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { what, why }) => {
            say(&Line::Error { what: &what, why: &why });
            eprintln!("diskproof-states: {what}: {why}");
            ExitCode::from(2)
        }
    }
}

fn explore(request: Option<PathBuf>, shard: Option<Shard>) -> Result<()> {
    let request = Request::parse(&read_request(request)?)?;
    if !rights::is_mounted_for_us(&request) {
        keep(rights::to_begin(&request)).during("giving up rights")?;
    }
    let request = if shard.is_some() { request.with_shard(shard)? } else { request };
    say(&Line::Summary(Box::new(diskproof_states::run::explore(&request)?)));
    Ok(())
}

fn find_causes(request: Option<PathBuf>) -> Result<()> {
    let request = Request::parse(&read_request(request)?)?;
    if request.shard.is_some() || request.stop_at_loss {
        return Err(Failure::new("reading the request", "causes are looked for as a whole"));
    }
    keep(rights::to_begin(&request)).during("giving up rights")?;
    causes(&request)
}

fn read_request(file: Option<PathBuf>) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    let source: Box<dyn Read> = match file {
        Some(file) => {
            let named = format!("opening {}", file.display());
            Box::new(std::fs::File::open(file).during(named)?)
        }
        None => Box::new(std::io::stdin()),
    };
    source.take(MAX_REQUEST + 1).read_to_end(&mut text).during("reading the request")?;
    if text.len() as u64 > MAX_REQUEST {
        return Err(Failure::new("reading the request", "it is longer than 1 MiB"));
    }
    Ok(text)
}
