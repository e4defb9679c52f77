//! sync(2) and syncfs(2), by the rules of each file system.

use std::borrow::Cow;

use diskproof_states::fault::Fault;
use diskproof_wire::crash_log::{Flags, Operation, ROOT};

use crate::logs::{entry, Recording, DISK, SECTOR};
use crate::power::{allow, create, fsync, rename, write, Seen};

const BLOCK: u64 = 4096;

fn sync(recording: &mut Recording) {
    recording.add(0, Operation::Sync);
}

fn write_at(recording: &mut Recording, offset: u64, length: u64, fill: u8) {
    let data = Cow::Owned(vec![fill; length as usize]);
    recording.add(DISK, Operation::Write { flags: Flags::NONE, offset, data });
}

/// Something that can be missing in any case.
fn later(recording: &mut Recording) {
    create(recording, 99, "later");
}

fn lacks(offset: u64, fill: u8) -> impl Fn(&Seen) -> bool {
    move |seen| seen["disk"].0.get(offset as usize) != Some(&fill)
}

#[test]
fn a_sync_makes_all_durable_that_is_new() {
    let make = |recording: &mut Recording| {
        create(recording, 10, "new");
        write(recording, 10, 3 * SECTOR);
        rename(recording, 10, "new", "named", 0);
        recording.add(10, Operation::Setattr { mode: Some(0o100_600), uid: None, gid: None });
        write_at(recording, BLOCK, BLOCK, 5);
        sync(recording);
        later(recording);
    };
    let is_lost = |seen: &Seen| {
        let named = seen.get("named").is_some_and(|(bytes, mode)| {
            *bytes == vec![7; 3 * SECTOR as usize] && mode & 0o777 == 0o600
        });
        !named || seen["disk"].0.len() as u64 != 2 * BLOCK || lacks(BLOCK, 5)(seen)
    };
    assert_eq!(allow(make, is_lost), []);
}

#[test]
fn what_is_written_in_place_may_be_lost_after_a_sync_on_xfs() {
    let make = |recording: &mut Recording| {
        write_at(recording, 0, 3 * BLOCK, 5);
        fsync(recording, DISK);
        write_at(recording, BLOCK, 3 * BLOCK, 6);
        sync(recording);
        later(recording);
    };
    assert_eq!(allow(make, lacks(BLOCK, 6)), [Fault::PowerXfs]);
    // The block behind the old end has given the log something to write.
    assert_eq!(allow(make, lacks(3 * BLOCK, 6)), []);
    assert_eq!(allow(make, |seen: &Seen| seen["disk"].0.len() as u64 != 4 * BLOCK), []);
}

#[test]
fn an_append_within_a_block_is_durable_after_a_sync() {
    let make = |recording: &mut Recording| {
        write_at(recording, 0, 100, 5);
        fsync(recording, DISK);
        write_at(recording, 100, 100, 6);
        sync(recording);
        later(recording);
    };
    assert_eq!(allow(make, lacks(100, 6)), []);
}

#[test]
fn the_next_flush_of_whatever_makes_it_durable() {
    let flush = |recording: &mut Recording| fsync(recording, 10);
    let commit = |recording: &mut Recording| {
        create(recording, 11, "logged");
        sync(recording);
    };
    let nothing = |recording: &mut Recording| sync(recording);
    let synced = |recording: &mut Recording| {
        let data = Cow::Owned(vec![1; 8]);
        recording.add(10, Operation::Write { flags: Flags::DSYNC, offset: 0, data });
    };
    let left = |flush: &dyn Fn(&mut Recording)| {
        let make = |recording: &mut Recording| {
            create(recording, 10, "other");
            write_at(recording, 0, BLOCK, 5);
            fsync(recording, DISK);
            write_at(recording, 0, BLOCK, 6);
            sync(recording);
            flush(recording);
            later(recording);
        };
        allow(make, lacks(0, 6))
    };
    assert_eq!(left(&flush), []);
    assert_eq!(left(&commit), []);
    assert_eq!(left(&synced), []);
    assert_eq!(left(&nothing), [Fault::PowerXfs]);
}

#[test]
fn the_edges_of_a_hole_may_be_lost_after_a_sync_on_xfs_and_the_hole_is_not() {
    for is_durable in [true, false] {
        let make = |recording: &mut Recording| {
            create(recording, 10, "other");
            write_at(recording, 0, 3 * BLOCK, 5);
            fsync(recording, if is_durable { DISK } else { 10 });
            let (offset, length) = (100, 2 * BLOCK);
            recording.add(DISK, Operation::Fallocate { mode: 3, offset, length });
            sync(recording);
            later(recording);
        };
        assert_eq!(allow(make, lacks(100, 0)), [Fault::PowerXfs]);
        assert_eq!(allow(make, lacks(2 * BLOCK + 99, 0)), [Fault::PowerXfs]);
        assert_eq!(allow(make, lacks(BLOCK + 100, 0)), []);
        let has = |seen: &Seen| !lacks(100, 0)(seen) && !lacks(2 * BLOCK + 99, 0)(seen);
        assert!(allow(make, has).contains(&Fault::PowerXfs));
    }
}

#[test]
fn a_directory_may_say_any_length() {
    let make = |recording: &mut Recording| {
        std::fs::create_dir(recording.path("base/directory")).unwrap();
        let said = entry(ROOT, 0o40755, u64::MAX, b"directory");
        recording.add(3, Operation::Base(said));
        write_at(recording, 0, BLOCK, 5);
        sync(recording);
        later(recording);
    };
    assert_eq!(allow(make, lacks(0, 5)), []);
}
