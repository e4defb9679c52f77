//! The states of small random logs against a slow model that tries every combination: each allowed
//! state is built, none that is forbidden.

#![cfg(test)]

#[path = "../logs/mod.rs"]
mod logs;
mod model;
mod world;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use diskproof_random::Random;
use diskproof_states::choice::{Choice, StateId};
use diskproof_states::combinations;
use diskproof_states::content::Store;
use diskproof_states::cut::{collect, Cut};
use diskproof_states::failure::Failure;
use diskproof_states::fault::{Durability, Fault};
use diskproof_states::image::Image;
use diskproof_states::plan::{choices, Cuts, Pass};
use diskproof_states::request::Request;
use diskproof_states::run::explore;
use diskproof_states::show::show;
use diskproof_states::snapshot::Snapshot;
use diskproof_wire::crash_log::{Flags, Operation, ROOT};
use diskproof_wire::ledger::{Acknowledgement, Geometry};
use logs::{entry, Recording, DISK, SECTOR};
use model::{Model, Seen};
use rustix::fs::XattrFlags;
use world::{operation, Act, Timed, World};

/// Directories of the base, beside `disk`.
const FOLDERS: [(u64, &str); 2] = [(3, "d3"), (4, "d4")];
const LOGS: u64 = 25;
/// What the logs are judged by: a sector, what a device discards whole, choices of the model.
type Atoms = (u64, Option<u64>, usize);
const WHOLE: Atoms = (SECTOR, None, 13);
/// Larger than a block: two sectors.
const CLUSTERS: Atoms = (4096, Some(8192), 9);
const MOST: usize = 1 << 20;

fn seen(snapshot: &Snapshot, read: &dyn Fn(u64, &mut [u8])) -> Seen {
    let mut seen = Seen::new();
    let mut open = vec![(ROOT, Vec::new())];
    while let Some((directory, path)) = open.pop() {
        for (name, &file) in &snapshot.nodes[&directory].entries {
            let path = [&path[..], b"/", name].concat();
            let node = &snapshot.nodes[&file];
            let mut bytes = vec![0; node.size as usize];
            read(file, &mut bytes);
            seen.insert(path.clone(), (file, node.attributes.mode, node.size, bytes));
            if node.is_directory() {
                open.push((file, path));
            }
        }
    }
    seen
}

fn look(cut: &Cut<'_, '_>, choice: &Choice) -> Seen {
    let state = cut.state(choice).unwrap();
    seen(&Snapshot::new(&state), &|file, bytes| state.read(file, 0, bytes).unwrap())
}

/// A recording of `disk` and two directories.
fn begin(base: &[u8]) -> Recording {
    let mut recording = Recording::new(base);
    for (file, name) in FOLDERS {
        std::fs::create_dir(recording.path("base").join(name)).unwrap();
        recording.add(file, Operation::Base(entry(ROOT, 0o40755, 0, name.as_bytes())));
    }
    recording
}

/// A log of up to ten operations, some of which overlap.
fn random_log(seed: u64, (sector, discards, most_bits): Atoms) -> (Recording, Model) {
    let mut random = Random::new(&[seed, 0x6c6f_6773]);
    let base = vec![b'o'; random.below(if discards.is_some() { 6 } else { 3 } * sector) as usize];
    let mut recording = begin(&base);
    let mut world = World::new(sector, discards.is_some());
    let (start, mut acts) = (recording.now, Vec::<Timed>::new());
    for _ in 0..3 + random.below(8) {
        let Some(act) = world.act(&mut random) else { continue };
        let may_overlap = matches!(act, Act::Write { .. } | Act::Flush { .. } | Act::Sync);
        let overlaps = random.chance(20) && may_overlap;
        let earlier = acts.len().checked_sub(1 + random.below(2) as usize);
        let begin = match earlier.filter(|_| overlaps) {
            Some(at) => acts[at].end.max(2),
            None => recording.now + 1,
        };
        let (file, operation) = operation(&act);
        recording.add_begun(begin, file, operation);
        acts.push(Timed { act, begin, end: recording.now });
    }
    (recording, Model { base, acts, start, sector, discards, most_bits })
}

