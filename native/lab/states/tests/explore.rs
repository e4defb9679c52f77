//! Whole explorations of ledgers, and the states of names.

#![cfg(test)]

mod logs;

use std::borrow::Cow;

use diskproof_states::choice::{Choice, StateId};
use diskproof_states::content::{sector_hash, Store};
use diskproof_states::cut::{collect, Cut};
use diskproof_states::fault::{Durability, Fault};
use diskproof_states::image::Image;
use diskproof_states::report::Summary;
use diskproof_states::request::Request;
use diskproof_states::run::explore;
use diskproof_states::show::show;
use diskproof_states::snapshot::Snapshot;
use diskproof_wire::crash_log::{Flags, Operation, ROOT};
use diskproof_wire::ledger::{Acknowledgement, Geometry, Place, Record, SLOT};
use logs::{entry, Recording, DISK};
use serde_json::json;

const LEDGER: Geometry = Geometry { id: 0x1234, offset: 4096, slots: 16, seed: 7 };

fn write(recording: &mut Recording, file: u64, offset: u64, data: &[u8]) -> u64 {
    let data = Cow::Borrowed(data);
    recording.add(file, Operation::Write { flags: Flags::NONE, offset, data })
}

fn fsync(recording: &mut Recording, file: u64) -> u64 {
    recording.add(file, Operation::Fsync { flags: Flags::NONE })
}

fn acknowledge(recording: &mut Recording, said: &Acknowledgement) -> u64 {
    let text = said.to_string().into_bytes();
    recording.add(0, Operation::Acknowledge { text: Cow::Owned(text) })
}

/// Records in fours; each four is acknowledged after a flush, or without one.
fn ledger(records: u64, flushes: bool) -> Recording {
    let mut recording = Recording::new(&vec![0; 18 * SLOT]);
    acknowledge(&mut recording, &Acknowledgement::begin(LEDGER));
    for sequence in 1..=records {
        let place = Place { sequence, monotonic_ns: 1, realtime_ns: 1 };
        let bytes = Record::encode(&LEDGER, &place);
        let offset = LEDGER.position(LEDGER.slot_of(sequence));
        write(&mut recording, DISK, offset, &bytes);
        if sequence % 4 == 0 {
            if flushes {
                fsync(&mut recording, DISK);
            }
            let said = Acknowledgement { id: LEDGER.id, sequence, geometry: None };
            acknowledge(&mut recording, &said);
        }
    }
    recording
}

fn request(recording: &mut Recording, fault: &str, threads: u64, seed: u64) -> Request {
    let (log, base) = recording.finish();
    let text = json!({
        "log": log, "base": base, "fault": fault, "threads": threads, "seed": seed,
        "check": {"kind": "ledger", "target": "disk"},
        "budget": {"states": 3000, "seconds": 600},
    });
    Request::parse(text.to_string().as_bytes()).unwrap()
}

fn explored(recording: &mut Recording, fault: &str, threads: u64, seed: u64) -> Summary {
    explore(&request(recording, fault, threads, seed)).unwrap()
}

#[test]
fn what_was_flushed_is_kept() {
    for fault in ["power", "kill"] {
        let summary = explored(&mut ledger(40, true), fault, 2, 1);
        assert_eq!(summary.verdict, "keeps", "{fault}");
        assert!(summary.states.planned_done, "{fault}");
        assert!(fault == "kill" || summary.states.checked > 40, "{fault}");
    }
}

#[test]
fn what_was_covered_is_told_by_its_meaning() {
    let summary = explored(&mut ledger(40, true), "power", 2, 1);
    let covered = summary.covered;
    assert_eq!((covered.acknowledgements.done, covered.acknowledgements.of), (11, 11));
    assert_eq!((covered.changes.done, covered.changes.of), (40, 40));
    // Without a flush each is missing where it was promised, and at the last promise.
    let covered = explored(&mut ledger(40, false), "power", 2, 1).covered;
    assert_eq!((covered.changes.done, covered.changes.of), (76, 76));
    let covered = explored(&mut ledger(40, true), "kill", 2, 1).covered;
    assert_eq!((covered.changes.done, covered.changes.of), (0, 0));
}

#[test]
fn a_search_that_ends_early_says_what_it_left() {
    let mut recording = ledger(40, true);
    let mut request = request(&mut recording, "power", 1, 1);
    request.budget.states = 40;
    let covered = explore(&request).unwrap().covered;
    assert_eq!((covered.acknowledgements.done, covered.acknowledgements.of), (11, 11));
    assert!(covered.changes.done < 40, "{}", covered.changes.done);
    request.budget.states = 5;
    let covered = explore(&request).unwrap().covered;
    assert_eq!((covered.acknowledgements.done, covered.changes.done), (0, 0));
}

