//! What is there of a write where data is copied: its blocks, and what makes its file long.

use std::borrow::Cow;

use diskproof_states::choice::StateId;
use diskproof_states::content::Store;
use diskproof_states::cut::collect;
use diskproof_states::fault::{Durability, Fault};
use diskproof_states::image::Image;
use diskproof_wire::crash_log::{Flags, Operation};

use crate::logs::{Recording, DISK, SECTOR};
use crate::power::{allow, create, fsync, look, Seen};

const BLOCK: u64 = 4096;

fn put(recording: &mut Recording, file: u64, offset: u64, length: u64, byte: u8) {
    let data = Cow::Owned(vec![byte; length as usize]);
    recording.add(file, Operation::Write { flags: Flags::NONE, offset, data });
}

/// Where a file can be so: the bytes at these places, and its length.
pub fn allow_file(
    make: impl Fn(&mut Recording),
    name: &'static str,
    length: u64,
    bytes: &[(u64, u8)],
) -> Vec<Fault> {
    let bytes = bytes.to_vec();
    let is_such = move |seen: &Seen| {
        let Some((content, _)) = seen.get(name) else { return false };
        let holds = |&(place, byte): &(u64, u8)| content.get(place as usize) == Some(&byte);
        content.len() as u64 == length && bytes.iter().all(holds)
    };
    allow(make, is_such)
}

fn can_be(
    make: impl Fn(&mut Recording),
    name: &'static str,
    end: u64,
    bytes: &[(u64, u8)],
) -> bool {
    allow_file(make, name, end, bytes).contains(&Fault::PowerBtrfs)
}

/// Seen: written back from its last block, or on a disk of small holes from its first; or a commit
/// came while the write was under way.
#[test]
fn a_write_is_there_by_blocks_and_the_file_is_as_long_as_it_was_in_memory() {
    let make = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, BLOCK - SECTOR, 2 * SECTOR, 7);
    };
    let end = BLOCK + SECTOR;
    assert!(can_be(make, "a", end, &[(BLOCK - 1, 0), (BLOCK, 7)]));
    assert!(can_be(make, "a", end, &[(BLOCK - 1, 7), (BLOCK, 0)]));
    assert!(can_be(make, "a", BLOCK, &[(BLOCK - 1, 7)]));
    assert!(!can_be(make, "a", end, &[(BLOCK - 1, 0), (BLOCK, 0)]), "nothing brings it");
    let within = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, 0, 2 * SECTOR, 7);
    };
    assert!(!can_be(within, "a", 2 * SECTOR, &[(0, 7), (SECTOR, 0)]));
    assert!(!can_be(within, "a", 2 * SECTOR, &[(0, 0), (SECTOR, 7)]));
}

#[test]
fn the_length_of_a_write_comes_with_the_data_of_another_to_the_same_file() {
    let make = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, 0, SECTOR, 7);
        put(recording, 10, BLOCK, SECTOR, 8);
    };
    let end = BLOCK + SECTOR;
    assert!(can_be(make, "a", end, &[(0, 7), (BLOCK, 0)]));
    assert!(can_be(make, "a", end, &[(0, 0), (BLOCK, 8)]));
    assert!(!can_be(make, "a", end, &[(0, 0), (BLOCK, 0)]));
}

/// Seen: `truncate 2500; truncate 9000` brings the bytes behind 2500 back, `punch 1000..10000`
/// leaves its ends.
#[test]
fn the_edges_of_truncations_and_zeros_are_data_of_their_own() {
    let shrunk = |recording: &mut Recording| {
        put(recording, DISK, 0, SECTOR, 7);
        fsync(recording, DISK);
        recording.add(DISK, Operation::Truncate { size: 100 });
        recording.add(DISK, Operation::Truncate { size: BLOCK });
    };
    assert!(can_be(shrunk, "disk", BLOCK, &[(99, 7), (100, 7)]));
    let punched = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, BLOCK - SECTOR, 2 * SECTOR, 7);
        let (mode, offset, length) = (0x11, BLOCK + 100, SECTOR - 100);
        recording.add(10, Operation::Fallocate { mode, offset, length });
    };
    let end = BLOCK + SECTOR;
    assert!(can_be(punched, "a", end, &[(BLOCK, 7), (BLOCK + SECTOR - 1, 0)]));
    assert!(can_be(punched, "a", end, &[(BLOCK, 7), (BLOCK + SECTOR - 1, 7)]));
    let zeroed = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, BLOCK - SECTOR, 2 * SECTOR, 7);
        fsync(recording, 10);
        recording.add(10, Operation::Fallocate { mode: 0x10, offset: 0, length: BLOCK + 100 });
    };
    let (kept, edge) = ((BLOCK - 1, 7), (BLOCK + 99, 0));
    assert!(can_be(zeroed, "a", end, &[kept, edge]), "the edge is written before the rest goes");
    assert!(can_be(zeroed, "a", end, &[(BLOCK - 1, 0), (BLOCK + 99, 7)]));
}

