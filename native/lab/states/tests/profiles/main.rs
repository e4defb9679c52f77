//! What a power cut leaves on a file system that promises more than POSIX: never anything that
//! POSIX forbids, and what each of its own rules says.

#![cfg(test)]

mod copied;
#[path = "../logs/mod.rs"]
mod logs;
mod names;
mod power;
mod syncs;
mod unwaited;
#[path = "../exhaustive/world.rs"]
#[allow(dead_code, reason = "times are for the model of all states")]
mod world;

use std::borrow::Cow;
use std::collections::BTreeSet;

use copied::allow_file;
use diskproof_random::Random;
use diskproof_states::combinations;
use diskproof_states::content::Store;
use diskproof_states::cut::collect;
use diskproof_states::fault::{Durability, Fault};
use diskproof_states::image::Image;
use diskproof_states::plan::{choices, Cuts, Pass};
use diskproof_states::trace::What;
use diskproof_wire::crash_log::{Flags, Operation, ROOT};
use logs::{Recording, DISK, SECTOR};
use power::{allow, create, fsync, look, profiles, rename, write, Seen};
use world::{operation, World};

#[test]
fn a_rename_over_a_file_brings_its_length_or_its_data_where_that_is_said() {
    let make = |recording: &mut Recording| {
        create(recording, 10, "tmp");
        write(recording, 10, SECTOR);
        rename(recording, 10, "tmp", "disk", DISK);
    };
    let committed = |recording: &mut Recording| {
        make(recording);
        fsync(recording, ROOT);
        create(recording, 11, "later");
    };
    let empty = |seen: &Seen| seen["disk"].0.is_empty();
    let zeros = |seen: &Seen| seen["disk"].0 == vec![0; SECTOR as usize];
    let without = [
        Fault::Power,
        Fault::PowerExt4Writeback,
        Fault::PowerXfs,
        Fault::PowerBtrfs,
        Fault::PowerF2fs,
    ];
    let hollow = [Fault::Power, Fault::PowerExt4, Fault::PowerExt4Writeback, Fault::PowerF2fs];
    for each in [&make as &dyn Fn(&mut Recording), &committed] {
        assert_eq!(allow(each, empty), without);
        assert_eq!(allow(each, zeros), hollow);
    }
}

#[test]
fn a_file_ends_with_a_sector_that_is_there_where_data_comes_before_the_size() {
    let make = |recording: &mut Recording| {
        create(recording, 10, "a");
        write(recording, 10, 3 * SECTOR);
    };
    let left = |first, second| allow_file(make, "a", 2 * SECTOR, &[(0, first), (SECTOR, second)]);
    assert!(left(7, 0).contains(&Fault::PowerExt4));
    assert!(!left(7, 0).iter().any(|one| [Fault::PowerXfs, Fault::PowerExt4Journal].contains(one)));
    assert!(left(0, 7).contains(&Fault::PowerXfs) && left(7, 7).contains(&Fault::PowerXfs));
}

#[test]
fn an_msync_makes_durable_what_lies_in_its_part_and_nothing_else() {
    let make = |recording: &mut Recording| {
        let data = Cow::Owned(vec![7; 3 * SECTOR as usize]);
        recording.add(DISK, Operation::Write { flags: Flags::NONE, offset: 0, data });
        let data = Cow::Owned(vec![8; SECTOR as usize]);
        recording.add(DISK, Operation::Write { flags: Flags::MAPPED, offset: SECTOR, data });
        recording.add(DISK, Operation::Msync { offset: SECTOR, length: SECTOR });
        create(recording, 10, "later");
    };
    let lacks = |sector: usize, byte: u8| {
        allow(make, move |seen: &Seen| {
            let content = &seen["disk"].0;
            let own = sector * SECTOR as usize..(sector + 1) * SECTOR as usize;
            content.get(own).is_none_or(|there| there.iter().any(|&one| one != byte))
        })
    };
    assert_eq!(lacks(1, 8), []);
    assert!(lacks(0, 7).contains(&Fault::PowerExt4));
    assert!(lacks(2, 7).contains(&Fault::Power));
}

#[test]
fn a_new_file_may_be_long_and_empty_where_data_waits_for_nothing() {
    let make = |recording: &mut Recording| write(recording, DISK, SECTOR);
    let zeros = |seen: &Seen| seen["disk"].0[4..].iter().all(|byte| *byte == 0);
    let is_such = |seen: &Seen| seen["disk"].0.len() == SECTOR as usize && zeros(seen);
    let unordered = [Fault::Power, Fault::PowerExt4, Fault::PowerExt4Writeback, Fault::PowerF2fs];
    assert_eq!(allow(make, is_such), unordered);
}

