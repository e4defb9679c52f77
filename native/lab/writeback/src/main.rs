//! `diskproof-writeback`: a command on a file system that commits and writes back meanwhile.

mod commit;
mod files;
mod operations;
mod options;
mod pace;

use clap::Parser;
use commit::Beside;
use diskproof_supervise::{
    block_signals, start, tell_end, Answer, Child, Command, Ended, Received, Signals, StartError,
};
use diskproof_words::{plain_reason, typed};
use files::Files;
use options::Options;
use pace::{Pace, Step};
use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let options = typed("crash", Options::try_parse());
    tell_end("diskproof-writeback", &options.command[0], run(&options))
}

fn run(options: &Options) -> Result<Ended, String> {
    let plain = |error: io::Error| plain_reason(&error);
    let named = |path: &std::path::Path, error: io::Error| {
        format!("{}: {}", path.display(), plain_reason(&error))
    };
    let kernel = Kernel {
        files: Files::new(&options.folder, options.seed)
            .map_err(|error| named(&options.folder, error))?,
        beside: Beside::open(&options.beside).map_err(|error| named(&options.beside, error))?,
        pace: Pace::new(options.seed, Duration::from_millis(options.pause)),
    };
    let signals = block_signals().map_err(plain)?;
    let refused = |error: StartError| format!("the command was not run: {error}");
    let mut command = Command::new(&options.command).map_err(refused)?;
    command.unblock(&signals);
    let (child, listener) = start(&command, &operations::filter()).map_err(refused)?;
    kernel.attend(&child, &listener, &signals).map_err(plain)
}

/// What it does by itself, between operations of the command.
struct Kernel {
    files: Files,
    beside: Beside,
    pace: Pace,
}

impl Kernel {
    /// Until the command has ended.
    fn attend(
        mut self,
        child: &Child,
        listener: &diskproof_supervise::Listener,
        signals: &Signals,
    ) -> io::Result<Ended> {
        loop {
            match listener.receive(Some(signals.as_fd()), Some(self.pace.pause()))? {
                Received::Call(call) => {
                    let step = self.pace.before_operation();
                    self.before(step)?;
                    listener.answer(call.id, Answer::Continue);
                    if step.commits && step.beside {
                        self.beside.commit()?;
                    }
                }
                Received::Timeout => {
                    let step = self.pace.after_pause();
                    self.before(step)?;
                }
                Received::Woken => {
                    if let Some(ended) = child.attend(signals)? {
                        return Ok(ended);
                    }
                }
                Received::Nobody => return child.wait(),
            }
        }
    }

    fn before(&mut self, step: Step) -> io::Result<()> {
        if step.writes_back {
            self.files.write_back(self.pace.operations());
        }
        if step.commits && !step.beside {
            self.beside.commit()?;
        }
        Ok(())
    }
}