#[test]
fn a_file_ends_within_a_write_at_a_block_until_a_later_one_is_there() {
    let record = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, BLOCK - SECTOR, BLOCK + 2 * SECTOR, 7);
        put(recording, 10, 0, SECTOR, 9);
    };
    let whole = 2 * BLOCK + SECTOR;
    for length in [BLOCK, 2 * BLOCK, whole] {
        assert!(can_be(record, "a", length, &[(length - 1, 7)]));
        assert_eq!(can_be(record, "a", length, &[(0, 9)]), length == whole);
    }
    assert!(!can_be(record, "a", BLOCK + SECTOR, &[]));
    assert!(can_be(record, "a", 2 * BLOCK, &[(BLOCK - 1, 7), (BLOCK, 0)]), "the rest comes later");
}

/// Seen: a write that went over the end of a file, when the kernel had committed its first block.
#[test]
fn a_write_is_there_as_far_as_the_file_was_long() {
    let record = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, BLOCK - 2 * SECTOR, 2 * SECTOR, 7);
        put(recording, 10, BLOCK - SECTOR, 2 * SECTOR, 9);
    };
    assert!(can_be(record, "a", BLOCK, &[(BLOCK - SECTOR - 1, 7), (BLOCK - 1, 9)]));
    let zeroed = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, BLOCK - SECTOR, 2 * SECTOR, 7);
        recording.add(10, Operation::Fallocate { mode: 0x11, offset: 0, length: BLOCK });
    };
    assert!(can_be(zeroed, "a", BLOCK, &[(BLOCK - 1, 0)]), "what it waited for was there before");
}

/// Seen: a direct write over the first part of a file that had been written half when the kernel
/// committed.
#[test]
fn a_write_over_another_comes_with_its_length_and_the_other_without_it() {
    let record = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, 0, BLOCK + SECTOR, 7);
        put(recording, 10, 0, BLOCK, 9);
    };
    assert!(can_be(record, "a", BLOCK, &[(0, 7)]));
    assert!(!can_be(record, "a", BLOCK, &[(0, 9)]));
    assert!(can_be(record, "a", BLOCK + SECTOR, &[(0, 9), (BLOCK, 0)]));
}

/// `btrfs_punch_hole`, `btrfs_fallocate` and `btrfs_truncate` wait for what is under way there.
#[test]
fn a_range_that_is_zeroed_or_cut_off_brings_what_was_written_in_its_blocks() {
    let punched = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, BLOCK - SECTOR, 2 * SECTOR, 7);
        recording.add(10, Operation::Fallocate { mode: 0x11, offset: BLOCK, length: 100 });
    };
    let end = BLOCK + SECTOR;
    assert!(can_be(punched, "a", end, &[(BLOCK - 1, 0), (BLOCK, 0), (BLOCK + 100, 7)]));
    let cut = |recording: &mut Recording| {
        create(recording, 10, "a");
        put(recording, 10, 0, 2 * SECTOR, 7);
        recording.add(10, Operation::Truncate { size: SECTOR });
        put(recording, 10, BLOCK, SECTOR, 9);
    };
    assert!(can_be(cut, "a", SECTOR, &[(0, 7)]));
    assert!(!can_be(cut, "a", SECTOR, &[(0, 0)]));
    assert!(can_be(cut, "a", BLOCK + SECTOR, &[(0, 7), (BLOCK, 9)]));
    assert!(!can_be(cut, "a", BLOCK + SECTOR, &[(0, 7), (BLOCK, 0)]), "nothing brings its length");
}

