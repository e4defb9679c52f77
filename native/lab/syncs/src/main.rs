//! `diskproof-syncs`: a command in a recorded folder, whose recorder hears of sync(2) and
//! syncfs(2).

mod options;
mod recorded;

use clap::Parser;
use diskproof_supervise::calls::{SYNC, SYNCFS};
use diskproof_supervise::{
    block_signals, build_filter, start, start_plain, tell_end, Action, Answer, Child, Command,
    Ended, Listener, Received, Rule, Signals, StartError,
};
use diskproof_words::{plain_reason, typed};
use options::Options;
use recorded::Recorded;
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = typed("crash", Options::try_parse());
    tell_end("diskproof-syncs", &options.command[0], run(&options))
}

fn run(options: &Options) -> Result<Ended, String> {
    let plain = |error: io::Error| plain_reason(&error);
    let recorded = Recorded::open(&options.folder)
        .map_err(|error| format!("{}: {}", options.folder.display(), plain_reason(&error)))?;
    let signals = block_signals().map_err(plain)?;
    let refused = |error: StartError| format!("the command was not run: {error}");
    let mut command = Command::new(&options.command).map_err(refused)?;
    command.unblock(&signals);
    command.end_with_us();
    let filter = build_filter(&[SYNC, SYNCFS].map(|call| Rule::always(call, Action::Notify)));
    match start(&command, &filter) {
        Ok((child, listener)) => attend(recorded, &child, &listener, &signals).map_err(plain),
        Err(error @ StartError::Forbidden(_)) => {
            eprintln!("diskproof-syncs: sync(2) and syncfs(2) count for nothing: {error}");
            let child = start_plain(&command).map_err(refused)?;
            child.attend_to_end(&signals).map_err(plain)
        }
        Err(error) => Err(refused(error)),
    }
}

/// Until the command has ended.
fn attend(
    mut recorded: Recorded,
    child: &Child,
    listener: &Listener,
    signals: &Signals,
) -> io::Result<Ended> {
    loop {
        match listener.receive(Some(signals.as_fd()), None)? {
            Received::Call(call) => {
                // sync(2) is of all file systems.
                if call.is(&SYNC) || recorded.holds(call.thread, call.arguments[0] as i32) {
                    recorded.note_sync(call.thread);
                }
                listener.answer(call.id, Answer::Continue);
            }
            Received::Woken | Received::Timeout => {
                if let Some(ended) = child.attend(signals)? {
                    return Ok(ended);
                }
            }
            Received::Nobody => return child.wait(),
        }
    }
}