#[test]
fn a_flush_that_lies_loses_the_whole_ledger() {
    let summary = explored(&mut ledger(40, true), "lying-device", 2, 1);
    assert_eq!((summary.verdict, summary.lost), ("loses", 16));
    assert_eq!(summary.missing.len(), 1, "{:?}", summary.minimal);
}

#[test]
fn what_was_not_flushed_is_lost_by_power_and_not_by_kill() {
    let summary = explored(&mut ledger(40, false), "power", 2, 1);
    assert_eq!((summary.verdict, summary.lost), ("loses", 16));
    assert_eq!(summary.missing.len(), 1);
    let summary = explored(&mut ledger(40, false), "kill", 2, 1);
    assert_eq!(summary.verdict, "keeps");
}

#[test]
fn the_smallest_loss_is_made_again_by_its_name() {
    let mut recording = ledger(12, false);
    let request = request(&mut recording, "power", 1, 1);
    let summary = explore(&request).unwrap();
    let id: StateId = summary.minimal.unwrap().parse().unwrap();
    let Choice::Without(missing) = &id.choice else { panic!("{id}") };
    let lost = *missing.keys().next().unwrap();
    let to = recording.path("made");
    show(&request.log, &request.base, &id, &to).unwrap();
    let made = std::fs::read(to.join("disk")).unwrap();
    let base = std::fs::read(request.base.join("disk")).unwrap();
    assert_eq!(made.len(), base.len());
    // Base names two records and the ledger's beginning a third; then come the writes, with a line
    // after each four.
    let sequence = (1..=12).find(|n| 3 + n + (n - 1) / 4 == lost).unwrap();
    for other in 1..=12u64 {
        let at = LEDGER.position(LEDGER.slot_of(other)) as usize;
        let place = Place { sequence: other, monotonic_ns: 1, realtime_ns: 1 };
        let whole = made[at..at + SLOT] == Record::encode(&LEDGER, &place);
        assert_eq!(whole, other != sequence && 3 + other + (other - 1) / 4 <= id.cut, "{other}");
    }
}

/// Everything of a summary that is not a matter of time.
fn timeless(summary: &Summary) -> serde_json::Value {
    let mut value = serde_json::to_value(summary).unwrap();
    value["seconds"] = json!(0);
    value
}

#[test]
fn the_same_seed_explores_the_same_with_any_number_of_threads() {
    for (flushes, fault) in [(true, "power"), (false, "power"), (true, "lying-device")] {
        let mut recording = ledger(60, flushes);
        let first = timeless(&explored(&mut recording, fault, 1, 9));
        for threads in [1, 3] {
            let mut recording = ledger(60, flushes);
            assert_eq!(first, timeless(&explored(&mut recording, fault, threads, 9)), "{fault}");
        }
    }
}

/// Writes a new file and moves it over `disk`, flushing what it is told to.
#[test]
fn shards_check_together_what_one_exploration_checks() {
    for (flushes, fault) in [(true, "power"), (false, "power"), (true, "lying-device")] {
        let whole = explored(&mut ledger(60, flushes), fault, 2, 9);
        let mut recording = ledger(60, flushes);
        let request = request(&mut recording, fault, 2, 9);
        for of in [2, 5] {
            let parts: Vec<Summary> = (1..=of)
                .map(|number| format!("{number}/{of}").parse().unwrap())
                .map(|shard| request.clone().with_shard(Some(shard)).unwrap())
                .map(|request| explore(&request).unwrap())
                .collect();
            for part in &parts {
                assert_eq!(part.states.built, whole.states.built);
                assert_eq!(part.states.distinct, whole.states.checked);
                assert_eq!(part.states.random_rounds, whole.states.random_rounds);
                assert!(part.states.checked < whole.states.checked);
            }
            let sum = |of: fn(&Summary) -> u64| parts.iter().map(of).sum::<u64>();
            assert_eq!(sum(|part| part.states.checked), whole.states.checked);
            assert_eq!(sum(|part| part.states.losing), whole.states.losing);
            let worst = parts
                .iter()
                .max_by_key(|part| (part.lost, part.age_ns, std::cmp::Reverse(part.order)))
                .unwrap();
            assert_eq!(
                (worst.verdict, worst.lost, worst.age_ns, &worst.state, worst.order),
                (whole.verdict, whole.lost, whole.age_ns, &whole.state, whole.order)
            );
            assert_eq!((&worst.minimal, &worst.missing), (&whole.minimal, &whole.missing));
        }
    }
}

