//! How long a program waits for its data to reach the disk.

mod advice;
mod attach;
mod busy;
mod callers;
mod clock;
mod event;
mod folded;
mod json;
mod launch;
mod live;
mod message;
mod options;
mod paths;
mod perf;
mod places;
mod preload;
mod ptrace;
mod quantities;
mod refusal;
mod report;
#[cfg(test)]
mod samples;
mod session;
mod tally;
mod waits;

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc;

use clap::Parser;
use diskproof_words::typed;

use crate::launch::Trace;
use crate::live::Live;
use crate::options::Options;
use crate::refusal::{Refusal, USAGE};
use crate::session::{Screen, Session};
use crate::tally::Tally;

fn main() -> ExitCode {
    diskproof_session::take_over();
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == ptrace::HOLD) {
        ptrace::hold(words.collect());
    }
    match trace(&typed("sync trace", Options::try_parse())) {
        Ok(code) => ExitCode::from(code),
        Err(refusal) => {
            eprintln!("{refusal}");
            ExitCode::from(refusal.code)
        }
    }
}

/// The exit code of the command, or 0.
fn trace(options: &Options) -> Result<u8, Refusal> {
    let output = open_output(options)?;
    let (sender, messages) = mpsc::channel();
    let mut trace = Trace::start(options, sender)?;
    let mut session = Session {
        mechanism: trace.mechanism,
        unreached: trace.unreached.take(),
        writes: options.writes,
        command: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        pid: trace.pid,
        started: clock::now(),
        ended: clock::now(),
        tally: Tally::default(),
        lost: 0,
        exit_code: None,
        messages,
        live: find_live(options),
    };
    let code = trace.run(&mut session)?;
    write_report(options, &mut session, output)?;
    Ok(code)
}

/// The file must be writable before the command runs, not after.
fn open_output(options: &Options) -> Result<Option<File>, Refusal> {
    let Some(path) = &options.output else { return Ok(None) };
    let file = File::create(path).map_err(|error| {
        let what = format!("{} cannot be written", path.display());
        Refusal::new(USAGE, what, error, "name a file in a folder that is writable")
    })?;
    Ok(Some(file))
}

fn screen_of(options: &Options) -> Screen {
    // A command's own output has stdout for itself.
    if options.pid.is_some() {
        Screen::Stdout
    } else {
        Screen::Stderr
    }
}

/// Pictures that nobody asked for come only where they disturb nothing.
fn find_live(options: &Options) -> Option<Live> {
    let screen = screen_of(options);
    let alone = options.pid.is_some() || !Screen::Stdout.is_terminal();
    let plain = !options.json && options.folded.is_none();
    let unasked = u32::from(screen.is_terminal() && alone && plain);
    match options.every.unwrap_or(unasked) {
        0 => None,
        seconds => Some(Live::new(screen, seconds)),
    }
}

fn write_report(
    options: &Options,
    session: &mut Session,
    output: Option<File>,
) -> Result<(), Refusal> {
    if let Some(mut live) = session.live.take() {
        live.erase();
    }
    let text = match options.folded {
        Some(what) => folded::render_folded(&session.tally, what),
        None if options.json => json::render_json(session),
        None => report::render_report(session, options.top),
    };
    let Some(mut file) = output else {
        screen_of(options).write(&text);
        return Ok(());
    };
    file.write_all(text.as_bytes()).map_err(|error| {
        Refusal::new(USAGE, "the report cannot be written", error, "make room on that disk")
    })
}
