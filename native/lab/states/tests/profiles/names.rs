//! Which names are there, and which go with which.

use diskproof_states::fault::Fault;
use diskproof_wire::crash_log::{Operation, ROOT};

use crate::logs::{entry, Recording, DISK, SECTOR};
use crate::power::{allow, create, fsync, move_to, rename, write, Seen, FILE};

#[test]
fn names_come_in_their_order() {
    let make = |recording: &mut Recording| {
        create(recording, 10, "a");
        create(recording, 11, "b");
    };
    let second_alone = |seen: &Seen| seen.contains_key("b") && !seen.contains_key("a");
    assert_eq!(allow(make, second_alone), [Fault::Power]);
}

#[test]
fn fsync_of_a_new_file_keeps_its_name_and_with_a_journal_all_before() {
    let make = |recording: &mut Recording| {
        create(recording, 10, "earlier");
        create(recording, 11, "synced");
        write(recording, 11, SECTOR);
        fsync(recording, 11);
        create(recording, 12, "later");
    };
    let lost = |name: &'static str| allow(make, move |seen: &Seen| !seen.contains_key(name));
    assert_eq!(lost("synced"), [Fault::Power]);
    assert_eq!(lost("earlier"), [Fault::Power, Fault::PowerBtrfs, Fault::PowerF2fs]);
    assert_eq!(lost("later").len(), 7);
}

#[test]
fn fsync_of_a_new_file_brings_its_new_directories_and_on_btrfs_nothing_from_before() {
    let make = |renames: bool| {
        move |recording: &mut Recording| {
            create(recording, 10, "earlier");
            let made = if renames { "first" } else { "new" };
            recording.add(11, Operation::Mkdir(entry(ROOT, 0o40755, 0, made.as_bytes())));
            if renames {
                rename(recording, 11, "first", "new", 0);
            }
            recording.add(12, Operation::Create(entry(11, FILE as u32, 0, b"synced")));
            fsync(recording, 12);
            create(recording, 13, "later");
        }
    };
    let is_lost = |seen: &Seen| !seen.contains_key("new/synced");
    assert_eq!(allow(make(false), is_lost), [Fault::Power, Fault::PowerF2fs]);
    assert!(allow(make(true), is_lost).contains(&Fault::PowerBtrfs), "committed in between");
    let is_alone = |seen: &Seen| seen.contains_key("new/synced") && !seen.contains_key("earlier");
    for renames in [false, true] {
        assert!(allow(make(renames), is_alone).contains(&Fault::PowerBtrfs));
    }
}

/// generic/342 of xfstests: not on f2fs with `fsync_mode=posix`, nor of what btrfs never logged.
#[test]
fn a_name_that_another_file_had_is_not_always_durable_with_its_file() {
    let make = |flushes: &'static [u64], first: u64, name: &'static str| {
        move |recording: &mut Recording| {
            create(recording, 10, "new");
            flushes.iter().for_each(|&file| fsync(recording, file));
            rename(recording, first, name, "old", 0);
            create(recording, 11, name);
            fsync(recording, 11);
            create(recording, 12, "later");
        }
    };
    let no_old = |seen: &Seen| !seen.contains_key("old");
    let weak = [Fault::Power, Fault::PowerBtrfs, Fault::PowerF2fs];
    assert_eq!(allow(make(&[], 10, "new"), no_old), weak);
    for (flushes, first, name) in [(&[] as &[u64], DISK, "disk"), (&[10], 10, "new")] {
        assert_eq!(allow(make(flushes, first, name), no_old), [Fault::Power, Fault::PowerF2fs]);
    }
}

/// Recovery takes the name from whoever has it, and that file is gone.
#[test]
fn on_f2fs_a_new_file_that_is_synced_takes_its_name_from_one_that_was_renamed() {
    let make = |is_synced: bool| {
        move |recording: &mut Recording| {
            create(recording, 9, "earlier");
            rename(recording, DISK, "disk", "old", 0);
            create(recording, 10, "disk");
            write(recording, 10, SECTOR);
            if is_synced {
                fsync(recording, 10);
            }
            create(recording, 11, "later");
        }
    };
    let is_new = |seen: &Seen| seen.get("disk").is_some_and(|file| file.0 != b"old");
    let is_lost = |seen: &Seen| is_new(seen) && !seen.contains_key("old");
    assert_eq!(allow(make(true), is_lost), [Fault::PowerF2fs]);
    assert_eq!(allow(make(false), is_lost), []);
    let is_alone = |seen: &Seen| is_new(seen) && !seen.contains_key("earlier");
    assert!(allow(make(true), is_alone).contains(&Fault::PowerF2fs));
    assert!(!allow(make(false), is_alone).contains(&Fault::PowerF2fs));
}

