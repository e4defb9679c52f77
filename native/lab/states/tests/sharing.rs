//! Checks that read at random, on the states of random logs: what is concluded from what they read
//! is what a run says.

#![cfg(test)]

mod logs;
#[allow(dead_code, reason = "one test more uses it, and more of it")]
#[path = "exhaustive/world.rs"]
mod world;

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use diskproof_random::Random;
use diskproof_states::choice::Choice;
use diskproof_states::content::Store;
use diskproof_states::cut::collect;
use diskproof_states::equal::Reply;
use diskproof_states::fault::{Durability, Fault};
use diskproof_states::image::Image;
use diskproof_states::plan::{choices, Cuts, Pass};
use diskproof_states::reads::Read;
use diskproof_states::sharing::Sharing;
use diskproof_states::snapshot::Snapshot;
use diskproof_states::tree::{New, Tree, PROMISES};
use diskproof_wire::crash_log::{Operation, ROOT};
use logs::{entry, Recording, DISK, SECTOR};
use proptest::prelude::*;
use world::{operation, Act, World};

const NAMES: [&str; 6] = ["disk", "d3", "d4", "a", "b", "c"];
/// Files of several pages, that begin and end anywhere in them.
const LARGER: u64 = 6;

fn larger(act: Act) -> Act {
    match act {
        Act::Write { file, offset, length, synced, fill } => {
            let (offset, length) = (offset * LARGER, length * LARGER);
            Act::Write { file, offset, length, synced, fill }
        }
        Act::Truncate { file, size } => Act::Truncate { file, size: size * LARGER },
        Act::Grow { file, size } => Act::Grow { file, size: size * LARGER },
        other => other,
    }
}

fn random_log(random: &mut Random) -> Recording {
    let mut recording = Recording::new(&vec![b'o'; random.below(9000) as usize]);
    for (file, name) in [(3, "d3"), (4, "d4")] {
        std::fs::create_dir(recording.path("base").join(name)).unwrap();
        recording.add(file, Operation::Base(entry(ROOT, 0o40755, 0, name.as_bytes())));
    }
    let mut world = World::new(SECTOR, false);
    for _ in 0..4 + random.below(12) {
        if let Some(act) = world.act(random) {
            let (file, operation) = operation(&larger(act));
            recording.add(file, operation);
        }
    }
    recording
}

/// A program whose every step depends on all that it was told before.
struct Program<'t> {
    tree: &'t mut Tree,
    random: Random,
    nodes: Vec<u64>,
    told: DefaultHasher,
}

