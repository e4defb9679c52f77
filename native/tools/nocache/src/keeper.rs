//! Keeps files in order while the command runs: drops behind readers, has writes written and
//! dropped behind writers.

use crate::position::Positions;
use crate::registry::{Closing, Registry};
use crate::watched::{Key, Watched, LARGE};
use diskproof_pagecache::page_size;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Pages of one file that may stay dirty (4 MiB of 4 KiB pages).
const DIRTY_PAGES: u64 = 1024;

/// All files together (64 MiB): beyond it even those that seem to be in use are put in order.
const ALL_PAGES: u64 = 1 << 14;

/// Files that are watched at once, each with a descriptor.
pub const FILES: usize = 4096;

/// Quiet files that are looked at in one round.
const QUIET_A_ROUND: usize = 64;

const BUSY: Duration = Duration::from_millis(1);
const QUIET: Duration = Duration::from_millis(4);
const HOT: Duration = Duration::from_secs(1);

pub type Shared = Arc<Mutex<Watched>>;

pub fn lock(file: &Shared) -> MutexGuard<'_, Watched> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of files that are no longer watched.
#[derive(Debug, Default, Clone, Copy)]
pub struct Totals {
    pub files: u64,
    pub dropped: u64,
    /// Most pages of ours that one file, and all together, had in the cache when they were looked
    /// at.
    pub peak_file: u64,
    pub peak_all: u64,
}

pub struct Keeper<'a> {
    registry: &'a Registry,
    writer: Sender<Shared>,
    positions: Positions,
    files: Vec<Shared>,
    pub totals: Totals,
    next_quiet: usize,
}

impl<'a> Keeper<'a> {
    pub fn new(registry: &'a Registry, writer: Sender<Shared>, files: Vec<Shared>) -> Self {
        let positions = Positions::default();
        Self { registry, writer, positions, files, totals: Totals::default(), next_quiet: 0 }
    }

    /// Rounds until `stop`.
    pub fn run(mut self, stop: &AtomicBool) -> Self {
        ask_for_precedence();
        while !stop.load(Ordering::Relaxed) {
            let busy = self.round();
            std::thread::park_timeout(if busy { BUSY } else { QUIET });
        }
        self.take_new();
        self
    }

    /// Ends the thread that writes, by the end of its queue.
    pub fn into_kept(self) -> (Vec<Shared>, Totals) {
        (self.files, self.totals)
    }

    fn take_new(&mut self) {
        for watched in self.registry.take_new() {
            self.totals.files += 1;
            self.files.push(Arc::new(Mutex::new(watched)));
        }
    }

    /// Looks at the large files that changed lately and at some of the others. True while there are
    /// any of the first kind.
    fn round(&mut self) -> bool {
        self.registry.catch_up();
        self.take_new();
        if let Some(closing) = self.registry.take_closing() {
            self.close_all(&closing);
        }
        let (mut busy, mut all) = (false, 0);
        let mut quiet = 0;
        let count = self.files.len();
        let mut gone = Vec::new();
        for step in 0..count {
            let place = (self.next_quiet + step) % count;
            let file = self.files[place].clone();
            let Some(mut watched) = try_lock(&file) else { continue };
            let hot = watched.is_large && watched.changed.elapsed() < HOT;
            if !hot {
                quiet += 1;
            }
            let due = hot || quiet <= QUIET_A_ROUND;
            if due && self.keep(&mut watched, &file).is_none() {
                gone.push((place, watched.key));
                continue;
            }
            busy |= hot;
            all += watched.excess.pages;
            self.totals.peak_file = self.totals.peak_file.max(watched.peak);
        }
        self.next_quiet = (self.next_quiet + QUIET_A_ROUND) % count.max(1);
        self.totals.peak_all = self.totals.peak_all.max(all);
        self.remove(gone);
        if self.files.len() > FILES || all > ALL_PAGES {
            self.make_room();
        }
        busy
    }

    /// None when the file is gone, or cannot be looked at any more.
    fn keep(&mut self, watched: &mut Watched, file: &Shared) -> Option<()> {
        let excess = watched.look().ok()?;
        if watched.is_settled() && watched.is_deleted() {
            return None;
        }
        if excess.pages == 0 || Instant::now() < watched.not_before {
            return Some(());
        }
        if excess.dirty > 0 {
            if !watched.with_writer && (excess.dirty > DIRTY_PAGES || watched.is_settled()) {
                watched.with_writer = true;
                let _ = self.writer.send(file.clone());
            }
            return Some(());
        }
        if watched.is_settled() {
            return watched.drop_all().ok();
        }
        let limit = LARGE / page_size();
        if excess.pages > limit {
            let position = self.positions.find(watched.key, watched.opener);
            // One that rests says nothing: pread(2), a mapping, another process.
            let moves = position.filter(|&bytes| bytes != watched.position);
            if let Some(position) = moves {
                watched.position = position;
                watched.drop_behind(moves).ok()?;
            } else if watched.excess.pages > limit + 2 * watched.ahead_pages() {
                watched.drop_behind(None).ok()?;
            }
        }
        Some(())
    }

    /// Closes what is on a file system that is to be unmounted: its pages go with it.
    fn close_all(&mut self, closing: &Closing) {
        let mut gone = Vec::new();
        for (place, file) in self.files.iter().enumerate() {
            let key = lock(file).key;
            if key.0 == closing.device {
                while Arc::strong_count(file) > 1 {
                    std::thread::yield_now(); // the writer is about to put it down
                }
                gone.push((place, key));
            }
        }
        self.remove(gone);
        let _ = closing.done.send(());
    }

    fn remove(&mut self, mut gone: Vec<(usize, Key)>) {
        gone.sort_unstable();
        for (place, key) in gone.into_iter().rev() {
            let file = self.files.swap_remove(place);
            self.totals.dropped += lock(&file).dropped;
            self.positions.forget(key);
            self.registry.forget(key);
        }
    }

    /// Puts the older half in order; those that are then without pages of ours are watched no
    /// longer if there are too many.
    fn make_room(&mut self) {
        let mut gone = Vec::new();
        let too_many = self.files.len() > FILES;
        for place in 0..self.files.len() / 2 {
            let file = self.files[place].clone();
            let Some(mut watched) = try_lock(&file) else { continue };
            if watched.excess.dirty > 0 && !watched.with_writer {
                watched.with_writer = true;
                let _ = self.writer.send(file.clone());
            } else if watched.excess.dirty == 0 && watched.excess.pages > 0 {
                let _ = watched.drop_all();
            }
            if too_many && watched.excess.pages == 0 {
                gone.push((place, watched.key));
            }
        }
        self.remove(gone);
    }
}

fn try_lock(file: &Shared) -> Option<MutexGuard<'_, Watched>> {
    match file.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Hands dirty files to the disk, where that may block: never in a reader's way.
pub fn write_behind(files: &Receiver<Shared>) {
    while let Ok(file) = files.recv() {
        let mut watched = lock(&file);
        let settled = watched.is_settled();
        let _ = watched.write_back();
        let _ = if settled { watched.drop_all() } else { watched.drop_behind(None) };
        watched.with_writer = false;
    }
}

/// A round takes microseconds and is of use in time only: real-time if we may, a better nice value
/// else.
fn ask_for_precedence() {
    let parameters = libc::sched_param { sched_priority: 1 };
    // SAFETY: the structure is live; 0 is this thread.
    unsafe {
        if libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) != 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, -10);
        }
    }
}