/// `mv A/disk B/disk; fsync B` leaves both names; what brings the end of the old one brings all.
#[test]
fn a_name_in_another_directory_may_be_durable_before_the_old_one_is_gone() {
    let make = |before: &'static [u64], flushes: &'static [u64]| {
        move |recording: &mut Recording| {
            for (directory, name) in [(20, "A"), (21, "B")] {
                std::fs::create_dir(recording.path("base").join(name)).unwrap();
                let made = entry(ROOT, 0o40755, 0, name.as_bytes());
                recording.add(directory, Operation::Base(made));
            }
            std::fs::write(recording.path("base/A/old"), b"").unwrap();
            recording.add(22, Operation::Base(entry(20, FILE as u32, 0, b"old")));
            for &file in before {
                write(recording, 22, 1);
                fsync(recording, file);
            }
            move_to(recording, 22, (20, "old"), (21, "new"));
            flushes.iter().for_each(|&file| fsync(recording, file));
            create(recording, 10, "later");
        }
    };
    let both = |seen: &Seen| seen.contains_key("A/old") && seen.contains_key("B/new");
    let none = |seen: &Seen| !seen.contains_key("A/old") && !seen.contains_key("B/new");
    for before in [&[] as &[u64], &[22]] {
        assert_eq!(allow(make(before, &[21]), both), [Fault::PowerBtrfs]);
        assert_eq!(allow(make(before, &[21]), none), []);
    }
    for (before, flushes) in [
        (&[] as &[u64], &[] as &[u64]),
        (&[], &[22]),
        (&[], &[20]),
        (&[], &[21, 22]),
        (&[], &[21, 20]),
        (&[22], &[22]),
    ] {
        assert_eq!(allow(make(before, flushes), both), [], "{before:?} {flushes:?}");
        assert_eq!(allow(make(before, flushes), none), []);
    }
}

/// `creat a; ln a b; fsync b; creat c; mv c a`: whatever is flushed next takes `a` out of the log.
#[test]
fn a_linked_name_is_durable_without_the_first_one_where_another_file_gets_that() {
    let make = |is_taken: bool| {
        move |recording: &mut Recording| {
            create(recording, 10, "a");
            let name = (&b"b"[..]).into();
            recording.add(10, Operation::Link { parent: ROOT, name });
            fsync(recording, 10);
            create(recording, 11, "c");
            if is_taken {
                rename(recording, 11, "c", "a", 10);
            }
        }
    };
    let is_torn = |seen: &Seen| seen.contains_key("b") && !seen.contains_key("a");
    assert_eq!(allow(make(true), is_torn), [Fault::PowerBtrfs]);
    assert_eq!(allow(make(false), is_torn), []);
}

/// What is in the log is there without what was before it; and what is renamed from there.
#[test]
fn what_btrfs_has_logged_needs_nothing_from_before() {
    let is_lost = |seen: &Seen| !seen.contains_key("earlier");
    let has = |name: &'static str| move |seen: &Seen| seen.contains_key(name) && is_lost(seen);
    let renamed = |recording: &mut Recording| {
        create(recording, 9, "earlier");
        create(recording, 10, "a");
        fsync(recording, 10);
        rename(recording, 10, "a", "b", 0);
    };
    assert!(allow(renamed, has("a")).contains(&Fault::PowerBtrfs));
    assert!(!allow(renamed, has("b")).contains(&Fault::PowerBtrfs), "no flush since");
    let flushed = |recording: &mut Recording| {
        renamed(recording);
        create(recording, 11, "c");
        fsync(recording, 11);
        create(recording, 12, "later");
    };
    assert!(allow(flushed, has("b")).contains(&Fault::PowerBtrfs));
    assert!(!allow(flushed, has("later")).contains(&Fault::PowerBtrfs));
    let replaced = |recording: &mut Recording| {
        create(recording, 10, "a");
        let name = (&b"earlier"[..]).into();
        recording.add(10, Operation::Link { parent: ROOT, name });
        create(recording, 11, "c");
        rename(recording, 11, "c", "a", 10);
        fsync(recording, 11);
        create(recording, 12, "later");
    };
    assert!(allow(replaced, has("a")).contains(&Fault::PowerBtrfs));
    let mapped = |recording: &mut Recording| {
        create(recording, 9, "earlier");
        create(recording, 10, "a");
        write(recording, 10, 2 * SECTOR);
        recording.add(10, Operation::Msync { offset: 0, length: SECTOR });
        create(recording, 12, "later");
    };
    let lacks = |seen: &Seen| seen.get("a").is_none_or(|file| file.0.len() as u64 != 2 * SECTOR);
    assert!(!allow(mapped, lacks).contains(&Fault::PowerBtrfs));
    assert!(allow(mapped, has("a")).contains(&Fault::PowerBtrfs));
}