impl Program<'_> {
    fn tell(&mut self, what: impl Hash) {
        what.hash(&mut self.told);
        self.random = Random::new(&[self.told.finish()]);
    }

    fn any(&mut self) -> u64 {
        self.nodes[self.random.below(self.nodes.len() as u64) as usize]
    }

    fn name(&mut self) -> &'static OsStr {
        OsStr::new(NAMES[self.random.below(NAMES.len() as u64) as usize])
    }

    fn find(&mut self) {
        let (parent, name) = (self.any(), self.name());
        let found = self.tree.lookup(parent, name).ok();
        if let Some(found) = found {
            let leaf = self.tree.attributes(found).unwrap();
            let attributes = (leaf.mode, leaf.links, leaf.size);
            self.nodes.push(found);
            self.tell(attributes);
        }
        self.tell(found);
    }

    fn read(&mut self) {
        let file = self.any();
        self.read_some(file);
    }

    fn read_some(&mut self, file: u64) {
        let offset = self.random.below(20_000);
        let length = 1 + self.random.below(5000) as usize;
        let read = self.tree.read(file, offset, length).unwrap();
        self.tell(read);
    }

    fn list(&mut self) {
        let folder = self.any();
        self.tree.see_entries(folder);
        let entries = self.tree.node(folder).unwrap().entries.clone();
        self.tell(entries);
    }

    fn change_data(&mut self) {
        let (file, at, length) = (self.any(), self.random.below(16_000), self.random.below(6000));
        if self.tree.node(file).unwrap().kind() != libc::S_IFREG {
            return;
        }
        match self.random.below(4) {
            0 => self.tree.resize(file, at).unwrap(),
            1 => self.tree.zero(file, at, at + length).unwrap(),
            2 => self.tree.write(file, at / 4096 * 4096, &[7; 4096]).unwrap(),
            _ => self.tree.write(file, at, &vec![9; length as usize]).unwrap(),
        }
        // What is left of it, perhaps.
        self.read_some(file);
    }

    fn change_names(&mut self) {
        let (parent, name) = (self.any(), self.name());
        let (other, new) = (self.any(), self.name());
        let folder = libc::S_IFDIR | 0o755;
        let mode = if self.random.chance(30) { folder } else { libc::S_IFREG | 0o644 };
        let made = New { mode, uid: 0, gid: 0, rdev: 0, target: Vec::new() };
        let flags = self.random.below(3) as u32;
        let done = match self.random.below(4) {
            0 => self.tree.make(parent, name, made).map(|id| self.nodes.push(id)),
            1 => self.tree.remove(parent, name, self.random.chance(30)),
            2 => self.tree.rename((parent, name), (other, new), flags),
            _ => self.tree.link(other, parent, name),
        };
        self.tell(done.map_err(|error| error.raw_os_error()));
    }

    /// What it was told is its answer: nothing that it saw can be passed over.
    fn run(mut self) -> Reply {
        for _ in 0..2 + self.random.below(9) {
            match self.random.below(8) {
                0..=2 => self.find(),
                3 | 4 => self.read(),
                5 => self.list(),
                6 => self.change_data(),
                _ => self.change_names(),
            }
        }
        Reply { code: 1, lost: self.told.finish() }
    }
}

/// Its answer, and what was noted of what it was told.
fn run(store: &Arc<Store>, snapshot: &Snapshot, seed: u64) -> (Reply, Vec<Read>) {
    let mut tree = Tree::new(store.clone(), snapshot.clone(), UNIX_EPOCH);
    let nodes = vec![ROOT, PROMISES];
    let (random, told) = (Random::new(&[seed]), DefaultHasher::new());
    let reply = Program { tree: &mut tree, random, nodes, told }.run();
    (reply, tree.take_reads())
}

/// As when two threads of a check race each other.
fn shuffle(reads: &mut [Read], random: &mut Random) {
    for at in (1..reads.len()).rev() {
        reads.swap(at, random.below(at as u64 + 1) as usize);
    }
}

/// How many states were judged, and how many of them by others.
fn judge_all(seed: u64, races: bool) -> (u64, u64) {
    let mut random = Random::new(&[seed]);
    let mut recording = random_log(&mut random);
    let (log, base) = recording.finish();
    let store = Arc::new(Store::open(&log, &base, None).unwrap());
    let durability = Durability::new(&store.trace, Fault::Power);
    let cuts = Cuts::new(&store.trace, &durability, seed);
    let mut image = Image::new(&store, &durability);
    let sharing = Sharing::new(&store.trace);
    let (mut all, mut shared) = (0, 0);
    for cut in 3..=store.trace.last() {
        image.advance(cut).unwrap();
        let promises: Arc<[u8]> = vec![b'p'; cut as usize / 4].into();
        let cut = collect(&image, &[]);
        for pass in [Pass::Single, Pass::Random(1)] {
            for choice in choices(pass, &cuts, &cut, seed, 40) {
                let snapshot = Snapshot::new(&cut.state(&choice).unwrap());
                let snapshot = snapshot.with_promises(&promises);
                let (reply, mut reads) = run(&store, &snapshot, seed);
                let known = sharing.recall(&store, &snapshot).unwrap();
                assert_eq!(known.unwrap_or(reply), reply, "seed {seed}");
                (all, shared) = (all + 1, shared + u64::from(known.is_some()));
                if races {
                    shuffle(&mut reads, &mut random);
                }
                sharing.learn(&store, &snapshot, reads, reply).unwrap();
                assert!(!sharing.is_unsteady(), "seed {seed}");
            }
        }
    }
    (all, shared)
}

