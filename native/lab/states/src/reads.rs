//! What a check was answered about a state, and what another state would have answered.

use std::collections::HashSet;
use std::ffi::OsString;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::content::Store;
use crate::snapshot::{Node, Snapshot};
use crate::state::{read_runs, runs_between};
use crate::tree::PAGE;

/// A question about a state as it was before the check changed it; files are named by their ids,
/// which are the same in all states of a log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Read {
    /// Which file a directory's name is of, if there is one.
    Name(u64, OsString),
    Attributes(u64),
    Extended(u64),
    /// All names of a directory.
    Entries(u64),
    Page(u64, u64),
}

/// What was asked, in the order in which it first was.
#[derive(Default)]
pub struct Reads {
    known: HashSet<Read>,
    order: Vec<Read>,
}

impl Reads {
    pub fn add(&mut self, read: Read) {
        if !self.known.contains(&read) {
            self.known.insert(read.clone());
            self.order.push(read);
        }
    }

    pub fn into_order(self) -> Vec<Read> {
        self.order
    }
}

/// Gives answers as numbers: two states that answer with the same number answered the same.
pub struct Answerer<'a> {
    pub store: &'a Store,
    pub snapshot: &'a Snapshot,
}

impl Answerer<'_> {
    pub fn answer(&self, read: &Read) -> io::Result<u64> {
        let mut hasher = DefaultHasher::new();
        match read {
            Read::Name(parent, name) => {
                let entries = self.node(*parent).map(|node| &node.entries);
                entries.map(|entries| entries.get(name.as_bytes())).hash(&mut hasher);
            }
            Read::Attributes(file) => {
                let node = self.node(*file);
                node.map(|node| (own(node), node.links, node.size, &node.target)).hash(&mut hasher);
            }
            Read::Extended(file) => {
                self.node(*file).map(|node| &node.attributes.extended).hash(&mut hasher);
            }
            Read::Entries(folder) => {
                self.node(*folder).map(|node| &node.entries).hash(&mut hasher);
            }
            Read::Page(file, page) => self.hash_page(*file, *page, &mut hasher)?,
        }
        Ok(hasher.finish())
    }

    fn node(&self, file: u64) -> Option<&Node> {
        self.snapshot.nodes.get(&file)
    }

    fn hash_page(&self, file: u64, page: u64, hasher: &mut impl Hasher) -> io::Result<()> {
        let Some(node) = self.node(file) else { return Ok(()) };
        let start = page * PAGE;
        let end = node.size.min(start + PAGE);
        if start < end {
            let mut bytes = [0; PAGE as usize];
            let bytes = &mut bytes[..(end - start) as usize];
            let runs = runs_between(self.store, &node.runs, start, end);
            read_runs(self.store, file, runs, node.size, start, bytes)?;
            bytes.hash(hasher);
        }
        Ok(())
    }
}

/// What stat(2) says of a file beside its size and links; times are the same in all states.
fn own(node: &Node) -> (u32, u32, u32, u32) {
    let attributes = &node.attributes;
    (attributes.mode, attributes.uid, attributes.gid, node.rdev)
}
