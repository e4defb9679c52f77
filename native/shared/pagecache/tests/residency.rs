//! Residency of real files, on the file system of the build's folder.

#![cfg(test)]

use diskproof_pagecache as cache;
use proptest::prelude::*;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::FileExt;

fn scratch() -> File {
    tempfile::tempfile_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A file of so many pages, written and dropped.
fn cold(pages: u64) -> File {
    let mut file = scratch();
    file.write_all(&vec![7; usize::try_from(pages * cache::page_size()).unwrap()]).unwrap();
    file.sync_all().unwrap();
    cache::drop_pages(&file, 0..u64::MAX).unwrap();
    // Small reads must load what they ask for, nothing ahead.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    file
}

fn load(file: &File, page: u64) {
    file.read_exact_at(&mut [0], page * cache::page_size()).unwrap();
}

#[test]
fn pages_that_were_read_are_counted_and_found() {
    let file = cold(64);
    assert_eq!(cache::count_pages(&file, 0..u64::MAX).unwrap().cached, 0);
    assert_eq!(cache::find_last_page(&file, 0..64).unwrap(), None);
    for page in [3, 4, 40] {
        load(&file, page);
    }
    let counts = cache::count_pages(&file, 0..u64::MAX).unwrap();
    assert_eq!((counts.cached, counts.dirty), (3, Some(0)));
    let size = cache::page_size();
    assert_eq!(cache::count_pages(&file, 4 * size..40 * size).unwrap().cached, 1);
    assert_eq!(cache::find_last_page(&file, 0..64).unwrap(), Some(40));
    assert_eq!(cache::find_last_page(&file, 0..40).unwrap(), Some(4));
    let runs = cache::read_runs(&file, 100).unwrap();
    assert_eq!(runs.iter().cloned().collect::<Vec<_>>(), [3..5, 40..41]);
}

#[test]
fn a_write_is_dirty_until_it_is_written_and_stays_whole_when_dropped() {
    let file = cold(8);
    assert!((0..5).any(|_| {
        file.write_all_at(&[9; 5000], 100).unwrap();
        cache::count_pages(&file, 0..u64::MAX).unwrap().dirty == Some(2)
    })); // somebody may sync in between
    cache::start_writeback(&file, 0..u64::MAX).unwrap();
    cache::wait_writeback(&file, 0..u64::MAX).unwrap();
    let counts = cache::count_pages(&file, 0..u64::MAX).unwrap();
    assert_eq!((counts.dirty, counts.writeback), (Some(0), Some(0)));
    cache::drop_pages(&file, 0..u64::MAX).unwrap();
    assert_eq!(cache::count_pages(&file, 0..u64::MAX).unwrap().cached, 0);
    let mut back = [0; 5000];
    file.read_exact_at(&mut back, 100).unwrap();
    assert_eq!(back, [9; 5000]);
}

#[test]
fn what_is_to_stay_stays() {
    let file = cold(32);
    for page in 0..32 {
        load(&file, page);
    }
    let mut keep = cache::Runs::default();
    keep.push(4..8);
    keep.push(31..32);
    cache::drop_pages_except(&file, 0..32, &keep).unwrap();
    assert_eq!(cache::read_runs(&file, 100).unwrap(), keep);
}

#[test]
fn a_sparse_file_of_terabytes_costs_what_is_cached_of_it() {
    let file = scratch();
    file.set_len(8 << 40).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let last = (8 << 40) / cache::page_size() - 1;
    load(&file, last);
    load(&file, 1 << 20);
    let runs = cache::read_runs(&file, 100).unwrap();
    assert_eq!(runs.iter().cloned().collect::<Vec<_>>(), [1 << 20..(1 << 20) + 1, last..last + 1]);
    cache::drop_pages(&file, 0..u64::MAX).unwrap();
}

#[test]
fn too_many_runs_are_coarsened_and_cover_what_is_cached() {
    let file = cold(64);
    for page in (0..64).step_by(2) {
        load(&file, page);
    }
    let runs = cache::read_runs(&file, 5).unwrap();
    assert!(runs.len() <= 5);
    assert!((0..64).step_by(2).all(|page| runs.gaps(&(page..page + 1)).is_empty()));
}

#[test]
fn a_pipe_has_no_pages_to_drop() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let counts = cache::count_pages(&reader, 0..u64::MAX).unwrap();
    assert_eq!((counts.cached, counts.dirty), (0, Some(0)));
    assert!(cache::read_runs(&reader, 10).unwrap().is_empty());
    assert_eq!(cache::drop_pages(&reader, 0..u64::MAX), Err(cache::Error::NoPages));
}

proptest! {
    #[test]
    fn gaps_and_runs_share_out_every_range(
        lengths in prop::collection::vec(1_u64..9, 0..20),
        start in 0_u64..90,
        length in 0_u64..90,
    ) {
        let mut runs = cache::Runs::default();
        let mut page = 0;
        for two in lengths.chunks_exact(2) {
            page += two[0];
            runs.push(page..page + two[1]);
            page += two[1];
        }
        let asked = start..start + length;
        let gaps = runs.gaps(&asked);
        let free: u64 = gaps.iter().map(|gap| gap.end - gap.start).sum();
        let before = runs.clone();
        let held = |pages: &Range<u64>| -> u64 {
            let both = |run: &Range<u64>| run.start.max(pages.start)..run.end.min(pages.end);
            before.iter().map(both).map(|run| run.end.saturating_sub(run.start)).sum()
        };
        prop_assert_eq!(free + held(&asked), length);
        prop_assert!(gaps.iter().all(|gap| held(gap) == 0 && !gap.is_empty()));
        runs.coarsen();
        prop_assert!(before.iter().all(|run| runs.gaps(run).is_empty()));
        prop_assert!(runs.len() <= before.len().div_ceil(2).max(1));
    }
}