#[test]
fn of_states_that_lose_as_much_the_one_with_the_oldest_loss_is_told() {
    for threads in [1, 3] {
        let mut recording = ledger(8, false);
        let offset = LEDGER.position(LEDGER.slots - 1);
        for _ in 0..6 {
            write(&mut recording, DISK, offset, &[7; SLOT]);
        }
        let request = request(&mut recording, "power", threads, 1);
        let summary = explore(&request).unwrap();
        let store = Store::open(&request.log, &request.base, None).unwrap();
        let (moment, last) = (|sequence| store.trace.event(sequence).end_ns, store.trace.last());
        let (first, _) = store
            .trace
            .acknowledgements(last)
            .find(|(_, line)| Acknowledgement::parse(line).is_some_and(|said| said.sequence == 4))
            .unwrap();
        assert_eq!(summary.lost, 8);
        assert_eq!(summary.age_ns, Some(moment(last) - moment(first)), "{:?}", summary.state);
        let named: StateId = summary.state.unwrap().parse().unwrap();
        assert_eq!(summary.cut, Some(named.cut));
        assert_eq!(named.cut, last);
    }
}

fn replace(flush_file: bool, flush_directory: bool) -> Recording {
    let mut recording = Recording::new(b"old");
    recording.add(9, Operation::Create(entry(ROOT, 0o100644, 0, b"new")));
    write(&mut recording, 9, 0, b"NEW!");
    if flush_file {
        fsync(&mut recording, 9);
    }
    rename(&mut recording, 9, (ROOT, b"new"), (ROOT, b"disk"));
    if flush_directory {
        recording.add(ROOT, Operation::Fsync { flags: Flags::DIRECTORY });
    }
    recording
}

/// What a look at the cut after the last record gives.
fn at_the_end<T>(recording: &mut Recording, look: impl FnOnce(&Cut<'_, '_>) -> T) -> T {
    let (log, base) = recording.finish();
    let store = Store::open(&log, &base, None).unwrap();
    let durability = Durability::new(&store.trace, Fault::Power);
    let mut image = Image::new(&store, &durability);
    image.advance(store.trace.last()).unwrap();
    look(&collect(&image, &[]))
}

/// Every state after the last record.
fn states_at_the_end(recording: &mut Recording) -> Vec<Snapshot> {
    at_the_end(recording, |cut| {
        let sequences: Vec<u64> = cut.candidates.iter().map(|one| one.sequence).collect();
        let state = |mask: u32| {
            let missing = sequences.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
            Snapshot::new(&cut.state(&Choice::without(missing.map(|(_, at)| *at))).unwrap())
        };
        (0..1u32 << sequences.len()).map(state).collect()
    })
}

