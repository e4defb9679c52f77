//! What a power cut leaves of a log made by hand, under each rules of a file system.

use std::borrow::Cow;
use std::collections::BTreeMap;

use diskproof_states::choice::Choice;
use diskproof_states::combinations;
use diskproof_states::content::Store;
use diskproof_states::cut::{collect, Cut};
use diskproof_states::fault::{Durability, Fault};
use diskproof_states::image::Image;
use diskproof_states::snapshot::Snapshot;
use diskproof_wire::crash_log::{Flags, Operation, ROOT};

use crate::logs::{entry, Recording};

pub const FILE: u64 = 0o100644;

/// Paths, with what the files hold; modes.
pub type Seen = BTreeMap<String, (Vec<u8>, u32)>;

/// But the one that does not keep what fsync had returned from.
pub fn profiles() -> impl Iterator<Item = Fault> {
    let keeps = |fault: &Fault| fault.rules().is_some_and(|rules| !rules.fsync_may_not_wait);
    Fault::ALL.into_iter().filter(keeps)
}

pub fn look(cut: &Cut<'_, '_>, choice: &Choice) -> Seen {
    let state = cut.state(choice).unwrap();
    let snapshot = Snapshot::new(&state);
    let mut seen = Seen::new();
    let mut open = vec![(ROOT, String::new())];
    while let Some((directory, path)) = open.pop() {
        for (name, &file) in &snapshot.nodes[&directory].entries {
            let path = format!("{path}{}", String::from_utf8_lossy(name));
            let node = &snapshot.nodes[&file];
            let mut bytes = vec![0; node.size as usize];
            state.read(file, 0, &mut bytes).unwrap();
            seen.insert(path.clone(), (bytes, node.attributes.mode));
            if node.is_directory() {
                open.push((file, path + "/"));
            }
        }
    }
    seen
}

/// All that a power cut after the last record leaves.
pub fn states(recording: &mut Recording, fault: Fault) -> Vec<Seen> {
    let (log, base) = recording.finish();
    let store = Store::open(&log, &base, None).unwrap().under(fault);
    let durability = Durability::new(&store.trace, fault);
    let mut image = Image::new(&store, &durability);
    image.advance(store.trace.last()).unwrap();
    let cut = collect(&image, &[]);
    combinations::all(&cut, 1 << 20).unwrap().iter().map(|choice| look(&cut, choice)).collect()
}

pub fn create(recording: &mut Recording, file: u64, name: &str) {
    recording.add(file, Operation::Create(entry(ROOT, FILE as u32, 0, name.as_bytes())));
}

pub fn write(recording: &mut Recording, file: u64, length: u64) {
    let data = Cow::Owned(vec![7; length as usize]);
    recording.add(file, Operation::Write { flags: Flags::NONE, offset: 0, data });
}

pub fn rename(recording: &mut Recording, file: u64, from: &str, to: &str, replaced: u64) {
    recording.add(file, moved((ROOT, from), (ROOT, to), replaced));
}

pub fn move_to(recording: &mut Recording, file: u64, from: (u64, &str), to: (u64, &str)) {
    recording.add(file, moved(from, to, 0));
}

fn moved(from: (u64, &str), to: (u64, &str), replaced: u64) -> Operation<'static> {
    let name = |name: &str| Cow::Owned(name.as_bytes().to_vec());
    let (parent, new_parent) = (from.0, to.0);
    let (name, new_name) = (name(from.1), name(to.1));
    Operation::Rename { flags: 0, parent, new_parent, replaced, name, new_name }
}

pub fn fsync(recording: &mut Recording, file: u64) {
    recording.add(file, Operation::Fsync { flags: Flags::NONE });
}

/// Under which of POSIX and the profiles there is such a state.
pub fn allow(make: impl Fn(&mut Recording), is_such: impl Fn(&Seen) -> bool) -> Vec<Fault> {
    let faults = [Fault::Power].into_iter().chain(profiles());
    let has = |fault: &Fault| {
        let mut recording = Recording::new(b"old");
        make(&mut recording);
        let states = states(&mut recording, *fault);
        assert!(states.len() > 1);
        states.iter().any(&is_such)
    };
    faults.filter(has).collect()
}
