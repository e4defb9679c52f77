//! All names of the backing, by the ids of their files.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::Arc;

use diskproof_wire::crash_log::ROOT;
use rustix::fs::Stat;

use crate::inodes::{key, Inode, Key};
use crate::places::Place;

/// A file's names, each with its directory, and which file of the host it is.
struct Named {
    key: Key,
    names: Vec<(u64, Box<OsStr>)>,
}

#[derive(Default)]
pub struct Tree {
    /// By device and inode number on the host: every file that has a name.
    ids: HashMap<Key, u64>,
    named: HashMap<u64, Named>,
    /// What the kernel knows, with its number of references.
    pub known: HashMap<u64, (Arc<Inode>, u64)>,
    last_id: u64,
}

impl Tree {
    /// A tree of the recorded directory alone.
    pub fn new(root: &Stat) -> Tree {
        let mut tree = Tree::default();
        let id = tree.enter(root);
        assert_eq!(id, ROOT);
        tree
    }

    fn enter(&mut self, stat: &Stat) -> u64 {
        if let Some(&id) = self.ids.get(&key(stat)) {
            return id;
        }
        self.last_id += 1;
        let id = self.last_id;
        self.ids.insert(key(stat), id);
        self.named.insert(id, Named { key: key(stat), names: Vec::new() });
        id
    }

    /// The id of the file that has this name now; a new one if it is new.
    pub fn add_name(&mut self, stat: &Stat, parent: u64, name: &OsStr) -> u64 {
        let id = self.enter(stat);
        if let Some(named) = self.named.get_mut(&id) {
            named.names.push((parent, name.into()));
        }
        id
    }

    /// After the last name of a file its inode number means nothing.
    pub fn take_name(&mut self, id: u64, parent: u64, name: &OsStr) {
        let Some(named) = self.named.get_mut(&id) else { return };
        named.names.retain(|(directory, known)| (*directory, &**known) != (parent, name));
        if named.names.is_empty() {
            self.ids.remove(&named.key);
            self.named.remove(&id);
        }
    }

    pub fn move_name(&mut self, id: u64, from: (u64, &OsStr), to: (u64, &OsStr)) {
        let Some(named) = self.named.get_mut(&id) else { return };
        for (parent, name) in &mut named.names {
            if (*parent, &**name) == from {
                (*parent, *name) = (to.0, to.1.into());
                return;
            }
        }
    }

    pub fn find_id(&self, key: Key) -> Option<u64> {
        self.ids.get(&key).copied()
    }

    pub fn has_name(&self, id: u64) -> bool {
        self.named.contains_key(&id)
    }

    /// An open directory above a file, the names that lead from there to it (the last one first),
    /// and which file of the host must be there.
    pub fn way_to(&self, id: u64) -> Option<(Place, Vec<Box<OsStr>>, Key)> {
        let mut names = Vec::new();
        let mut at = id;
        loop {
            let (parent, name) = self.named.get(&at)?.names.first()?;
            names.push(name.clone());
            let open = self.known.get(parent).and_then(|(inode, _)| inode.find_place());
            if let Some(place) = open {
                return Some((place, names, self.named[&id].key));
            }
            at = *parent;
        }
    }
}