/// Every state of every cut of a log against the model's; how many there are.
fn check(seed: u64, recording: &mut Recording, model: &Model, expected: &[BTreeSet<Seen>]) -> u64 {
    let (log, base) = recording.finish();
    let store = Store::open(&log, &base, Some(model.sector)).unwrap();
    let store = store.with_discards(model.discards).unwrap();
    let durability = Durability::new(&store.trace, Fault::Power);
    let cuts = Cuts::new(&store.trace, &durability, seed);
    let mut image = Image::new(&store, &durability);
    let first = store.trace.last() - 1 - model.acts.len() as u64;
    for (cut, expected) in (first..).zip(expected) {
        image.advance(cut).unwrap();
        let under_way = image.push_under_way().unwrap();
        let wrong = find_wrong(&collect(&image, &under_way), &cuts, seed, expected);
        if let Some((what, state)) = wrong {
            panic!("seed {seed}, cut {cut}, {what}: {state:?}\n{:#?}", model.acts);
        }
        image.retract(&under_way);
    }
    expected.iter().map(|states| states.len() as u64).sum()
}

fn find_wrong(
    cut: &Cut<'_, '_>,
    cuts: &Cuts,
    seed: u64,
    expected: &BTreeSet<Seen>,
) -> Option<(&'static str, Seen)> {
    let all = combinations::all(cut, MOST).unwrap();
    let built: BTreeSet<Seen> = all.iter().map(|one| look(cut, one)).collect();
    if let Some(missing) = expected.difference(&built).next() {
        return Some(("not built", missing.clone()));
    }
    let passes = [
        Pass::Quick,
        Pass::Nothing,
        Pass::Single,
        Pass::Random(0),
        Pass::Random(1),
        Pass::Random(2),
    ];
    let others = passes.into_iter().flat_map(|pass| choices(pass, cuts, cut, seed, MOST));
    let others: Vec<Seen> = others.map(|choice| look(cut, &choice)).collect();
    let forbidden = built.into_iter().chain(others).find(|state| !expected.contains(state));
    forbidden.map(|state| ("forbidden", state))
}

/// How many states there are of so many logs, each as the model has it; and of the same logs when
/// a discard is whole.
fn hold_against_model(atoms: Atoms) -> (u64, u64, u64) {
    // `make suites` has more of them.
    let logs = std::env::var("DISKPROOF_LOGS").map_or(LOGS, |text| text.parse().unwrap());
    let (mut states, mut whole, mut judged) = (0, 0, 0);
    for seed in 1.. {
        let (mut recording, model) = random_log(seed, atoms);
        let expect = |model: &Model| {
            let cuts = (0..=model.acts.len()).map(|cut| model.states(cut));
            cuts.collect::<Option<Vec<_>>>()
        };
        let Some(expected) = expect(&model) else { continue };
        states += check(seed, &mut recording, &model, &expected);
        let model = Model { discards: None, ..model };
        let count = |expected: Vec<BTreeSet<Seen>>| expected.iter().map(BTreeSet::len).sum();
        whole += expect(&model).map_or(0, count) as u64;
        judged += 1;
        if judged == logs {
            break;
        }
    }
    println!("{states} states of {logs} logs, as the model has them; {whole} with whole discards");
    (logs, states, whole)
}

#[test]
fn every_allowed_state_is_built_and_no_other() {
    let (logs, states, _) = hold_against_model(WHOLE);
    assert!(states > logs * 20);
}

#[test]
fn every_cluster_of_a_discard_is_there_or_not() {
    let (logs, states, whole) = hold_against_model(CLUSTERS);
    assert!(states > logs * 20 && states > whole + whole / 10);
}

/// What a look at the cut after the last record gives.
fn at_the_end<T>(log: &Path, base: &Path, look: impl FnOnce(&Cut<'_, '_>, &Cuts) -> T) -> T {
    let store = Store::open(log, base, None).unwrap();
    let durability = Durability::new(&store.trace, Fault::Power);
    let cuts = Cuts::new(&store.trace, &durability, 1);
    let mut image = Image::new(&store, &durability);
    image.advance(store.trace.last()).unwrap();
    look(&collect(&image, &[]), &cuts)
}

/// The states of the passes that are planned, after the last record.
fn states_at_the_end(recording: &mut Recording) -> Vec<Seen> {
    let (log, base) = recording.finish();
    at_the_end(&log, &base, |cut, cuts| {
        let choices = choices(Pass::Single, cuts, cut, 1, MOST);
        choices.iter().map(|choice| look(cut, choice)).collect()
    })
}

fn write(recording: &mut Recording, offset: u64, length: usize) {
    let data = Cow::Owned(vec![5; length]);
    recording.add(DISK, Operation::Write { flags: Flags::NONE, offset, data });
}

