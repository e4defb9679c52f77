//! From the ring to finished calls. The traced programs never wait for us: what we do not fetch in
//! time is counted as lost.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::Sender;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};

use super::page::{Kind, EVENTS};
use super::shared::{FinishedCall, Place, Shared};
use crate::clock::now;
use crate::event::{Call, Event};
use crate::message::Message;
use crate::places;

/// Between two looks at the ring: while calls come, and when none came for `BUSY` ns.
const BUSY_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
const IDLE_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
const BUSY: u64 = 50_000_000;
/// To fill a place takes 20 ns; whoever has not done it after so many has been killed or stopped.
const PATIENCE: u64 = 100_000_000;
/// What /proc said is taken for true for so long, in ns.
const FRESH: u64 = 500_000_000;
const MOST_KNOWN: usize = 100_000;

const CALLS: [(Kind, Call); 7] = [
    (Kind::Fsync, Call::Fsync),
    (Kind::Fdatasync, Call::Fdatasync),
    (Kind::Sync, Call::Sync),
    (Kind::Syncfs, Call::Syncfs),
    (Kind::Msync, Call::Msync),
    (Kind::SyncFileRange, Call::SyncFileRange),
    (Kind::Pwritev2, Call::Pwritev2),
];

/// The running reader.
pub struct Reading {
    stop: OwnedFd,
    thread: JoinHandle<()>,
}

impl Reading {
    pub fn start(shared: Shared, out: Sender<Message>) -> io::Result<Reading> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stopped = stop.try_clone()?;
        let reader = Reader {
            shared,
            next: 0,
            lost: 0,
            blocked_at: None,
            busy_at: 0,
            texts: HashMap::new(),
            mappings: HashMap::new(),
            written: HashMap::new(),
            out,
        };
        let thread = thread::Builder::new().spawn(move || reader.run(&stopped))?;
        Ok(Reading { stop, thread })
    }

    /// Returns when all that happened before is told.
    pub fn finish(self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let _ = self.thread.join();
    }
}

/// What an address belongs to, and when that was asked.
type Mapping = (Option<Arc<str>>, u64);

struct Reader {
    shared: Shared,
    /// Position of the event to read next.
    next: u64,
    /// Lost calls that are told already.
    lost: u64,
    /// Since when the next place has been taken and not filled.
    blocked_at: Option<u64>,
    busy_at: u64,
    texts: HashMap<u32, Arc<str>>,
    mappings: HashMap<(i32, u64), Mapping>,
    /// Bytes that a process had written when we last looked.
    written: HashMap<i32, u64>,
    out: Sender<Message>,
}

impl Reader {
    fn run(mut self, stop: &OwnedFd) {
        loop {
            let stopped = self.wait(stop);
            if stopped {
                self.shared.page.closed.store(1, Relaxed);
            }
            self.take();
            if stopped && self.blocked_at.is_none() {
                return;
            }
        }
    }

    /// A moment; true when told to stop.
    fn wait(&self, stop: &OwnedFd) -> bool {
        let idle = now().saturating_sub(self.busy_at) > BUSY;
        let timeout = if idle { IDLE_PERIOD } else { BUSY_PERIOD };
        let mut fds = [PollFd::new(stop, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
    }

    fn take(&mut self) {
        let head = self.shared.page.head.0.load(Acquire);
        // It belongs to the traced programs: no more than a ring at once.
        let end = head.min(self.next.saturating_add(EVENTS));
        let mut events = Vec::new();
        while self.next < end {
            match self.shared.take(self.next) {
                Place::Filled(told) => events.extend(self.event(&told)),
                Place::Retired => {}
                Place::Taken if !self.give_up() => break,
                Place::Taken => self.tell_lost(1),
            }
            self.blocked_at = None;
            self.next += 1;
        }
        let lost = self.shared.page.lost.0.load(Relaxed);
        self.tell_lost(lost.saturating_sub(self.lost));
        self.lost = lost;
        if !events.is_empty() {
            self.busy_at = now();
            self.add_written(&mut events);
            let _ = self.out.send(Message::Events(events));
        }
    }

    fn tell_lost(&self, calls: u64) {
        if calls > 0 {
            let _ = self.out.send(Message::Lost(calls));
        }
    }

    /// Whether the next place will not be filled any more.
    fn give_up(&mut self) -> bool {
        let since = *self.blocked_at.get_or_insert_with(now);
        now() > since + PATIENCE && self.shared.retire(self.next)
    }

    fn event(&mut self, told: &FinishedCall) -> Option<Event> {
        let (_, call) = *CALLS.iter().find(|(kind, _)| *kind as u32 == told.kind)?;
        let (file, in_flight) = self.find_file(call, told);
        let process = self.text(told.name).or_else(|| places::find_process_name(told.pid));
        Some(Event {
            pid: told.pid,
            tid: told.tid,
            process: process.unwrap_or_else(|| "?".into()),
            call,
            file,
            start: told.start,
            end: told.start.saturating_add(told.duration),
            result: told.result,
            written: None,
            in_flight,
        })
    }

    /// The file, and whether it is sure: the library asked while the descriptor was in use, we ask
    /// afterwards.
    fn find_file(&mut self, call: Call, told: &FinishedCall) -> (Arc<str>, bool) {
        if call == Call::Sync {
            return (places::EVERYTHING.into(), true);
        }
        if let Some(name) = self.text(told.file) {
            return (name, true);
        }
        let name = if call == Call::Msync {
            self.find_mapping(told)
        } else if told.result == -i64::from(libc::EBADF) {
            return (places::NO_FILE.into(), true);
        } else {
            places::find_file(told.tid, call, told.argument)
        };
        (name.unwrap_or_else(|| places::unnamed(told.result)), false)
    }

    fn find_mapping(&mut self, told: &FinishedCall) -> Option<Arc<str>> {
        let (key, time) = ((told.pid, told.argument), now());
        if let Some((name, asked)) = self.mappings.get(&key) {
            if time < asked + FRESH {
                return name.clone();
            }
        }
        if self.mappings.len() >= MOST_KNOWN {
            self.mappings.clear();
        }
        let name = places::find_file(told.pid, Call::Msync, told.argument);
        self.mappings.insert(key, (name.clone(), time));
        name
    }

    fn text(&mut self, place: u32) -> Option<Arc<str>> {
        if let Some(text) = self.texts.get(&place) {
            return Some(text.clone());
        }
        let text = self.shared.read_text(place)?;
        if self.texts.len() >= MOST_KNOWN {
            self.texts.clear();
        }
        self.texts.insert(place, text.clone());
        Some(text)
    }

    /// Bytes are asked for once for all calls that came together. They belong to the last of them;
    /// if there are no new ones, there were none before any of them.
    fn add_written(&mut self, events: &mut [Event]) {
        let mut asked = HashMap::<i32, Option<u64>>::new();
        for event in events.iter_mut().rev() {
            let before = self.written.get(&event.pid).copied();
            let last = !asked.contains_key(&event.pid);
            let written =
                *asked.entry(event.pid).or_insert_with(|| places::find_written(event.pid));
            event.written = written.filter(|_| last || written == before);
        }
        if self.written.len() >= MOST_KNOWN {
            self.written.clear();
        }
        self.written.extend(asked.into_iter().filter_map(|(pid, seen)| Some((pid, seen?))));
    }
}
