//! What is told as not durable, against a count by hand.

#![cfg(test)]

mod logs;

use std::borrow::Cow;

use diskproof_states::unsynced::{unsynced, Exposed};
use diskproof_wire::crash_log::{Flags, Operation, ROOT};
use logs::{entry, Recording, DISK};

fn write(offset: u64, length: usize, flags: Flags) -> Operation<'static> {
    Operation::Write { flags, offset, data: Cow::Owned(vec![1; length]) }
}

fn found(mut recording: Recording) -> Vec<Exposed> {
    let (log, _) = recording.finish();
    let found = unsynced(&log, false).unwrap();
    let alone = found.files.iter().map(|file| file.changes).sum::<u64>();
    assert!(alone > 0 || found.files.iter().all(|file| file.bytes + file.names == 0));
    found.files
}

#[test]
fn what_was_written_counts_until_its_flush() {
    let mut recording = Recording::new(&[0; 4096]);
    recording.add(DISK, write(0, 512, Flags::NONE));
    recording.add(DISK, write(512, 100, Flags::NONE));
    recording.add(DISK, Operation::Fsync { flags: Flags::DATA_ONLY });
    recording.add(DISK, write(0, 200, Flags::DSYNC));
    recording.add(DISK, write(1024, 50, Flags::NONE));
    let [disk] = &found(recording)[..] else { panic!("one file") };
    assert_eq!((disk.path.as_str(), disk.changes, disk.bytes, disk.names), ("disk", 1, 50, 0));
    assert_eq!(disk.most_bytes, 612);
    assert!(disk.longest_ns > disk.oldest_ns && disk.oldest_ns > 0);
}

#[test]
fn a_name_counts_under_its_last_one_until_its_directory_is_flushed() {
    let file = 7;
    let mut recording = Recording::new(&[]);
    recording.add(file, Operation::Create(entry(ROOT, 0o100644, 0, b"new")));
    recording.add(file, write(0, 10, Flags::NONE));
    recording.add(file, Operation::Fsync { flags: Flags::NONE });
    let rename = Operation::Rename {
        flags: 0,
        parent: ROOT,
        new_parent: ROOT,
        replaced: 0,
        name: Cow::Borrowed(b"new"),
        new_name: Cow::Borrowed(b"now"),
    };
    recording.add(file, rename);
    let [now] = &found(recording)[..] else { panic!("one file") };
    assert_eq!((now.path.as_str(), now.changes, now.names, now.bytes), ("now", 2, 2, 0));
}

#[test]
fn nothing_is_told_of_what_is_durable() {
    let mut recording = Recording::new(&[0; 512]);
    recording.add(DISK, write(0, 512, Flags::DSYNC));
    let [disk] = &found(recording)[..] else { panic!("one file") };
    let nothing = Exposed { path: "disk".to_owned(), ..Exposed::default() };
    assert_eq!(*disk, nothing);
}