#[test]
fn fdatasync_is_fsync_on_btrfs() {
    let make = |recording: &mut Recording| {
        create(recording, 10, "synced");
        let mode = Operation::Setattr { mode: Some(0o100_600), uid: None, gid: None };
        recording.add(10, mode);
        recording.add(10, Operation::Fsync { flags: Flags::DATA_ONLY });
        create(recording, 11, "later");
    };
    let is_lost = |seen: &Seen| seen.get("synced").is_none_or(|file| file.1 & 0o777 != 0o600);
    assert!(!allow(make, is_lost).contains(&Fault::PowerBtrfs));
    assert!(allow(make, is_lost).contains(&Fault::PowerExt4));
}

#[test]
fn with_a_checkpoint_comes_all_metadata() {
    let make = |recording: &mut Recording, flush: &dyn Fn(&mut Recording)| {
        create(recording, 10, "earlier");
        create(recording, 11, "synced");
        flush(recording);
        create(recording, 12, "later");
    };
    let is_lost = |seen: &Seen| !seen.contains_key("earlier");
    let directory = |recording: &mut Recording| make(recording, &|one| fsync(one, ROOT));
    assert_eq!(allow(directory, is_lost), []);
    let renamed = |recording: &mut Recording| {
        make(recording, &|one| {
            rename(one, 11, "synced", "new", 0);
            fsync(one, 11);
        });
    };
    assert_eq!(allow(renamed, is_lost), [Fault::Power, Fault::PowerBtrfs]);
}

#[test]
fn a_commit_brings_a_truncation_of_another_file_and_with_data_in_the_journal_its_edge() {
    let make = |recording: &mut Recording| {
        recording.add(DISK, Operation::Truncate { size: 1 });
        create(recording, 10, "synced");
        fsync(recording, 10);
        fsync(recording, ROOT);
        create(recording, 11, "later");
    };
    let is_lost = |seen: &Seen| seen["disk"].0.len() > 1;
    assert_eq!(allow(make, is_lost), [Fault::Power, Fault::PowerBtrfs, Fault::PowerF2fs]);
    let written = |recording: &mut Recording| {
        write(recording, DISK, 2 * SECTOR);
        make(recording);
    };
    let lacks_content = |seen: &Seen| seen["disk"].0 == b"o";
    assert!(!allow(written, lacks_content).contains(&Fault::PowerExt4Journal));
    assert!(allow(written, lacks_content).contains(&Fault::PowerExt4));
    assert!(allow(written, lacks_content).contains(&Fault::PowerXfs));
}

/// `ext4_update_disksize_before_punch`: also to an end at which no sector ends.
#[test]
fn a_range_within_a_file_brings_the_length_up_to_its_end_where_that_was_seen() {
    let make = |mode: u32, length: u64| {
        move |recording: &mut Recording| {
            write(recording, DISK, 2 * SECTOR);
            recording.add(DISK, Operation::Fallocate { mode, offset: 0, length });
            create(recording, 10, "synced");
            fsync(recording, 10);
            create(recording, 11, "later");
        }
    };
    let ext4 = [Fault::PowerExt4, Fault::PowerExt4Writeback];
    assert_eq!(allow(make(3, 100), |seen| seen["disk"].0 == [0; 100]), ext4);
    let is_other = |seen: &Seen| seen["disk"].0.len() as u64 != 2 * SECTOR;
    assert!(!allow(make(3, 3 * SECTOR), is_other).contains(&ext4[0]));
    let others = [Fault::Power, Fault::PowerXfs, Fault::PowerBtrfs, Fault::PowerF2fs];
    assert_eq!(allow(make(0, SECTOR), |seen| seen["disk"].0 == b"old"), others);
}

