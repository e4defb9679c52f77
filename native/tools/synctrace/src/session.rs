//! One trace from start to end: what the main thread knows.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::Receiver;

use crate::clock;
use crate::live::Live;
use crate::message::Message;
use crate::options::Mechanism;
use crate::tally::Tally;

pub struct Session {
    pub mechanism: Mechanism,
    /// Why nothing sees the programs that `mechanism` does not reach, if so.
    pub unreached: Option<String>,
    pub writes: bool,
    pub command: Vec<String>,
    pub pid: i32,
    pub started: u64,
    pub ended: u64,
    pub tally: Tally,
    pub lost: u64,
    pub exit_code: Option<u8>,
    pub messages: Receiver<Message>,
    pub live: Option<Live>,
}

impl Session {
    /// Take what the mechanism has told so far.
    pub fn drain(&mut self) {
        for message in self.messages.try_iter() {
            match message {
                Message::Events(events) => events.iter().for_each(|event| self.tally.add(event)),
                Message::Lost(calls) => self.lost += calls,
            }
        }
    }

    /// Draw the live picture when it is time.
    pub fn draw(&mut self) {
        self.ended = clock::now();
        let Some(mut live) = self.live.take() else { return };
        live.draw(self);
        self.live = Some(live);
    }

    pub fn wall(&self) -> u64 {
        self.ended.saturating_sub(self.started).max(1)
    }
}

/// Where live pictures and reports without a file go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    Stdout,
    Stderr,
}

impl Screen {
    pub fn is_terminal(self) -> bool {
        match self {
            Screen::Stdout => io::stdout().is_terminal(),
            Screen::Stderr => io::stderr().is_terminal(),
        }
    }

    /// A reader that has gone is no error.
    pub fn write(self, text: &str) {
        let _ = match self {
            Screen::Stdout => io::stdout().lock().write_all(text.as_bytes()),
            Screen::Stderr => io::stderr().lock().write_all(text.as_bytes()),
        };
    }
}
