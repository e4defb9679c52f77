//! The kernel's tracepoints of the calls, read from a ring per CPU. The program is never stopped.
//!
//! The calls of every process arrive, which spares the watched ones the cost of counters that they
//! would inherit with each fork; births tell which processes belong to the watched. The rings are
//! looked at every 100 us while calls come. A file's name is looked up when the entry of a call is
//! read: a call that lasts longer than that is still in flight, and its name is sure.

mod records;
mod sys;
mod watcher;

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use rustix::event::{eventfd, EventfdFlags};

use crate::event::{Call, SYNCS, WRITES};
use crate::message::Message;
use diskproof_perf::{set_filter, Tracefs};
use sys::{Ring, Scope, Source};
use watcher::{Point, Points, Watcher};

/// Room for about 16,000 calls a CPU that we have not read yet, those of strangers included.
const RING_BYTES: usize = 1 << 21;
const RWF_SYNCS: &CStr = c"flags & 6";
const MS_SYNC: &CStr = c"flags & 4";

/// The open sources; nothing is read yet.
pub struct Tracepoints {
    rings: Vec<Ring>,
    others: Vec<OwnedFd>,
    points: Points,
}

/// Whom to watch, with all that they start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// What this thread starts after `Tracepoints::open`.
    Children,
    Process,
}

impl Tracepoints {
    /// Needs CAP_PERFMON, or a low kernel.perf_event_paranoid, and a readable tracefs.
    pub fn open(watched: Watched, writes: bool) -> io::Result<Tracepoints> {
        let tracefs = Tracefs::open()?;
        let kinds = choose_points(&tracefs, watched, writes)?;
        let mut rings = Vec::new();
        let mut others = Vec::new();
        for cpu in sys::read_cpus()? {
            let ring = Ring::new(sys::open(Source::Tasks, Scope::Everyone, cpu)?, RING_BYTES)?;
            for kind in &kinds {
                let source = sys::open(Source::Tracepoint(kind.id), kind.scope, cpu)?;
                if let Some(expression) = kind.only {
                    set_filter(&source, expression)?;
                }
                sys::redirect(&source, &ring.source)?;
                others.push(source);
            }
            rings.push(ring);
        }
        let points = kinds.iter().map(|kind| (kind.id as u16, kind.point)).collect();
        Ok(Tracepoints { rings, others, points })
    }

    /// Read in a thread of its own, until the handle is stopped.
    pub fn start(self, roots: Vec<i32>, out: Sender<Message>) -> io::Result<Reading> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let stopped = stop.try_clone()?;
        let thread = thread::spawn(move || {
            let _open = self.others;
            Watcher::new(self.rings, self.points, roots, out).run(&stopped);
        });
        Ok(Reading { stop, thread })
    }
}

/// The running reader.
pub struct Reading {
    stop: OwnedFd,
    thread: JoinHandle<()>,
}

impl Reading {
    /// Returns when all that happened before is told.
    pub fn finish(self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        let _ = self.thread.join();
    }
}

struct Kind {
    id: u64,
    point: Point,
    scope: Scope,
    only: Option<&'static CStr>,
}

fn choose_points(tracefs: &Tracefs, watched: Watched, writes: bool) -> io::Result<Vec<Kind>> {
    let mut kinds = Vec::new();
    for call in SYNCS.into_iter().chain(WRITES) {
        let only = match call {
            Call::Msync => Some(MS_SYNC),
            Call::Pwritev2 if !writes => Some(RWF_SYNCS),
            _ if call.is_write() && !writes => continue,
            _ => None,
        };
        // Writes are frequent: those of strangers are left alone where that is possible.
        let scope = match watched {
            Watched::Children if call.is_write() => Scope::Children,
            _ => Scope::Everyone,
        };
        let (enter, exit) = (Point::Enter(call), Point::Exit(call));
        let id = |edge: &str| tracefs.read_id(&format!("syscalls/sys_{edge}_{}", call.name()));
        kinds.push(Kind { id: id("enter")?, point: enter, scope, only });
        kinds.push(Kind { id: id("exit")?, point: exit, scope, only: None });
    }
    Ok(kinds)
}