fn has_disk(states: &[Seen], content: &[u8]) -> bool {
    states.iter().any(|state| state[&b"/disk"[..]].3 == content)
}

#[test]
fn a_file_may_be_as_long_as_a_write_made_it_and_hold_nothing_of_it() {
    for length in [100, SECTOR as usize, 128 * SECTOR as usize] {
        let mut recording = begin(b"");
        write(&mut recording, 0, length);
        let states = states_at_the_end(&mut recording);
        for content in [&b""[..], &vec![0; length], &vec![5; length]] {
            assert!(has_disk(&states, content), "{length}");
        }
    }
    // The head without what was written behind it before.
    let mut recording = begin(b"");
    write(&mut recording, 4096, 4096);
    write(&mut recording, 0, 4096);
    assert!(has_disk(&states_at_the_end(&mut recording), &[5; 4096]));
}

#[test]
fn what_was_not_written_may_hold_what_was_there_before() {
    for (fault, old) in [("power", false), ("old-content", true)] {
        let mut recording = begin(&[1; 512]);
        write(&mut recording, 0, 1536);
        let (log, base) = recording.finish();
        let shown = |name: &str, choice: &str| {
            let to = recording.path(name);
            let id = format!("{fault}:512:5:without=5~{choice}").parse().unwrap();
            show(&log, &base, &id, &to).unwrap();
            std::fs::read(to.join("disk")).unwrap()
        };
        // The first sector was written before, and its block with it.
        let (none, again, middle) = (shown("0", "0"), shown("1", "0"), shown("2", "2"));
        assert_eq!((none.len(), &none[..512]), (1536, &[1; 512][..]));
        assert_eq!(none, again);
        for (from, content) in [(512, &none), (1024, &none), (1024, &middle)] {
            let part = &content[from..from + 512];
            assert_eq!(part.iter().all(|byte| *byte == 0), !old, "{fault}");
            assert_ne!(part, [5; 512]);
        }
        assert_eq!(middle[512..1024], [5; 512]);
        assert_eq!(shown("3", "0s").len(), 512);
    }
}

#[test]
fn sectors_are_from_64_bytes_to_64_kib() {
    let mut recording = begin(b"");
    write(&mut recording, 0, 2 * 65536);
    let (log, base) = recording.finish();
    for (sector, known) in [(64, true), (65536, true), (32, false), (131_072, false), (96, false)] {
        assert_eq!(Store::open(&log, &base, Some(sector)).is_ok(), known, "{sector}");
    }
    for (sector, left) in [(64, 64), (16384, 16384), (65536, 65536)] {
        let to = recording.path(sector.to_string());
        let id = format!("power:{sector}:5:without=5~1").parse().unwrap();
        show(&log, &base, &id, &to).unwrap();
        let content = std::fs::read(to.join("disk")).unwrap();
        assert_eq!(content.iter().filter(|byte| **byte == 5).count(), left);
    }
}

#[test]
fn a_discard_is_done_by_clusters() {
    let mut recording = begin(&[1; 5 * 4096]);
    let (offset, length) = (100, 4 * 4096);
    recording.add(DISK, Operation::Fallocate { mode: 3, offset, length });
    let (log, base) = recording.finish();
    let shown = |name: &str, whole: &str, tear: &str| {
        let to = recording.path(name);
        show(&log, &base, &format!("power:{whole}:5:without=5~{tear}").parse().unwrap(), &to)?;
        Ok::<_, Failure>(std::fs::read(to.join("disk")).unwrap())
    };
    // Bits: eight sectors of the first block, one of the last, then clusters of 8 KiB.
    let zeros = |content: &[u8]| content.iter().filter(|byte| **byte == 0).count();
    let edges = shown("edges", "512/8192", "ff1").unwrap();
    assert_eq!(zeros(&edges), 4096 - 100 + 100);
    let first = shown("first", "512/8192", "002").unwrap();
    assert!(zeros(&first) == 4096 && first[4096..8192].iter().all(|byte| *byte == 0));
    let second = shown("second", "512/8192", "004").unwrap();
    assert!(zeros(&second) == 8192 && second[8192..16384].iter().all(|byte| *byte == 0));
    for (whole, why) in [
        ("512/256", "256 bytes are none"),
        ("512/3000", "3000 bytes are none"),
        ("4096/512", "it is less than a sector, which has 4096 bytes"),
    ] {
        assert!(shown("none", whole, "1").unwrap_err().to_string().contains(why), "{whole}");
    }
    assert!(!recording.path("none").exists());
}

