//! The command's life: every file it opens is heard of, kept in order, and put in order at the end.

use crate::finish::{drop_clean, find_left, make_report, write_and_drop, Report};
use crate::keeper::{write_behind, Keeper, Shared, Totals, FILES};
use crate::open_request::{FromLibrary, OpenRequest};
use crate::registry::Registry;
use crate::rules::{filter, renames, UMOUNT2};
use diskproof_supervise::{
    block_signals, start, Answer, Child, Command, Ended, Listener, Notification,
};
use diskproof_supervise::{Received, Signals, StartError};
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

const PRELOAD: &str = "LD_PRELOAD";
const LIBRARY: &str = "libdiskproof_nocache.so";

pub struct Session {
    child: Child,
    listener: Listener,
    signals: Signals,
    registry: Registry,
    files: Vec<Shared>,
    totals: Totals,
}

impl Session {
    pub fn start(words: &[OsString]) -> Result<Self, StartError> {
        let signals = block_signals().map_err(|error| StartError::System("signalfd", error))?;
        let mut command = Command::new(words)?;
        command.set_variable(crate::INSIDE, "1");
        if let Some(libraries) = find_preload() {
            command.set_variable(PRELOAD, libraries);
        }
        command.unblock(&signals);
        let registry = Registry::new().map_err(|error| StartError::System("socketpair", error))?;
        registry.add_inherited();
        let (child, listener) = start(&command, &filter())?;
        allow_descriptors();
        let (files, totals) = (Vec::new(), Totals::default());
        Ok(Self { child, listener, signals, registry, files, totals })
    }

    /// Until the command has ended.
    pub fn run(&mut self) -> io::Result<Ended> {
        let mut ended = None;
        self.attend(|session| {
            ended = session.child.attend(&session.signals)?;
            Ok(ended.is_some())
        })?;
        ended.map_or_else(|| self.child.wait(), Ok)
    }

    /// Until all that the command left behind has ended too.
    pub fn run_to_the_last(&mut self) -> io::Result<()> {
        self.attend(|_| Ok(false))
    }

    /// True when the command left processes behind.
    pub fn has_others(&self) -> bool {
        match self.listener.receive(None, Some(Duration::ZERO)) {
            Ok(Received::Nobody) => false,
            Ok(Received::Call(call)) => {
                self.take(&call);
                true
            }
            _ => true,
        }
    }

    /// Answers calls while another thread keeps the files in order and a third one writes.
    fn attend(&mut self, is_over: impl FnMut(&Self) -> io::Result<bool>) -> io::Result<()> {
        let stop = AtomicBool::new(false);
        let (sender, receiver) = channel();
        let files = std::mem::take(&mut self.files);
        let mut keeper = Keeper::new(&self.registry, sender, files);
        keeper.totals = self.totals;
        let (result, keeper) = std::thread::scope(|scope| {
            scope.spawn(move || write_behind(&receiver));
            let keeping = scope.spawn(|| keeper.run(&stop).into_kept());
            let result = self.answer_all(is_over);
            self.registry.catch_up();
            stop.store(true, Ordering::Relaxed);
            keeping.thread().unpark();
            (result, keeping.join())
        });
        (self.files, self.totals) =
            keeper.map_err(|_| io::Error::other("the thread that keeps files in order failed"))?;
        result
    }

    fn answer_all(&self, mut is_over: impl FnMut(&Self) -> io::Result<bool>) -> io::Result<()> {
        loop {
            match self.listener.receive(Some(self.signals.as_fd()), None)? {
                Received::Call(call) => self.take(&call),
                Received::Nobody => return Ok(()),
                Received::Woken if is_over(self)? => return Ok(()),
                Received::Woken | Received::Timeout => {}
            }
        }
    }

    fn take(&self, call: &Notification) {
        let answer = match FromLibrary::find(call) {
            Some(FromLibrary::Socket) => {
                let socket = self.registry.socket();
                if self.listener.answer_with_descriptor(call.id, socket).is_ok() {
                    return;
                }
                Answer::Error(libc::EBADF) // as without us: its opens stop
            }
            Some(FromLibrary::Look(descriptor)) => {
                self.registry.add_open(call.thread, descriptor);
                Answer::Value(0)
            }
            None => {
                note(&self.registry, call);
                Answer::Continue
            }
        };
        self.listener.answer(call.id, answer);
    }

    /// Passes signals on; the command's end, if that was the signal.
    pub fn drop_clean(&self) {
        drop_clean(&self.files);
    }

    pub fn has_left(&self) -> bool {
        !find_left(&self.files).is_empty()
    }

    pub fn write_and_drop(&self) {
        write_and_drop(&find_left(&self.files));
    }

    pub fn report(&self) -> Report {
        make_report(&self.files, &self.totals, self.registry.unseen())
    }
}

/// Our library before those of the user's. Without it all is done from outside, with a little more
/// in the cache.
fn find_preload() -> Option<OsString> {
    let library = diskproof_session::find_part(LIBRARY)?;
    let unusable = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':'; // they part names
    if library.as_os_str().as_bytes().iter().any(unusable) {
        return None;
    }
    let mut libraries = library.into_os_string();
    if let Some(others) = std::env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        libraries.push(":");
        libraries.push(others);
    }
    Some(libraries)
}

fn note(registry: &Registry, call: &Notification) {
    if renames(call) {
        registry.catch_up();
        return;
    }
    match OpenRequest::read(call) {
        Ok(Some(asked)) if call.is(&UMOUNT2) => registry.close_all(&asked),
        Ok(Some(asked)) => registry.add(&asked),
        Ok(None) => {}
        Err(_) => registry.add_unseen(),
    }
}

/// Each watched file holds one descriptor of ours; the command keeps the limit it had.
fn allow_descriptors() {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = 2 * FILES as u64;
    let current = Some(limit.maximum.map_or(wanted, |maximum| maximum.min(wanted)));
    if limit.current < current {
        let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum: limit.maximum });
    }
}