/// What `disk` holds in every state after the last record: old, or so many new bytes.
fn sizes_of_disk(recording: &mut Recording) -> Vec<(u64, u64)> {
    let states = states_at_the_end(recording);
    let disk = |state: &Snapshot| {
        let file = state.nodes[&ROOT].entries[&b"disk"[..]];
        (file, state.nodes[&file].size)
    };
    let mut found: Vec<(u64, u64)> = states.iter().map(disk).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn a_rename_is_there_or_not_and_needs_the_directory() {
    assert_eq!(sizes_of_disk(&mut replace(true, true)), [(9, 4)]);
    assert_eq!(sizes_of_disk(&mut replace(true, false)), [(DISK, 3), (9, 4)]);
    assert_eq!(sizes_of_disk(&mut replace(false, true)), [(9, 0), (9, 4)]);
}

fn rename(recording: &mut Recording, file: u64, from: (u64, &[u8]), to: (u64, &[u8])) {
    let operation = Operation::Rename {
        flags: 0,
        parent: from.0,
        new_parent: to.0,
        replaced: 0,
        name: Cow::Borrowed(from.1),
        new_name: Cow::Borrowed(to.1),
    };
    recording.add(file, operation);
}

/// Makes a file in one directory and moves it twice, the second time into another one, `flushes` of
/// which are flushed.
fn names_of_a_moved_file(flushes: &[u64]) -> Vec<Vec<String>> {
    let mut recording = Recording::new(b"");
    recording.add(7, Operation::Mkdir(entry(ROOT, 0o40755, 0, b"d")));
    recording.add(ROOT, Operation::Fsync { flags: Flags::DIRECTORY });
    recording.add(9, Operation::Create(entry(ROOT, 0o100644, 0, b"x")));
    rename(&mut recording, 9, (ROOT, b"x"), (ROOT, b"y"));
    rename(&mut recording, 9, (ROOT, b"y"), (7, b"z"));
    for &directory in flushes {
        recording.add(directory, Operation::Fsync { flags: Flags::DIRECTORY });
    }
    let states = states_at_the_end(&mut recording);
    let mut names: Vec<Vec<String>> = states.iter().map(names_of_nine).collect();
    names.sort();
    names.dedup();
    names
}

fn names_of_nine(snapshot: &Snapshot) -> Vec<String> {
    let entries = snapshot.nodes.values().flat_map(|node| &node.entries);
    let names = entries.filter(|(_, file)| **file == 9);
    names.map(|(name, _)| String::from_utf8(name.to_vec()).unwrap()).collect()
}

#[test]
fn a_file_that_moves_has_one_name_at_most() {
    let states = [vec![], vec!["x".to_owned()], vec!["y".to_owned()], vec!["z".to_owned()]];
    assert_eq!(names_of_a_moved_file(&[]), states);
    assert_eq!(names_of_a_moved_file(&[7]), states[3..]);
}

#[test]
fn the_hash_of_a_state_is_that_of_its_sectors_however_they_were_written() {
    let mut recording = Recording::new(&[b'0'; 4 * 512]);
    write(&mut recording, DISK, 0, &[b'1'; 4 * 512]);
    write(&mut recording, DISK, 512, &[b'2'; 512]);
    fsync(&mut recording, DISK);
    let (log, base) = recording.finish();
    let store = Store::open(&log, &base, None).unwrap();
    let durability = Durability::new(&store.trace, Fault::Power);
    let mut image = Image::new(&store, &durability);
    image.advance(store.trace.last()).unwrap();
    let sum = |sectors: &[u8; 4]| {
        let hashes = sectors.iter().zip(0..).map(|(byte, at)| sector_hash(DISK, at, &[*byte; 512]));
        hashes.fold(0u64, u64::wrapping_add)
    };
    assert_eq!(image.settled_hash, sum(b"1211").wrapping_sub(sum(b"0000")));
}

/// The modes that `disk` can have after chmod and a flush.
fn modes_of_disk(flags: Flags) -> Vec<u32> {
    let mut recording = Recording::new(b"old");
    let change = Operation::Setattr { mode: Some(0o600), uid: None, gid: None };
    recording.add(DISK, change);
    recording.add(DISK, Operation::Fsync { flags });
    at_the_end(&mut recording, |cut| {
        let snapshot = |choice| Snapshot::new(&cut.state(&choice).unwrap());
        let mode = |choice| snapshot(choice).nodes[&DISK].attributes.mode & 0o777;
        [Choice::Nothing, Choice::Everything].map(mode).to_vec()
    })
}

#[test]
fn attributes_need_more_than_fdatasync() {
    assert_eq!(modes_of_disk(Flags::DATA_ONLY), [0o644, 0o600]);
    assert_eq!(modes_of_disk(Flags::NONE), [0o600, 0o600]);
}

#[test]
fn a_torn_write_leaves_the_older_sectors_whole() {
    let mut recording = Recording::new(&[b'0'; 2048]);
    let first = write(&mut recording, DISK, 0, &[b'1'; 2048]);
    let second = write(&mut recording, DISK, 512, &[b'2'; 1024]);
    let (log, base) = recording.finish();
    let contents = |choice: &str, sectors: &[u8; 4]| {
        let to = recording.path("torn");
        let id: StateId = format!("power:512:{second}:{choice}").parse().unwrap();
        show(&log, &base, &id, &to).unwrap();
        let made = std::fs::read(to.join("disk")).unwrap();
        let expected: Vec<u8> = sectors.iter().flat_map(|byte| [*byte; 512]).collect();
        assert!(made == expected, "{choice}");
        std::fs::remove_dir_all(to).unwrap();
    };
    contents("everything", b"1221");
    contents("nothing", b"0000");
    contents(&format!("until={first}"), b"1111");
    contents(&format!("without={first}"), b"0220");
    contents(&format!("without={first}~9,{second}~2"), b"1021");
    contents(&format!("without={second}~1"), b"1211");
}

#[test]
fn a_base_that_does_not_fit_its_log_is_refused() {
    let mut recording = ledger(4, true);
    let request = request(&mut recording, "power", 1, 1);
    std::fs::write(request.base.join("disk"), b"short").unwrap();
    let failure = explore(&request).err().unwrap();
    assert!(failure.to_string().contains("disk"), "{failure}");
    std::fs::remove_file(request.base.join("disk")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", request.base.join("disk")).unwrap();
    assert!(explore(&request).is_err());
}
