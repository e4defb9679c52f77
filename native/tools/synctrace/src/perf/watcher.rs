//! From the records of all CPUs to finished calls of the watched processes.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::sync::Arc;

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::records::{parse_records, Body, Record};
use super::sys::Ring;
use crate::clock::now;
use crate::event::{Call, Event};
use crate::message::Message;
use crate::places;

/// A record may become visible this much later than its time says; order is settled after that.
/// Nanoseconds.
const SETTLED: u64 = 2_000_000;
/// Between two looks at the rings: while calls come, and when none came for `BUSY` ns.
const BUSY_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000 };
const IDLE_PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
const BUSY: u64 = 50_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    Enter(Call),
    Exit(Call),
}

pub type Points = HashMap<u16, Point>;

/// What /proc said when a call's entry arrived.
#[derive(Clone, Debug, Default)]
struct Seen {
    file: Option<Arc<str>>,
    written: Option<u64>,
    waits: bool,
    at: u64,
}

struct Entry {
    call: Call,
    start: u64,
    seen: Seen,
}

/// Whether writes to a process's descriptor wait for the disk, as it was when it could last be
/// asked.
#[derive(Default)]
struct WriteFlags {
    known: HashMap<(i32, i32), bool>,
}

const MOST_FLAGS: usize = 10_000;

impl WriteFlags {
    fn wait(&mut self, record: &Record, fd: i32) -> bool {
        let key = (record.pid, fd);
        let Some(waits) = places::find_sync_flags(record.tid, fd) else {
            return self.known.get(&key).copied().unwrap_or(false);
        };
        if self.known.len() >= MOST_FLAGS {
            self.known.clear();
        }
        self.known.insert(key, waits);
        waits
    }
}

pub struct Watcher {
    rings: Vec<Ring>,
    points: Points,
    roots: Vec<i32>,
    watched: HashSet<i32>,
    /// Processes that are known not to be watched: nothing of theirs is looked up.
    strangers: HashSet<i32>,
    names: HashMap<i32, Arc<str>>,
    flags: WriteFlags,
    entries: HashMap<i32, Entry>,
    /// Not yet settled, with what was seen of entries.
    waiting: Vec<(Record, Option<Seen>)>,
    /// When the last record came.
    busy_at: u64,
    out: Sender<Message>,
}

/// Short sleeps shall be short, and a busy machine shall not let the rings run over. Where the
/// kernel refuses, more is lost.
fn be_prompt() {
    const NICER_BY: i32 = -10;
    // SAFETY: plain numbers; on Linux nice changes the calling thread only.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1_000);
        libc::nice(NICER_BY);
    }
}

impl Watcher {
    pub fn new(rings: Vec<Ring>, points: Points, roots: Vec<i32>, out: Sender<Message>) -> Self {
        Watcher {
            rings,
            points,
            watched: roots.iter().copied().collect(),
            roots,
            strangers: HashSet::new(),
            names: HashMap::new(),
            flags: WriteFlags::default(),
            entries: HashMap::new(),
            waiting: Vec::new(),
            busy_at: 0,
            out,
        }
    }

    pub fn run(mut self, stop: &OwnedFd) {
        be_prompt();
        loop {
            let stopped = self.wait(stop);
            self.take();
            self.settle(if stopped { u64::MAX } else { now().saturating_sub(SETTLED) });
            if stopped {
                return;
            }
        }
    }

    /// A moment; true when told to stop.
    ///
    /// The kernel is not asked to wake us: in a virtual machine that costs the traced program 10 to
    /// 30 us a call.
    fn wait(&self, stop: &OwnedFd) -> bool {
        let idle = now().saturating_sub(self.busy_at) > BUSY;
        let timeout = if idle { IDLE_PERIOD } else { BUSY_PERIOD };
        let mut fds = [PollFd::new(stop, PollFlags::IN)];
        poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
    }

