//! When the command has ended: the pages that are still there go, and what cannot go is told.

use crate::keeper::{lock, Shared, Totals};
use diskproof_pagecache::page_size;
use serde::Serialize;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Pages whose write-back has just ended may be held for a moment, and the kernel tells of a
/// process's end before it takes away its mappings.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(5);

/// Files that keep pages, named in the report.
const NAMED: usize = 20;

/// What was done; in bytes.
#[derive(Debug, Serialize)]
pub struct Report {
    pub files: u64,
    /// Files that we may not look at: what they brought in is unknown.
    pub unseen_files: u64,
    /// Read from disks and made dirty by the command and the children it waited for, as the kernel
    /// accounts it.
    pub brought_in_bytes: u64,
    /// By the watcher; readers with the library drop the most part themselves.
    pub dropped_by_watcher_bytes: u64,
    pub left_bytes: u64,
    pub peak_file_bytes: u64,
    pub peak_all_bytes: u64,
    pub left: Vec<Left>,
}

#[derive(Debug, Serialize)]
pub struct Left {
    pub path: String,
    pub bytes: u64,
    pub why: &'static str,
}

/// Looks at all files and drops what is clean.
pub fn drop_clean(files: &[Shared]) {
    for file in files {
        let mut watched = lock(file);
        if watched.look().is_ok_and(|excess| excess.pages > 0 && excess.dirty == 0) {
            let _ = watched.drop_all();
        }
    }
}

/// Files that had pages of ours when they were looked at last: to be written first, or in use.
pub fn find_left(files: &[Shared]) -> Vec<Shared> {
    let has_left = |file: &&Shared| lock(file).excess.pages > 0;
    files.iter().filter(has_left).cloned().collect()
}

/// Writes all of them at once, waits for each, drops its pages. Nothing is flushed: no promise is
/// made about power cuts.
pub fn write_and_drop(files: &[Shared]) {
    for file in files {
        let _ = lock(file).write_back();
    }
    for file in files {
        let _ = lock(file).wait_written();
    }
    let until = Instant::now() + PAUSE * ATTEMPTS;
    for file in files {
        let mut watched = lock(file);
        let _ = watched.drop_all();
        while watched.excess.pages > 0 && Instant::now() < until {
            std::thread::sleep(PAUSE);
            let _ = watched.drop_all();
        }
    }
}

pub fn make_report(files: &[Shared], totals: &Totals, unseen: u64) -> Report {
    let size = page_size();
    let (mut dropped, mut left_pages, mut left) = (totals.dropped, 0, Vec::new());
    for file in files {
        let watched = lock(file);
        dropped += watched.dropped;
        left_pages += watched.excess.pages;
        if watched.excess.pages > 0 && left.len() < NAMED {
            let bytes = watched.excess.pages * size;
            let path = format!("/proc/self/fd/{}", watched.file.as_raw_fd());
            let path = std::fs::read_link(path).unwrap_or_default().to_string_lossy().into_owned();
            let why = match watched.excess.dirty {
                0 => "in use by a process",
                _ => "not written to the disk yet",
            };
            left.push(Left { path, bytes, why });
        }
    }
    let peak = files.iter().map(|file| lock(file).peak).max().unwrap_or(0);
    Report {
        files: totals.files,
        unseen_files: unseen,
        brought_in_bytes: count_blocks() * 512,
        dropped_by_watcher_bytes: dropped * size,
        left_bytes: left_pages * size,
        peak_file_bytes: totals.peak_file.max(peak) * size,
        peak_all_bytes: totals.peak_all.max(peak) * size,
        left,
    }
}

/// Blocks of 512 bytes.
fn count_blocks() -> u64 {
    // SAFETY: all-zero is a valid rusage, and the kernel fills it.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut used);
        used
    };
    u64::try_from(used.ru_inblock + used.ru_oublock).unwrap_or(0)
}

impl std::fmt::Display for Report {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const MIB: f64 = 1_048_576.0;
        #[allow(clippy::cast_precision_loss)] // printed with one decimal
        let mib = |bytes: u64| bytes as f64 / MIB;
        write!(
            out,
            "{} files, {:.1} MiB brought in, {:.1} MiB of them still in the page cache; \
             at most {:.1} MiB of one file",
            self.files,
            mib(self.brought_in_bytes),
            mib(self.left_bytes),
            mib(self.peak_file_bytes),
        )?;
        if self.unseen_files > 0 {
            write!(out, "; {} files could not be looked at", self.unseen_files)?;
        }
        if let Some(first) = self.left.first() {
            write!(out, "; {} stays: {}", first.path, first.why)?;
        }
        Ok(())
    }
}