/// Seen: `write 12288; truncate 2500; sync; write 9216 at 2500` had the old bytes from 2500 to 4096
/// beside what was new behind them: fsync does not write the zeros of a truncation.
#[test]
fn the_zeros_of_a_truncation_are_not_flushed_before_something_comes_to_their_block() {
    let cut = |recording: &mut Recording| {
        put(recording, DISK, 0, BLOCK + SECTOR, 7);
        fsync(recording, DISK);
        recording.add(DISK, Operation::Truncate { size: BLOCK - 100 });
        fsync(recording, DISK);
    };
    let edge = BLOCK - 100;
    let over = |recording: &mut Recording| {
        cut(recording);
        put(recording, DISK, edge, 100 + SECTOR, 9);
    };
    let end = BLOCK + SECTOR;
    assert!(can_be(over, "disk", end, &[(edge - 1, 7), (edge, 7), (BLOCK, 9)]));
    assert!(can_be(over, "disk", end, &[(edge - 1, 7), (edge, 0), (BLOCK, 9)]));
    let behind = |recording: &mut Recording| {
        cut(recording);
        put(recording, DISK, BLOCK, SECTOR, 9);
    };
    assert!(can_be(behind, "disk", end, &[(edge - 1, 7), (edge, 7), (BLOCK, 9)]));
    let flushed = |recording: &mut Recording| {
        behind(recording);
        fsync(recording, DISK);
        recording.add(DISK, Operation::Truncate { size: 2 * BLOCK });
    };
    assert!(can_be(flushed, "disk", 2 * BLOCK, &[(edge, 0)]));
    assert!(!can_be(flushed, "disk", 2 * BLOCK, &[(edge, 7)]));
}

#[test]
fn what_is_written_before_its_block_leaves_the_zeros_of_a_truncation_in_memory() {
    let before = |recording: &mut Recording| {
        put(recording, DISK, 0, 2 * BLOCK, 7);
        fsync(recording, DISK);
        recording.add(DISK, Operation::Truncate { size: 2 * BLOCK - 100 });
        put(recording, DISK, 0, SECTOR, 9);
        fsync(recording, DISK);
        recording.add(DISK, Operation::Truncate { size: 2 * BLOCK });
    };
    let edge = 2 * BLOCK - 100;
    assert!(can_be(before, "disk", 2 * BLOCK, &[(0, 9), (edge - 1, 7), (edge, 7)]));
    assert!(can_be(before, "disk", edge, &[(0, 9), (edge - 1, 7)]));
    assert!(!can_be(before, "disk", edge, &[(0, 7)]), "it is durable");
}

/// What is in `disk` in a state after the last record, told by its end.
fn content(recording: &mut Recording, choice: &str) -> Vec<u8> {
    let (log, base) = recording.finish();
    let store = Store::open(&log, &base, None).unwrap().under(Fault::PowerBtrfs);
    let durability = Durability::new(&store.trace, Fault::PowerBtrfs);
    let mut image = Image::new(&store, &durability);
    let last = store.trace.last();
    image.advance(last).unwrap();
    let changes = (1..=last).filter(|one| store.trace.change(*one).is_some());
    let first = changes.min().unwrap();
    let state: StateId = format!("power-btrfs:512:{last}:without={first}{choice}").parse().unwrap();
    look(&collect(&image, &[]), &state.choice)["disk"].0.clone()
}

#[test]
fn a_write_is_not_there_without_the_truncation_before_it() {
    let mut recording = Recording::new(b"old");
    recording.add(DISK, Operation::Truncate { size: 0 });
    put(&mut recording, DISK, SECTOR, 2 * SECTOR, 7);
    recording.add(DISK, Operation::Msync { offset: SECTOR, length: SECTOR });
    assert_eq!(content(&mut recording, ""), b"old");
}

#[test]
fn a_tear_that_tells_too_few_sectors_is_one_without_the_others() {
    let mut recording = Recording::new(b"old");
    put(&mut recording, DISK, 0, 3 * BLOCK, 7);
    let content = content(&mut recording, "~1");
    assert_eq!(content.len() as u64, 3 * BLOCK);
    assert_eq!(content.iter().filter(|byte| **byte == 7).count() as u64, BLOCK);
}