    /// Take all rings and look at once at what calls in flight are about.
    fn take(&mut self) {
        let mut known = HashMap::new();
        for index in 0..self.rings.len() {
            for record in parse_records(&self.rings[index].take()) {
                let seen = self.look(&record, &mut known);
                self.busy_at = if seen.is_some() { now() } else { self.busy_at };
                self.waiting.push((record, seen));
            }
        }
    }

    fn look(
        &mut self,
        record: &Record,
        known: &mut HashMap<(i32, Call, u64), Seen>,
    ) -> Option<Seen> {
        let Body::Point { id, fields } = &record.body else { return None };
        let Some(Point::Enter(call)) = self.points.get(id).copied() else { return None };
        if self.strangers.contains(&record.pid) {
            return None;
        }
        let seen = known.entry((record.tid, call, fields[0])).or_insert_with(|| Seen {
            file: places::find_file(record.tid, call, fields[0]),
            written: places::find_written(record.pid),
            waits: call.is_write() && self.flags.wait(record, fields[0] as i32),
            at: now(),
        });
        let mut seen = seen.clone();
        seen.waits |= call.waits(fields);
        Some(seen)
    }

    /// Work through what happened up to then, in the order of time.
    fn settle(&mut self, until: u64) {
        self.waiting.sort_by_key(|(record, _)| record.time);
        let settled = self.waiting.partition_point(|(record, _)| record.time <= until);
        let settled: Vec<_> = self.waiting.drain(..settled).collect();
        let mut events = Vec::new();
        for (record, seen) in settled {
            self.apply(record, seen, &mut events);
        }
        if !events.is_empty() {
            let _ = self.out.send(Message::Events(events));
        }
    }

    fn apply(&mut self, record: Record, seen: Option<Seen>, events: &mut Vec<Event>) {
        match record.body {
            Body::Point { id, fields } => match self.points.get(&id).copied() {
                Some(Point::Enter(call)) => self.enter(&record, call, seen),
                Some(Point::Exit(call)) => events.extend(self.leave(&record, call, fields[0])),
                None => {}
            },
            Body::Fork { parent } if parent != record.pid => self.bear(record.pid, parent),
            Body::Name(name) if record.pid == record.tid && self.watched.contains(&record.pid) => {
                self.names.insert(record.pid, name.into());
            }
            Body::Exit => drop(self.entries.remove(&record.tid)),
            Body::Lost(count) => drop(self.out.send(Message::Lost(count))),
            _ => {}
        }
    }

    /// The number of a process may have been another one's before.
    fn bear(&mut self, pid: i32, parent: i32) {
        if self.roots.contains(&pid) {
            return;
        }
        self.strangers.remove(&pid);
        if self.watched.contains(&parent) {
            self.watched.insert(pid);
            let name = self.name(parent);
            self.names.insert(pid, name);
        } else {
            self.watched.remove(&pid);
            self.names.remove(&pid);
        }
    }

    fn enter(&mut self, record: &Record, call: Call, seen: Option<Seen>) {
        let Some(seen) = seen else { return };
        if !self.watched.contains(&record.pid) {
            self.strangers.insert(record.pid);
        } else if seen.waits {
            self.entries.insert(record.tid, Entry { call, start: record.time, seen });
        }
    }

    fn leave(&mut self, record: &Record, call: Call, result: u64) -> Option<Event> {
        let entry = self.entries.remove(&record.tid).filter(|entry| entry.call == call)?;
        let result = result as i64;
        let in_flight = entry.seen.at < record.time;
        // What is counted when the write ends was not yet there.
        let own = if call.is_write() && in_flight { result.max(0) as u64 } else { 0 };
        Some(Event {
            pid: record.pid,
            tid: record.tid,
            process: self.name(record.pid),
            call,
            file: entry.seen.file.unwrap_or_else(|| places::unnamed(result)),
            start: entry.start,
            end: record.time,
            result,
            written: entry.seen.written.map(|written| written + own),
            in_flight,
        })
    }

    fn name(&mut self, pid: i32) -> Arc<str> {
        let find = || places::find_process_name(pid).unwrap_or_else(|| "?".into());
        self.names.entry(pid).or_insert_with(find).clone()
    }
}
