//! Run a command that leaves the page cache as it was.

mod cgroup;
mod finish;
mod keeper;
mod open_request;
mod opens;
mod options;
mod position;
mod registry;
mod rules;
mod session;
mod watched;

// The library has no standard library and cannot be linked with.
#[path = "../../nocache-preload/src/door.rs"]
mod door;

use clap::Parser;
use diskproof_supervise::{block_signals, start_plain, Command, Ended, StartError};
use diskproof_words::{plain_reason, typed};
use finish::Report;
use options::{Options, Strategy};
use session::Session;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

/// Set for the command: whoever is started inside is watched already.
pub const INSIDE: &str = "DISKPROOF_NOCACHE";

fn main() -> ExitCode {
    diskproof_session::take_over();
    let options = typed("nocache", Options::try_parse());
    if std::env::var_os(INSIDE).is_some() {
        return become_command(&options.command);
    }
    let done = match options.strategy {
        Strategy::Files => watch(&options).map_err(|error| error.to_string()),
        Strategy::Cgroup => confine(&options),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(why) => complain(options.strategy, &why),
    }
}

fn confine(options: &Options) -> Result<u8, String> {
    let say = |error: StartError| error.to_string();
    let signals = block_signals().map_err(|error| error.to_string())?;
    let mut command = Command::new(&options.command).map_err(say)?;
    command.set_variable(INSIDE, "1");
    command.unblock(&signals);
    let group = cgroup::Group::make(options.memory)?;
    let child = group.start_inside(|| start_plain(&command));
    let ended = match child {
        Ok(Ok(child)) => child.attend_to_end(&signals).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(error) => Err(error),
    };
    let report = group.finish();
    let ended = ended?;
    tell_exec_error(&options.command, &ended);
    if options.json {
        tell_json(&report);
    } else if options.verbose {
        eprintln!("diskproof-nocache: {report:?}");
    }
    Ok(ended.code)
}

fn watch(options: &Options) -> Result<u8, StartError> {
    let mut session = Session::start(&options.command)?;
    let ended = session.run().map_err(|error| StartError::System("seccomp", error))?;
    tell_exec_error(&options.command, &ended);
    session.drop_clean();
    if options.waits() {
        session.write_and_drop();
        tell(options, &session.report());
    }
    if session.has_left() || session.has_others() {
        finish_in_background(session);
    }
    Ok(ended.code)
}

/// The caller of this program does not wait for the disk, nor for what the command left running.
fn finish_in_background(mut session: Session) {
    let Ok((detached, attached)) = rustix::pipe::pipe() else { return };
    // SAFETY: all our threads have ended; the child goes on as this one would.
    if unsafe { libc::fork() } != 0 {
        drop(attached);
        // Who kills our group when we end must not meet the child in it.
        let _ = rustix::io::retry_on_intr(|| rustix::io::read(&detached, &mut [0; 1]));
        return;
    }
    diskproof_session::stay_behind();
    drop((detached, attached));
    session.write_and_drop();
    if session.has_others() {
        let _ = session.run_to_the_last();
        session.drop_clean();
        session.write_and_drop();
    }
    std::process::exit(0);
}

fn become_command(words: &[OsString]) -> ExitCode {
    let error = std::process::Command::new(&words[0]).args(&words[1..]).exec();
    let found = error.kind() != std::io::ErrorKind::NotFound;
    tell_exec(words, &error);
    ExitCode::from(if found { 126 } else { 127 })
}

fn tell_exec_error(words: &[OsString], ended: &Ended) {
    if let Some(error) = &ended.exec_error {
        tell_exec(words, error);
    }
}

fn tell_exec(words: &[OsString], error: &std::io::Error) {
    let program = std::path::Path::new(&words[0]).display();
    eprintln!("diskproof-nocache: {program} cannot be run: {}", plain_reason(error));
}

fn tell(options: &Options, report: &Report) {
    if options.json {
        tell_json(report);
    } else if options.verbose {
        eprintln!("diskproof-nocache: {report}");
    }
}

fn tell_json(report: &impl serde::Serialize) {
    match serde_json::to_string(report) {
        Ok(line) => eprintln!("{line}"),
        Err(error) => eprintln!("diskproof-nocache: no report: {error}"),
    }
}

fn complain(strategy: Strategy, why: &str) -> ExitCode {
    eprintln!("diskproof-nocache: the command was not run: {why}");
    eprintln!(
        "what to do: {}",
        match strategy {
            Strategy::Files =>
                "--strategy cgroup as root, or run it outside of the sandbox or other supervisor",
            Strategy::Cgroup => "--strategy files, or run it as root or in a delegated cgroup",
        }
    );
    ExitCode::from(3)
}
