//! A state by itself: every name and file, with where its bytes come from.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use diskproof_wire::crash_log::ROOT;

use crate::content::Source;
use crate::image::{Attributes, Key, Value};
use crate::state::{Run, State};
use crate::tree::PROMISES;

/// A file, directory or other node of a state.
#[derive(Clone, Debug)]
pub struct Node {
    pub attributes: Arc<Attributes>,
    pub rdev: u32,
    pub target: Arc<[u8]>,
    pub size: u64,
    /// Runs of sectors that differ from the base.
    pub runs: Arc<Vec<Run>>,
    /// What the directory holds, by name; empty for other nodes.
    pub entries: BTreeMap<Arc<[u8]>, u64>,
    pub links: u32,
}

/// All that can be reached from the recorded directory, by id.
#[derive(Clone)]
pub struct Snapshot {
    pub nodes: HashMap<u64, Node>,
}

impl Snapshot {
    pub fn new(state: &State<'_, '_, '_>) -> Snapshot {
        let names = names(state);
        let mut nodes: HashMap<u64, Node> = HashMap::new();
        let mut open = vec![ROOT];
        while let Some(file) = open.pop() {
            if let Some(known) = nodes.get_mut(&file) {
                known.links += 1;
                continue;
            }
            let Some(mut node) = node(state, file) else { continue };
            if node.is_directory() {
                node.entries = names.get(&file).cloned().unwrap_or_default();
                open.extend(node.entries.values());
            }
            nodes.insert(file, node);
        }
        let known: std::collections::HashSet<u64> = nodes.keys().copied().collect();
        for node in nodes.values_mut() {
            node.entries.retain(|_, file| known.contains(file));
        }
        Snapshot { nodes }
    }

    /// Adds the file with what was promised. It is beside the recorded directory, not in it.
    pub fn with_promises(mut self, lines: &Arc<[u8]>) -> Snapshot {
        let attributes = Attributes {
            mode: libc::S_IFREG | 0o644,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            extended: BTreeMap::new(),
        };
        let node = Node {
            attributes: Arc::new(attributes),
            rdev: 0,
            target: Arc::default(),
            size: lines.len() as u64,
            runs: Arc::new(vec![Run {
                start: 0,
                end: u64::MAX,
                source: Source::Own(lines.clone()),
            }]),
            entries: BTreeMap::new(),
            links: 1,
        };
        self.nodes.insert(PROMISES, node);
        self
    }
}

impl Node {
    pub fn is_directory(&self) -> bool {
        self.attributes.mode & libc::S_IFMT == libc::S_IFDIR
    }

    pub fn is_regular(&self) -> bool {
        self.attributes.mode & libc::S_IFMT == libc::S_IFREG
    }
}

/// Gives the entries of every directory, by its id.
fn names(state: &State<'_, '_, '_>) -> HashMap<u64, BTreeMap<Arc<[u8]>, u64>> {
    let mut names: HashMap<u64, BTreeMap<Arc<[u8]>, u64>> = HashMap::new();
    let cells = state.cut.image.cells.range(Key::Name((0, Arc::from(&[][..])))..);
    for (key, cell) in cells {
        let Key::Name((parent, name)) = key else { continue };
        if name.is_empty() {
            continue;
        }
        if let Value::Name(Some(file)) = state.value(key, &cell.versions) {
            names.entry(*parent).or_default().insert(name.clone(), *file);
        }
    }
    names
}

fn node(state: &State<'_, '_, '_>, file: u64) -> Option<Node> {
    let image = state.cut.image;
    let born = image.store.trace.nodes.get(&file)?;
    let key = Key::Attributes(file);
    let attributes = match image.cells.get(&key).map(|cell| state.value(&key, &cell.versions)) {
        Some(Value::Attributes(attributes)) => attributes.clone(),
        _ => Arc::new(Attributes {
            mode: born.mode,
            uid: born.uid,
            gid: born.gid,
            extended: image.store.base.extended(file),
        }),
    };
    let is_regular = born.mode & libc::S_IFMT == libc::S_IFREG;
    Some(Node {
        attributes,
        rdev: born.rdev,
        target: born.target.clone(),
        size: if is_regular { state.size(file) } else { 0 },
        runs: Arc::new(if is_regular { state.runs(file, 0, u64::MAX) } else { Vec::new() }),
        entries: BTreeMap::new(),
        links: 1,
    })
}