proptest! {
    #[test]
    fn what_is_concluded_is_what_a_run_says(seed: u64, races: bool) {
        let (all, shared) = judge_all(seed, races);
        prop_assert!(shared <= all);
    }
}

#[test]
fn most_states_are_judged_by_others() {
    let counts = (0..40).map(|seed| judge_all(seed, false));
    let (all, shared) = counts.fold((0, 0), |(all, shared), (a, s)| (all + a, shared + s));
    assert!(shared * 2 > all, "{shared} of {all}");
}

#[test]
fn an_answer_that_is_another_for_the_same_ends_it() {
    let mut random = Random::new(&[1]);
    let mut recording = random_log(&mut random);
    let (log, base) = recording.finish();
    let store = Arc::new(Store::open(&log, &base, None).unwrap());
    let durability = Durability::new(&store.trace, Fault::Power);
    let image = Image::new(&store, &durability);
    let cut = collect(&image, &[]);
    let state = cut.state(&Choice::Nothing).unwrap();
    let snapshot = Snapshot::new(&state);
    let sharing = Sharing::new(&store.trace);
    let reads = vec![Read::Entries(ROOT), Read::Attributes(ROOT)];
    let (kept, lost) = (Reply { code: 0, lost: 0 }, Reply { code: 1, lost: 1 });
    sharing.learn(&store, &snapshot, reads.clone(), kept).unwrap();
    assert_eq!(sharing.recall(&store, &snapshot).unwrap(), Some(kept));
    sharing.learn(&store, &snapshot, reads[..1].to_vec(), lost).unwrap();
    assert!(sharing.is_unsteady());
    assert_eq!(sharing.recall(&store, &snapshot).unwrap(), None);
}

#[test]
fn what_a_check_wrote_itself_is_not_read() {
    let mut recording = Recording::new(&[b'o'; 8192]);
    let (log, base) = recording.finish();
    let store = Arc::new(Store::open(&log, &base, None).unwrap());
    let durability = Durability::new(&store.trace, Fault::Power);
    let mut image = Image::new(&store, &durability);
    image.advance(store.trace.last()).unwrap();
    let cut = collect(&image, &[]);
    let snapshot = Snapshot::new(&cut.state(&Choice::Nothing).unwrap());
    let pages = |work: &dyn Fn(&mut Tree)| {
        let mut tree = Tree::new(store.clone(), snapshot.clone(), UNIX_EPOCH);
        work(&mut tree);
        tree.read(DISK, 0, 8192).unwrap();
        let page = |read| if let Read::Page(DISK, page) = read { Some(page) } else { None };
        tree.take_reads().into_iter().filter_map(page).collect::<Vec<_>>()
    };
    assert_eq!(pages(&|_| {}), [0, 1]);
    assert_eq!(pages(&|tree| tree.write(DISK, 0, &[1; 4096]).unwrap()), [1]);
    assert_eq!(pages(&|tree| tree.write(DISK, 4096, &[1; 5000]).unwrap()), [0]);
    assert_eq!(pages(&|tree| tree.write(DISK, 4000, &[1; 200]).unwrap()), [0, 1]);
    assert_eq!(pages(&|tree| tree.write(DISK, 0, &[1; 8000]).unwrap()), [1]);
    assert_eq!(pages(&|tree| tree.resize(DISK, 5000).unwrap()), [0, 1]);
    assert_eq!(pages(&|tree| tree.resize(DISK, 4096).unwrap()), [0]);
    let anew = |tree: &mut Tree| tree.resize(DISK, 0).and_then(|()| tree.resize(DISK, 8192));
    assert_eq!(pages(&|tree| anew(tree).unwrap()), [0; 0]);
}