#[test]
fn a_discard_of_too_many_clusters_is_refused() {
    let mut recording = begin(b"");
    let length = 65_538 * 512;
    recording.add(DISK, Operation::Fallocate { mode: 3, offset: 0, length });
    let (log, base) = recording.finish();
    let open = |granularity| {
        Store::open(&log, &base, None).unwrap().with_discards(Some(granularity)).err()
    };
    let refused = open(512).unwrap().to_string();
    assert!(refused.contains("the discard of record 5 has more than 65,536 clusters"));
    assert!(open(1024).is_none());
}

#[test]
fn a_file_keeps_a_name_when_it_is_linked_and_unlinked() {
    for flushes in [true, false] {
        let mut recording = begin(b"kept");
        let name = || Cow::Borrowed(&b"c"[..]);
        recording.add(DISK, Operation::Link { parent: FOLDERS[0].0, name: name() });
        let disk = Cow::Borrowed(&b"disk"[..]);
        recording.add(DISK, Operation::Unlink { parent: ROOT, name: disk });
        if flushes {
            recording.add(ROOT, Operation::Fsync { flags: Flags::DIRECTORY });
        }
        let states = states_at_the_end(&mut recording);
        assert!(states.len() > 1 || flushes);
        for state in states {
            assert!(state.values().any(|(file, ..)| *file == DISK), "{state:?}");
        }
    }
}

#[test]
fn a_small_log_is_built_wholly() {
    let mut recording = begin(b"");
    let ledger = Geometry { id: 1, offset: 0, slots: 1, seed: 1 };
    let text = Acknowledgement::begin(ledger).to_string().into_bytes();
    recording.add(0, Operation::Acknowledge { text: Cow::Owned(text) });
    for number in 0..8 {
        write(&mut recording, number * SECTOR, SECTOR as usize);
    }
    let (log, base) = recording.finish();
    let text = serde_json::json!({
        "log": log, "base": base, "fault": "power", "threads": 2,
        "check": {"kind": "ledger", "target": "disk"},
    });
    let summary = explore(&Request::parse(text.to_string().as_bytes()).unwrap()).unwrap();
    assert!(summary.states.complete);
    assert_eq!(summary.states.random_rounds, 0);
    assert!(summary.states.distinct > 0);
    // Each size with each choice of the sectors before its end.
    let all: usize = (0..=8).map(|sectors| 1 << sectors).sum();
    let count = at_the_end(&log, &base, |cut, _| combinations::all(cut, MOST).unwrap().len());
    assert_eq!(count, all);
}

#[test]
fn a_shown_state_has_modes_attributes_and_second_names() {
    let mut recording = begin(b"old");
    let disk = recording.path("base/disk");
    rustix::fs::setxattr(&disk, "user.old", b"1", XattrFlags::empty()).unwrap();
    let mode = Some(0o666);
    recording.add(DISK, Operation::Setattr { mode, uid: None, gid: None });
    let (name, value) = (Cow::Borrowed(&b"user.new"[..]), Cow::Borrowed(&b"22"[..]));
    recording.add(DISK, Operation::Setxattr { name, value });
    let name = Cow::Borrowed(&b"second"[..]);
    recording.add(DISK, Operation::Link { parent: 3, name });
    recording.add(9, Operation::Create(entry(ROOT, libc::S_IFIFO | 0o622, 0, b"fifo")));
    let (log, base) = recording.finish();
    let to = recording.path("shown");
    let all: StateId = "power:512:9:everything".parse().unwrap();
    show(&log, &base, &all, &to).unwrap();
    let first = std::fs::metadata(to.join("disk")).unwrap();
    let second = std::fs::metadata(to.join("d3/second")).unwrap();
    assert_eq!((first.ino(), first.mode() & 0o777), (second.ino(), 0o666));
    for (name, value) in [("user.old", &b"1"[..]), ("user.new", b"22")] {
        let mut buffer = [0; 8];
        let length = rustix::fs::getxattr(to.join("disk"), name, &mut buffer[..]).unwrap();
        assert_eq!(&buffer[..length], value);
    }
    assert_eq!(std::fs::metadata(to.join("fifo")).unwrap().mode() & 0o777, 0o622);
}
