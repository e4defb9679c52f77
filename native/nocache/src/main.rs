//! Run a command that leaves the page cache as it was.

mod asked;
mod finish;
mod keeper;
mod options;
mod position;
mod registry;
mod rules;
mod session;
mod watched;

use clap::Parser;
use diskproof_supervise::{Ended, StartError};
use finish::Report;
use options::Options;
use session::Session;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

/// Set for the command: whoever is started inside is watched already.
pub const INSIDE: &str = "DISKPROOF_NOCACHE";

fn main() -> ExitCode {
    let options = Options::parse();
    if std::env::var_os(INSIDE).is_some() {
        return become_command(&options.command);
    }
    match watch(&options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => complain(&error),
    }
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
    if session.has_dirty() || session.has_others() {
        finish_in_background(session);
    }
    Ok(ended.code)
}

/// The caller of this program does not wait for the disk, nor for what the command left running.
fn finish_in_background(mut session: Session) {
    // SAFETY: all our threads have ended; the child goes on as this one would.
    if unsafe { libc::fork() } != 0 {
        return;
    }
    let _ = rustix::process::setsid();
    let null = rustix::fs::OFlags::RDWR;
    if let Ok(null) = rustix::fs::open("/dev/null", null, rustix::fs::Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
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
    eprintln!("diskproof-nocache: {program} cannot be run: {error}");
}

fn tell(options: &Options, report: &Report) {
    if options.json {
        match serde_json::to_string(report) {
            Ok(line) => eprintln!("{line}"),
            Err(error) => eprintln!("diskproof-nocache: no report: {error}"),
        }
    } else if options.verbose {
        eprintln!("diskproof-nocache: {report}");
    }
}

fn complain(error: &StartError) -> ExitCode {
    eprintln!("diskproof-nocache: the command was not run: {error}");
    eprintln!("what to do: nocache --strategy cgroup, or run it outside of the sandbox or of the other supervisor");
    ExitCode::from(3)
}
