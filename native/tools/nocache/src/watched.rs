//! One file that the command opened: what was cached of it before, and taking the rest away.

use diskproof_pagecache as cache;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// A file that did not change for so long is put in order, as if it was closed.
pub const SETTLED: Duration = Duration::from_secs(2);

/// Bytes of one file that may be in the cache while it is read.
pub const LARGE: u64 = 2 << 20;

/// Runs that are remembered of one file: 16 bytes each. Finer patterns are rounded up.
const RUNS: usize = 4096;

/// Pages this close behind the last cached one may be what the kernel read ahead.
const MAX_AHEAD_BYTES: u64 = 8 << 20;

/// Device and inode: what a file is, whatever it is called.
pub type Key = (u64, u64);

/// Pages of ours that are cached now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Excess {
    pub pages: u64,
    /// Dirty or under writeback.
    pub dirty: u64,
}

/// Pages that belong to everybody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prior {
    /// Nobody had a chance to bring in more.
    AsSeenNow,
    /// So many from the start of the file on.
    First(u64),
}

/// Looked at before the command got it, or as it was made by the command.
#[derive(Debug)]
pub struct Watched {
    pub file: File,
    pub key: Key,
    /// Pages that belong to everybody else.
    prior: cache::Runs,
    prior_pages: u64,
    /// Bytes that the kernel may read ahead of a reader.
    ahead: u64,
    /// Thread that opened it first, and how far its reading was when we looked last.
    pub opener: u32,
    pub position: u64,
    /// Too many of its pages could be in the cache at once.
    pub is_large: bool,
    pub excess: Excess,
    pub peak: u64,
    pub dropped: u64,
    pub changed: Instant,
    /// Handed to the thread that writes.
    pub with_writer: bool,
    /// A drop that left everything there (mapped, say) is tried again after this, each time later.
    pub not_before: Instant,
    backoff: Duration,
}

impl Watched {
    /// # Errors
    /// The kernel does not tell what is cached of it.
    pub fn new(file: File, key: Key, prior: Prior, ahead: u64) -> Result<Self, cache::Error> {
        let is_large = key.0 == u64::MAX || file.metadata().map_or(true, |now| now.size() > LARGE);
        let prior = match prior {
            Prior::AsSeenNow => cache::read_runs(&file, RUNS)?,
            Prior::First(pages) => {
                let mut runs = cache::Runs::default();
                runs.push(0..pages);
                runs
            }
        };
        let now = Instant::now();
        Ok(Self {
            file,
            key,
            prior_pages: prior.pages(),
            prior,
            ahead: ahead.min(MAX_AHEAD_BYTES) / cache::page_size(),
            opener: 0,
            position: 0,
            is_large,
            excess: Excess::default(),
            peak: 0,
            dropped: 0,
            changed: now,
            with_writer: false,
            not_before: now,
            backoff: Duration::ZERO,
        })
    }

    pub fn opened_by(self, opener: u32) -> Self {
        Self { opener, ..self }
    }

    /// True once nobody can open it any more: its pages go with it.
    pub fn is_deleted(&self) -> bool {
        self.file.metadata().map_or(true, |now| now.nlink() == 0)
    }

    /// Counts what is ours. Notes when it changed, for `is_settled`.
    pub fn look(&mut self) -> Result<Excess, cache::Error> {
        let counts = cache::count_pages(&self.file, 0..u64::MAX)?;
        let dirty = counts.dirty.unwrap_or(0) + counts.writeback.unwrap_or(0);
        // Pages of others may have left meanwhile: only where some were is it worth a closer look.
        let prior = if self.prior_pages == 0 { 0 } else { self.count_prior()? };
        let now = Excess { pages: counts.cached.saturating_sub(prior), dirty };
        if now != self.excess {
            self.changed = Instant::now();
        }
        self.excess = now;
        self.is_large |= now.pages * cache::page_size() > LARGE;
        self.peak = self.peak.max(now.pages);
        Ok(now)
    }

    fn count_prior(&self) -> Result<u64, cache::Error> {
        let size = cache::page_size();
        self.prior.iter().try_fold(0, |sum, run| {
            let bytes = run.start * size..run.end * size;
            Ok(sum + cache::count_pages(&self.file, bytes)?.cached)
        })
    }

    pub fn ahead_pages(&self) -> u64 {
        self.ahead
    }

    pub fn is_settled(&self) -> bool {
        self.changed.elapsed() > SETTLED
    }

    /// Starts to write what is dirty; does not wait until it is written.
    pub fn write_back(&mut self) -> Result<(), cache::Error> {
        cache::start_writeback(&self.file, 0..u64::MAX)
    }

    /// Waits until what is dirty is written.
    pub fn wait_written(&mut self) -> Result<(), cache::Error> {
        cache::wait_writeback(&self.file, 0..u64::MAX)?;
        self.look().map(drop)
    }

    /// Drops what lies before a reader at `position`, or before all that may be read ahead.
    pub fn drop_behind(&mut self, position: Option<u64>) -> Result<(), cache::Error> {
        let end = match position {
            Some(bytes) => bytes / cache::page_size(),
            None => match cache::find_last_page(&self.file, 0..self.pages()?)? {
                Some(last) => (last + 1).saturating_sub(self.ahead.max(256)),
                None => return Ok(()),
            },
        };
        let before = self.excess.pages;
        self.drop_pages(end)?;
        if position.is_none() {
            self.back_off(self.excess.pages >= before);
        }
        Ok(())
    }

    /// Drops all of ours that is clean; the kernel starts to write what is dirty.
    pub fn drop_all(&mut self) -> Result<(), cache::Error> {
        self.drop_pages(u64::MAX / cache::page_size())?;
        self.back_off(self.excess.pages > 0);
        Ok(())
    }

    fn back_off(&mut self, useless: bool) {
        let longer = (self.backoff * 2).clamp(Duration::from_millis(1), Duration::from_secs(1));
        self.backoff = if useless { longer } else { Duration::ZERO };
        self.not_before = Instant::now() + self.backoff;
    }

    fn drop_pages(&mut self, end: u64) -> Result<(), cache::Error> {
        let before = self.excess.pages;
        cache::drop_pages_except(&self.file, 0..end, &self.prior)?;
        let after = self.look()?.pages;
        self.dropped += before.saturating_sub(after);
        Ok(())
    }

    fn pages(&self) -> Result<u64, cache::Error> {
        let size = self.file.metadata().map_or(0, |now| now.size());
        Ok(cache::pages_of(&(0..size)).end)
    }
}