#[test]
fn msync_of_a_new_file_logs_its_new_directories_and_nothing_from_before() {
    let make = |recording: &mut Recording| {
        create(recording, 9, "earlier");
        create(recording, 10, "synced");
        fsync(recording, 10);
        recording.add(11, Operation::Mkdir(entry(ROOT, 0o40755, 0, b"new")));
        recording.add(12, Operation::Create(entry(11, FILE as u32, 0, b"mapped")));
        write(recording, 12, 2 * SECTOR);
        recording.add(12, Operation::Msync { offset: 0, length: SECTOR });
        create(recording, 13, "later");
    };
    let is_alone = |seen: &Seen| seen.contains_key("new/mapped") && !seen.contains_key("earlier");
    assert!(allow(make, is_alone).contains(&Fault::PowerBtrfs));
}

/// `log_new_dir_dentries`: also where they have other names, and what is in new directories below.
#[test]
fn fsync_of_a_directory_logs_what_is_new_in_it_by_all_its_names() {
    let make = |is_synced: bool| {
        move |recording: &mut Recording| {
            recording.add(11, Operation::Mkdir(entry(ROOT, 0o40755, 0, b"A")));
            fsync(recording, ROOT);
            create(recording, 9, "earlier");
            recording.add(10, Operation::Create(entry(11, FILE as u32, 0, b"new")));
            let name = (&b"linked"[..]).into();
            recording.add(10, Operation::Link { parent: ROOT, name });
            recording.add(12, Operation::Mkdir(entry(11, 0o40755, 0, b"B")));
            recording.add(13, Operation::Create(entry(12, FILE as u32, 0, b"below")));
            if is_synced {
                fsync(recording, 11);
            }
            create(recording, 14, "later");
        }
    };
    for (name, is_logged) in [("linked", true), ("A/B/below", true), ("later", false)] {
        let is_alone = |seen: &Seen| seen.contains_key(name) && !seen.contains_key("earlier");
        assert_eq!(allow(make(true), is_alone).contains(&Fault::PowerBtrfs), is_logged, "{name}");
        assert!(!allow(make(false), is_alone).contains(&Fault::PowerBtrfs));
    }
}

/// As LevelDB does: no manifest that CURRENT still names is gone. But for one that is logged later:
/// a commit in between has emptied the log.
#[test]
fn what_btrfs_logs_at_once_needs_what_it_logged_at_once_before() {
    let make = |is_logged_anew: bool| {
        move |recording: &mut Recording| {
            create(recording, 10, "tmp");
            create(recording, 11, "other");
            fsync(recording, ROOT);
            rename(recording, 10, "tmp", "current", 0);
            if is_logged_anew {
                write(recording, 11, SECTOR);
                fsync(recording, 11);
            }
            let name = (&b"other"[..]).into();
            recording.add(11, Operation::Unlink { parent: ROOT, name });
            create(recording, 12, "log");
            fsync(recording, 12);
            create(recording, 13, "later");
        }
    };
    let is_torn = |seen: &Seen| !seen.contains_key("other") && !seen.contains_key("current");
    assert!(!allow(make(false), is_torn).contains(&Fault::PowerBtrfs));
    assert!(allow(make(true), is_torn).contains(&Fault::PowerBtrfs));
}