#[test]
fn data_that_is_journaled_comes_in_its_order_and_from_its_front() {
    let two = |recording: &mut Recording| {
        write(recording, DISK, 2 * SECTOR);
        fsync(recording, DISK);
        create(recording, 10, "between");
        for (offset, bytes) in [(SECTOR, vec![8]), (0, vec![9; 2 * SECTOR as usize])] {
            let data = Cow::Owned(bytes);
            recording.add(DISK, Operation::Write { flags: Flags::NONE, offset, data });
        }
    };
    let others = [
        Fault::Power,
        Fault::PowerExt4,
        Fault::PowerExt4Writeback,
        Fault::PowerXfs,
        Fault::PowerF2fs,
    ];
    let before_name = |seen: &Seen| seen["disk"].0.contains(&8) && !seen.contains_key("between");
    assert_eq!(allow(two, before_name), others);
    let front = |seen: &Seen| seen["disk"].0[0] == 9 && !seen["disk"].0.ends_with(&[9]);
    assert_eq!(allow(two, |seen| front(seen) && !seen["disk"].0.contains(&8)), others);
    let back = |seen: &Seen| seen["disk"].0[0] != 9 && seen["disk"].0.ends_with(&[9]);
    assert_eq!(allow(two, back), others);
    let mut in_order = others.to_vec();
    in_order.insert(2, Fault::PowerExt4Journal);
    assert_eq!(allow(two, |seen| front(seen) && seen["disk"].0.contains(&8)), in_order);
}

#[test]
fn an_overwrite_is_torn_where_it_is_in_place() {
    let make = |recording: &mut Recording| {
        write(recording, DISK, 2 * SECTOR);
        fsync(recording, DISK);
        let data = Cow::Owned(vec![9; 2 * SECTOR as usize]);
        recording.add(DISK, Operation::Write { flags: Flags::NONE, offset: 0, data });
    };
    let torn = |seen: &Seen| {
        let disk = &seen["disk"].0;
        disk.contains(&7) && disk.contains(&9)
    };
    assert!(!allow(make, torn).contains(&Fault::PowerBtrfs));
    assert_eq!(allow(make, torn).len(), 6);
}

/// Random operations; at every cut, whatever a profile makes of a choice is a state of POSIX, and
/// stays what it is when it is named and built again. But for ext4's lengths of punched files, and
/// some names on btrfs, which `Store::under` gives it, for names that btrfs leaves, and for what a
/// sync leaves on XFS.
#[test]
fn no_profile_has_a_state_that_posix_forbids() {
    let all = |(store, seed): (Store, u64)| -> usize {
        profiles().map(|fault| compare(&store, (Fault::Power, fault), seed)).sum()
    };
    let compared: usize = (0..40).filter_map(random_store).map(all).sum();
    assert!(compared > 2000, "{compared}");
}

/// Of a random log, with its number.
fn random_store(seed: u64) -> Option<(Store, u64)> {
    let mut random = Random::new(&[seed, 0x7072_6f66]);
    let (mut recording, mut world) = (Recording::new(b"old"), World::new(SECTOR, false));
    for _ in 0..8 {
        if let Some(act) = world.act(&mut random) {
            let (file, operation) = operation(&act);
            recording.add(file, operation);
        }
    }
    let (log, base) = recording.finish();
    Some((Store::open(&log, &base, None).ok()?, seed))
}

/// Whether the wider fault leaves all that the other one does; how many states were compared.
fn compare(store: &Store, (wider, fault): (Fault, Fault), seed: u64) -> usize {
    let (widest, own) =
        (Durability::new(&store.trace, wider), Durability::new(&store.trace, fault));
    let leaves = |sequence| own.journal.as_ref().is_some_and(|all| all.left_in(sequence).is_some());
    let may_not_flush = own.journal.as_ref().is_some_and(|all| all.rules.sync_may_not_flush);
    let has_sync = store.trace.events.iter().any(|event| matches!(event.what, What::Sync));
    if (1..=store.trace.last()).any(leaves) || may_not_flush && has_sync {
        return 0;
    }
    let cuts = Cuts::new(&store.trace, &own, seed);
    let (mut wide, mut narrow) = (Image::new(store, &widest), Image::new(store, &own));
    let mut compared = 0;
    for &at in &cuts.all {
        wide.advance(at).unwrap();
        narrow.advance(at).unwrap();
        let (wide, narrow) = (collect(&wide, &[]), collect(&narrow, &[]));
        let Some(all) = combinations::all(&wide, 1 << 14) else { continue };
        let allowed: BTreeSet<Seen> = all.iter().map(|choice| look(&wide, choice)).collect();
        for pass in [Pass::Quick, Pass::Single, Pass::Random(0), Pass::Random(1)] {
            for choice in choices(pass, &cuts, &narrow, seed, 1 << 10) {
                let presences = narrow.presences(&choice);
                assert_eq!(narrow.without_orphans(presences.clone()), presences);
                let seen = look(&narrow, &choice);
                assert!(allowed.contains(&seen), "{fault:?} {seed} {at} {choice:?}");
                compared += 1;
            }
        }
    }
    compared
}
