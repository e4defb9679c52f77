//! Every state of names in tiny logs against a slow model that looks at one name at a time, and the
//! paths that are named against a model that keeps whole paths.

#![cfg(test)]

mod logs;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use diskproof_states::choice::Choice;
use diskproof_states::content::Store;
use diskproof_states::cut::{collect, Cut};
use diskproof_states::fault::{Durability, Fault};
use diskproof_states::image::Image;
use diskproof_states::operation::Operations;
use diskproof_states::snapshot::Snapshot;
use diskproof_wire::crash_log::{Flags, Operation, ROOT};
use logs::{entry, Recording, DISK};
use proptest::prelude::*;

/// Directories that are there and durable before the first step.
const DIRECTORIES: [(u64, &str); 3] = [(ROOT, ""), (3, "d"), (4, "e")];
/// Of the first file that a step makes.
const FIRST: u64 = 5;
const NAMES: [&str; 2] = ["x", "y"];

/// One of six places; what cannot be done there is left out.
#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Mkdir(usize),
    Link(usize, usize),
    Remove(usize),
    Rename(usize, usize),
    Fsync(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let place = || 0..DIRECTORIES.len() * NAMES.len();
    prop_oneof![
        3 => place().prop_map(Step::Create),
        1 => place().prop_map(Step::Mkdir),
        2 => (place(), place()).prop_map(|(from, to)| Step::Link(from, to)),
        2 => place().prop_map(Step::Remove),
        4 => (place(), place()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => (0..DIRECTORIES.len()).prop_map(Step::Fsync),
    ]
}

/// A directory and a name in it.
type Name = (u64, &'static str);
/// Which file each name is of.
type Tree = BTreeMap<Name, u64>;

fn name(place: usize) -> Name {
    (DIRECTORIES[place % 3].0, NAMES[place / 3])
}

fn path((directory, name): Name) -> String {
    let (_, above) = DIRECTORIES.iter().find(|(file, _)| *file == directory).unwrap();
    if above.is_empty() {
        name.to_owned()
    } else {
        format!("{above}/{name}")
    }
}

/// A change of names by definition: what it sets, which files it is about, whose flush it needs.
struct Change {
    sequence: u64,
    sets: Vec<(Name, Option<u64>)>,
    files: Vec<u64>,
    directory: u64,
    named: (&'static str, String, Option<String>),
}

#[derive(Default)]
struct Model {
    tree: Tree,
    folders: BTreeSet<u64>,
    changes: Vec<Change>,
    /// Sequence and directory of each flush.
    flushes: Vec<(u64, u64)>,
    last: u64,
}

fn encoded(name: Name) -> (u64, Cow<'static, [u8]>) {
    (name.0, Cow::Borrowed(name.1.as_bytes()))
}

impl Model {
    fn take(&mut self, recording: &mut Recording, step: &Step) {
        match *step {
            Step::Create(place) => self.make(recording, name(place), false),
            Step::Mkdir(place) => self.make(recording, name(place), true),
            Step::Link(from, to) => self.link(recording, name(from), name(to)),
            Step::Remove(place) => self.remove(recording, name(place)),
            Step::Rename(from, to) => self.rename(recording, name(from), name(to)),
            Step::Fsync(directory) => {
                let file = DIRECTORIES[directory].0;
                self.last = recording.add(file, Operation::Fsync { flags: Flags::DIRECTORY });
                self.flushes.push((self.last, file));
            }
        }
    }

    fn push(&mut self, change: Change) {
        for (name, file) in &change.sets {
            match file {
                Some(file) => self.tree.insert(*name, *file),
                None => self.tree.remove(name),
            };
        }
        self.last = change.sequence;
        self.changes.push(change);
    }

    fn make(&mut self, recording: &mut Recording, at: Name, folder: bool) {
        if self.tree.contains_key(&at) {
            return;
        }
        let file = FIRST + self.changes.len() as u64;
        let mode = if folder { 0o40755 } else { 0o100644 };
        let made = entry(at.0, mode, 0, at.1.as_bytes());
        let (operation, word) = match folder {
            true => (Operation::Mkdir(made), "mkdir"),
            false => (Operation::Create(made), "create"),
        };
        let sequence = recording.add(file, operation);
        if folder {
            self.folders.insert(file);
        }
        let (sets, named) = (vec![(at, Some(file))], (word, path(at), None));
        self.push(Change { sequence, sets, files: vec![file], directory: at.0, named });
    }

    fn link(&mut self, recording: &mut Recording, from: Name, to: Name) {
        let Some(&file) = self.tree.get(&from).filter(|file| !self.folders.contains(file)) else {
            return;
        };
        if self.tree.contains_key(&to) {
            return;
        }
        let (parent, name) = encoded(to);
        let sequence = recording.add(file, Operation::Link { parent, name });
        let named = ("link", self.path_of(file), Some(path(to)));
        let sets = vec![(to, Some(file))];
        self.push(Change { sequence, sets, files: vec![file], directory: to.0, named });
    }

    fn remove(&mut self, recording: &mut Recording, at: Name) {
        let Some(&file) = self.tree.get(&at) else { return };
        let (parent, name) = encoded(at);
        let (operation, word) = match self.folders.contains(&file) {
            true => (Operation::Rmdir { parent, name }, "rmdir"),
            false => (Operation::Unlink { parent, name }, "unlink"),
        };
        let sequence = recording.add(file, operation);
        let (sets, named) = (vec![(at, None)], (word, path(at), None));
        self.push(Change { sequence, sets, files: vec![file], directory: at.0, named });
    }

    fn rename(&mut self, recording: &mut Recording, from: Name, to: Name) {
        let Some(&file) = self.tree.get(&from) else { return };
        let replaced = self.tree.get(&to).copied();
        if from == to || replaced == Some(file) {
            return;
        }
        if replaced
            .is_some_and(|other| self.folders.contains(&other) != self.folders.contains(&file))
        {
            return;
        }
        let ((parent, name), (new_parent, new_name)) = (encoded(from), encoded(to));
        let number = replaced.unwrap_or(0);
        let operation =
            Operation::Rename { flags: 0, parent, new_parent, replaced: number, name, new_name };
        let sequence = recording.add(file, operation);
        let named = ("rename", path(from), Some(path(to)));
        let sets = vec![(from, None), (to, Some(file))];
        let files = [Some(file), replaced].into_iter().flatten().collect();
        self.push(Change { sequence, sets, files, directory: to.0, named });
    }

    /// Of several names the one that it has had longest.
    fn path_of(&self, file: u64) -> String {
        let has = |name: &Name| self.tree.get(name) == Some(&file);
        let set = |change: &Change| {
            change.sets.iter().find(|(_, given)| *given == Some(file)).map(|(name, _)| *name)
        };
        let mut given: Vec<Name> = self.changes.iter().filter_map(set).collect();
        // A name that was taken away and given again is as young as its last time.
        given = given
            .iter()
            .enumerate()
            .filter(|(at, name)| has(name) && !given[at + 1..].contains(name))
            .map(|(_, name)| *name)
            .collect();
        path(given[0])
    }

    /// It is about the same name, or the same file.
    fn needs(later: &Change, earlier: &Change) -> bool {
        earlier.sequence < later.sequence
            && (earlier.files.iter().any(|file| later.files.contains(file))
                || earlier.sets.iter().any(|one| later.sets.iter().any(|two| one.0 == two.0)))
    }

    fn durable(&self, cut: u64) -> BTreeSet<u64> {
        let flushed = |change: &&Change| {
            let covers = |&(at, file): &(u64, u64)| {
                at <= cut && at > change.sequence && file == change.directory
            };
            self.flushes.iter().any(covers)
        };
        let mut durable: BTreeSet<u64> =
            self.changes.iter().filter(flushed).map(|one| one.sequence).collect();
        for change in self.changes.iter().rev() {
            let later = self.changes.iter().filter(|one| durable.contains(&one.sequence));
            if later.into_iter().any(|later| Model::needs(later, change)) {
                durable.insert(change.sequence);
            }
        }
        durable
    }

    /// All trees that a crash at this cut may leave.
    fn trees(&self, cut: u64) -> BTreeSet<Tree> {
        let durable = self.durable(cut);
        let known: Vec<&Change> = self.changes.iter().filter(|one| one.sequence <= cut).collect();
        let open: Vec<&Change> =
            known.iter().filter(|one| !durable.contains(&one.sequence)).copied().collect();
        let mut trees = BTreeSet::new();
        for mask in 0..1u32 << open.len() {
            let there = |change: &Change| {
                durable.contains(&change.sequence)
                    || open
                        .iter()
                        .zip(0..)
                        .any(|(one, bit)| one.sequence == change.sequence && mask >> bit & 1 == 1)
            };
            let whole = known
                .iter()
                .filter(|one| there(one))
                .all(|one| known.iter().filter(|two| Model::needs(one, two)).all(|two| there(two)));
            if !whole {
                continue;
            }
            let mut tree = Tree::new();
            for (name, file) in known.iter().filter(|one| there(one)).flat_map(|one| &one.sets) {
                match file {
                    Some(file) => tree.insert(*name, *file),
                    None => tree.remove(name),
                };
            }
            trees.insert(tree);
        }
        trees
    }
}

/// What the explorer builds at a cut, from every combination.
fn built(cut: &Cut<'_, '_>) -> BTreeSet<Tree> {
    let sequences: Vec<u64> = cut.candidates.iter().map(|one| one.sequence).collect();
    let mut by_hash = HashMap::new();
    for mask in 0..1u32 << sequences.len() {
        let gone = sequences.iter().enumerate().filter(|(bit, _)| mask >> bit & 1 == 1);
        let state = cut.state(&Choice::without(gone.map(|(_, at)| *at))).unwrap();
        let tree = read(&Snapshot::new(&state));
        let same = by_hash.entry(state.hash).or_insert_with(|| tree.clone());
        assert_eq!(*same, tree, "states of one hash hold the same");
    }
    by_hash.into_values().collect()
}

fn read(snapshot: &Snapshot) -> Tree {
    let mut tree = Tree::new();
    for (directory, _) in DIRECTORIES {
        for (name, file) in &snapshot.nodes[&directory].entries {
            if let Some(name) = NAMES.iter().find(|one| one.as_bytes() == &**name) {
                tree.insert((directory, *name), *file);
            }
        }
    }
    tree
}

fn check(steps: &[Step]) -> Result<(), TestCaseError> {
    let mut recording = Recording::new(b"");
    for (file, name) in &DIRECTORIES[1..] {
        recording.add(*file, Operation::Base(entry(ROOT, 0o40755, 0, name.as_bytes())));
    }
    let mut model = Model::default();
    steps.iter().for_each(|step| model.take(&mut recording, step));
    let (log, folder) = recording.finish();
    let base = folder.clone();
    DIRECTORIES[1..].iter().for_each(|(_, name)| std::fs::create_dir(base.join(name)).unwrap());
    let store = Store::open(&log, &folder, None).unwrap();
    let durability = Durability::new(&store.trace, Fault::Power);
    let mut image = Image::new(&store, &durability);
    for cut in DISK + 2..=model.last.max(DISK + 2) {
        image.advance(cut).unwrap();
        prop_assert_eq!(built(&collect(&image, &[])), model.trees(cut), "cut {}", cut);
    }
    let named = Operations::new(&store.trace);
    let named = named.filter(|one| model.flushes.iter().all(|(at, _)| *at != one.sequence));
    let named: Vec<_> =
        named.map(|one| (serde_json::to_value(one.kind).unwrap(), one.path, one.to)).collect();
    let expected = model.changes.iter().map(|one| {
        let (word, path, to) = &one.named;
        (serde_json::Value::from(*word), path.clone(), to.clone())
    });
    prop_assert_eq!(named, expected.collect::<Vec<_>>());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_tree_is_what_the_model_says(steps in prop::collection::vec(step(), 0..9)) {
        check(&steps)?;
    }
}

#[test]
fn a_file_is_never_lost_between_a_link_and_an_unlink() {
    // Files that move over another's name, or lose theirs in another directory.
    check(&[Step::Create(1), Step::Link(1, 2), Step::Remove(1), Step::Fsync(1)]).unwrap();
    check(&[
        Step::Create(1),
        Step::Link(1, 2),
        Step::Create(4),
        Step::Rename(4, 1),
        Step::Fsync(1),
    ])
    .unwrap();
}

/// A directory that moves takes the paths below it along.
#[test]
fn paths_are_those_of_the_time() {
    let mut recording = Recording::new(b"");
    recording.add(7, Operation::Mkdir(entry(ROOT, 0o40755, 0, b"new")));
    recording.add(8, Operation::Create(entry(7, 0o100644, 0, b"f")));
    let rename = |name: &'static [u8], new_name: &'static [u8]| Operation::Rename {
        flags: 0,
        parent: ROOT,
        new_parent: ROOT,
        replaced: 0,
        name: Cow::Borrowed(name),
        new_name: Cow::Borrowed(new_name),
    };
    recording.add(7, rename(b"new", b"old"));
    let write = || {
        let data = Cow::Borrowed(&b"12"[..]);
        Operation::Write { flags: Flags::DSYNC, offset: 3, data }
    };
    recording.add(8, write());
    recording.add(8, Operation::Unlink { parent: 7, name: Cow::Borrowed(b"f") });
    recording.add(8, write());
    recording.add(7, Operation::Fsync { flags: Flags::DIRECTORY });
    let (log, base) = recording.finish();
    let store = Store::open(&log, &base, None).unwrap();
    let named: Vec<_> = Operations::new(&store.trace)
        .map(|one| format!("{:?} {} {}", one.kind, one.path, one.to.unwrap_or_default()))
        .collect();
    let expected = [
        "Mkdir new ",
        "Create new/f ",
        "Rename new old",
        "Write old/f ",
        "Unlink old/f ",
        "Write old/f ",
        "Fsync old ",
    ];
    assert_eq!(named, expected);
}
