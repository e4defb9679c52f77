//! `diskproof-sync-drop -- COMMAND`: its syncs succeed at once and write nothing.
//! `docs/sync-drop.md` says how.

/// Lines on stderr. Unlike `eprintln!` it goes on when that is closed.
macro_rules! complain {
    ($($word:tt)*) => {{
        let text = format!($($word)*);
        let lines: String = text.lines().map(|line| format!("diskproof-sync-drop: {line}\n")).collect();
        let _ = std::io::Write::write_all(&mut std::io::stderr(), lines.as_bytes());
    }};
}

mod alone;
mod checking;
mod environment;
mod filtered;
mod judge;
mod nested;
mod options;
mod real_sync;
mod replies;
mod report;
mod requests;
mod rewrite;
mod rules;
mod scope;
mod server;
mod shared;

// The library has no standard library and cannot be linked with: it and we are made of the same
// files.
#[path = "../../syncdrop-preload/src/page.rs"]
mod page;
#[path = "../../syncdrop-preload/src/target.rs"]
mod target;

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use clap::Parser;
use diskproof_supervise::{block_signals, StartError};
use diskproof_words::{plain_reason, typed};

use crate::options::Options;
use crate::replies::CommandEnd;
use crate::report::{JsonFile, Report};
use crate::scope::Scope;
use crate::shared::{Shared, Start};

/// Why the command was not run: what, why, what to do; and the exit code.
pub struct Refusal {
    text: String,
    code: u8,
}

impl Refusal {
    /// Wrong usage.
    fn usage(text: impl Display) -> Refusal {
        Refusal { text: text.to_string(), code: 2 }
    }

    /// The host cannot do it.
    fn host(text: impl Display) -> Refusal {
        Refusal { text: text.to_string(), code: 3 }
    }
}

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Refusal {
        match error {
            StartError::NoCommand | StartError::NulByte => Refusal::usage(error),
            StartError::Forbidden(_) | StartError::System(..) => Refusal::host(error),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Refusal {
        Refusal::host(error)
    }
}

fn main() -> ExitCode {
    diskproof_session::take_over();
    let options = typed("sync drop", Options::try_parse());
    let ended = if options.check { checking::check(&options) } else { run(&options) };
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(refusal) => {
            complain!("{}", refusal.text);
            ExitCode::from(refusal.code)
        }
    }
}

fn run(options: &Options) -> Result<u8, Refusal> {
    if nested::is_covered(options) {
        return Ok(nested::become_command(options));
    }
    let scope = Scope::new(&options.only, options.toggle.as_deref()).map_err(Refusal::usage)?;
    let mut json = open_json(options)?;
    let real_sync = if options.quiet && json.is_none() { None } else { real_sync::measure() };
    let shared = Shared::new(&Start {
        after: options.after,
        direct: options.preload
            || scope.is_everywhere() && scope.toggle().is_none() && options.after == 0,
        strict: options.strict,
        alone: options.preload.then_some(scope.toggle()),
    })?;
    let signals = block_signals()?;
    if !options.quiet {
        complain!("syncs are dropped: a crash or power cut from now on loses or corrupts what the command writes");
    }
    let ended = if options.preload {
        alone::run(options, &shared, &signals)?
    } else {
        filtered::run(options, scope, &shared, &signals)?
    };
    Ok(tell_end(options, &shared, real_sync, json.as_mut(), ended))
}

fn open_json(options: &Options) -> Result<Option<JsonFile>, Refusal> {
    let path = options.json.as_deref();
    path.map(|path| {
        JsonFile::create(path)
            .map_err(|error| Refusal::usage(format!("--json {}: {error}", path.display())))
    })
    .transpose()
}

/// What the command gave back is given back, whatever becomes of our own words.
fn tell_end(
    options: &Options,
    shared: &Shared,
    real_sync: Option<std::time::Duration>,
    json: Option<&mut JsonFile>,
    ended: CommandEnd,
) -> u8 {
    let code = u8::try_from(ended.code).unwrap_or(255);
    if ended.errno != 0 {
        let name = options.command[0].to_string_lossy();
        let error = io::Error::from_raw_os_error(ended.errno);
        complain!("{name} cannot be run: {}", plain_reason(&error));
    }
    let report = Report::read(shared.page, real_sync, ended.running, code);
    if !options.quiet && ended.errno == 0 {
        complain!("{}", report.render());
    }
    if let Some(Err(error)) = json.map(|file| report.write_json(file)) {
        complain!("--json: {error}");
    }
    code
}
