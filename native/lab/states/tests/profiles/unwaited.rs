//! f2fs as it is: of the first record after a checkpoint nobody knows when it is on the disk.

use std::borrow::Cow;

use diskproof_states::content::Store;
use diskproof_states::fault::Fault;
use diskproof_wire::crash_log::{Flags, Operation, ROOT};

use crate::logs::{Recording, DISK};
use crate::power::{create, fsync, rename, states, write, Seen};
use crate::{compare, random_store};

/// Whether a power cut leaves such a thing on f2fs as it is meant, and as Linux has it.
fn leave(make: impl Fn(&mut Recording), is_such: impl Fn(&Seen) -> bool) -> [bool; 2] {
    [Fault::PowerF2fs, Fault::PowerF2fsUnwaited].map(|fault| {
        let mut recording = Recording::new(b"old");
        make(&mut recording);
        create(&mut recording, 99, "later");
        states(&mut recording, fault).iter().any(&is_such)
    })
}

fn make_new(recording: &mut Recording) {
    create(recording, 10, "new");
    write(recording, 10, 100);
    fsync(recording, 10);
}

/// O_DSYNC.
fn overwrite(recording: &mut Recording) {
    let data = Cow::Owned(b"new".to_vec());
    recording.add(DISK, Operation::Write { flags: Flags::DSYNC, offset: 0, data });
}

fn is_lost(seen: &Seen) -> bool {
    seen.get("new").is_none_or(|(bytes, _)| *bytes != vec![7; 100])
}

#[test]
fn what_was_flushed_last_may_be_lost() {
    assert_eq!(leave(make_new, is_lost), [false, true]);
    assert_eq!(leave(overwrite, |seen| seen["disk"].0 == b"old"), [false, true]);
}

#[test]
fn it_is_there_by_itself() {
    let make = |recording: &mut Recording| {
        create(recording, 11, "earlier");
        make_new(recording);
    };
    let is_alone = |seen: &Seen| !is_lost(seen) && !seen.contains_key("earlier");
    assert_eq!(leave(make, is_alone), [true, true]);
}

#[test]
fn the_next_flush_of_the_disk_keeps_it() {
    let flushes: [fn(&mut Recording); 4] = [
        |recording| {
            create(recording, 11, "other");
            fsync(recording, 11);
        },
        |recording| fsync(recording, ROOT),
        |recording| {
            recording.add(0, Operation::Sync);
        },
        overwrite,
    ];
    for flush in flushes {
        let make = |recording: &mut Recording| {
            make_new(recording);
            flush(recording);
        };
        assert_eq!(leave(make, is_lost), [false, false]);
    }
}

#[test]
fn a_file_that_has_nothing_to_write_has_no_disk_flush() {
    let again = |recording: &mut Recording| {
        make_new(recording);
        fsync(recording, 10);
        fsync(recording, DISK);
    };
    assert_eq!(leave(again, is_lost), [false, true]);
}

#[test]
fn a_checkpoint_is_waited_for() {
    let renamed = |recording: &mut Recording| {
        create(recording, 10, "old");
        rename(recording, 10, "old", "new", 0);
        fsync(recording, 10);
    };
    assert_eq!(leave(renamed, |seen| !seen.contains_key("new")), [false, false]);
    let directory = |recording: &mut Recording| {
        create(recording, 10, "new");
        fsync(recording, ROOT);
    };
    assert_eq!(leave(directory, |seen| !seen.contains_key("new")), [false, false]);
}

#[test]
fn it_leaves_all_that_its_design_does() {
    let all = |(store, seed): (Store, u64)| {
        let store = store.under(Fault::PowerF2fs);
        compare(&store, (Fault::PowerF2fsUnwaited, Fault::PowerF2fs), seed)
    };
    let compared: usize = (0..40).filter_map(random_store).map(all).sum();
    assert!(compared > 200, "{compared}");
}
