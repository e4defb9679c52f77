//! A state as a file system that can be written to: what is written is kept in memory, and thrown
//! away with it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::io::Errno;

use crate::content::Store;
use crate::reads::{Read, Reads};
use crate::snapshot::Snapshot;
use crate::state::{read_runs, runs_between, Run};

pub const PAGE: u64 = 4096;
/// What a check may write into one state.
const MAX_PAGES: u64 = (1 << 30) / PAGE;
/// Nodes that a check may make.
const MAX_NODES: u64 = 1 << 20;
/// The file with what was promised, beside the state; ids of the log are below.
pub const PROMISES: u64 = 1 << 33;
/// Ids of nodes that a check makes.
pub const NEW_IDS: u64 = PROMISES + 1;
/// As large as a file may get.
const MAX_SIZE: u64 = 1 << 60;

pub type Result<T> = std::result::Result<T, Errno>;

pub struct Leaf {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub links: u32,
    pub size: u64,
    pub target: Vec<u8>,
    pub extended: BTreeMap<Vec<u8>, Vec<u8>>,
    pub entries: BTreeMap<OsString, u64>,
    pub changed: SystemTime,
    runs: Arc<Vec<Run>>,
    /// Behind it nothing of the state is seen any more.
    visible: u64,
    pages: HashMap<u64, Box<[u8; PAGE as usize]>>,
}

pub struct Tree {
    store: Arc<Store>,
    pub nodes: HashMap<u64, Leaf>,
    next: u64,
    pages: u64,
    reads: Reads,
}

/// Who asks for a new node, and what it is to be.
pub struct New {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub target: Vec<u8>,
}

impl Leaf {
    pub fn kind(&self) -> u32 {
        self.mode & libc::S_IFMT
    }

    fn new(new: New) -> Leaf {
        Leaf {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            links: 1,
            size: new.target.len() as u64,
            target: new.target,
            extended: BTreeMap::new(),
            entries: BTreeMap::new(),
            changed: SystemTime::now(),
            runs: Arc::default(),
            visible: 0,
            pages: HashMap::new(),
        }
    }
}

impl Tree {
    pub fn new(store: Arc<Store>, snapshot: Snapshot, changed: SystemTime) -> Tree {
        let leaf = |node: crate::snapshot::Node| {
            let size = if node.is_regular() { node.size } else { node.target.len() as u64 };
            let text = |bytes: &Arc<[u8]>| bytes.to_vec();
            Leaf {
                mode: node.attributes.mode,
                uid: node.attributes.uid,
                gid: node.attributes.gid,
                rdev: node.rdev,
                links: node.links,
                size,
                target: text(&node.target),
                extended: node
                    .attributes
                    .extended
                    .iter()
                    .map(|(k, v)| (text(k), text(v)))
                    .collect(),
                entries: node
                    .entries
                    .iter()
                    .map(|(name, &id)| (OsString::from_vec(name.to_vec()), id))
                    .collect(),
                changed,
                runs: node.runs,
                visible: node.size,
                pages: HashMap::new(),
            }
        };
        let nodes = snapshot.nodes.into_iter().map(|(id, node)| (id, leaf(node))).collect();
        Tree { store, nodes, next: NEW_IDS, pages: 0, reads: Reads::default() }
    }

    pub fn node(&self, id: u64) -> Result<&Leaf> {
        self.nodes.get(&id).ok_or(Errno::NOENT)
    }

    /// As stat(2) tells them.
    pub fn attributes(&mut self, id: u64) -> Result<&Leaf> {
        self.note(id, Read::Attributes);
        self.node(id)
    }

    /// All names of a directory are told.
    pub fn see_entries(&mut self, id: u64) {
        self.note(id, Read::Entries);
    }

    pub fn extended(&mut self, id: u64) -> Result<&mut BTreeMap<Vec<u8>, Vec<u8>>> {
        self.note(id, Read::Extended);
        Ok(&mut self.node_mut(id)?.extended)
    }

    /// What was told of the state so far; it begins anew.
    pub fn take_reads(&mut self) -> Vec<Read> {
        std::mem::take(&mut self.reads).into_order()
    }

    /// What is new with the check tells nothing of the state.
    fn note(&mut self, id: u64, read: impl FnOnce(u64) -> Read) {
        if id < NEW_IDS {
            self.reads.add(read(id));
        }
    }

    pub fn node_mut(&mut self, id: u64) -> Result<&mut Leaf> {
        self.nodes.get_mut(&id).ok_or(Errno::NOENT)
    }

    pub fn lookup(&mut self, parent: u64, name: &OsStr) -> Result<u64> {
        self.note(parent, |parent| Read::Name(parent, name.to_owned()));
        self.node(parent)?.entries.get(name).copied().ok_or(Errno::NOENT)
    }

    pub fn make(&mut self, parent: u64, name: &OsStr, new: New) -> Result<u64> {
        self.check_free(parent, name)?;
        if self.next - NEW_IDS >= MAX_NODES {
            return Err(Errno::NOSPC);
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Leaf::new(new));
        self.node_mut(parent)?.entries.insert(name.to_owned(), id);
        Ok(id)
    }

    fn check_free(&mut self, parent: u64, name: &OsStr) -> Result<()> {
        self.note(parent, |parent| Read::Name(parent, name.to_owned()));
        let parent = self.node(parent)?;
        if parent.kind() != libc::S_IFDIR {
            Err(Errno::NOTDIR)
        } else if parent.entries.contains_key(name) {
            Err(Errno::EXIST)
        } else if name.as_bytes().len() > 255 {
            Err(Errno::NAMETOOLONG)
        } else {
            Ok(())
        }
    }

    pub fn link(&mut self, id: u64, parent: u64, name: &OsStr) -> Result<()> {
        self.check_free(parent, name)?;
        self.node_mut(id)?.links += 1;
        self.node_mut(parent)?.entries.insert(name.to_owned(), id);
        Ok(())
    }

    pub fn remove(&mut self, parent: u64, name: &OsStr, directory: bool) -> Result<()> {
        let id = self.lookup(parent, name)?;
        if directory {
            self.see_entries(id);
        }
        let node = self.node_mut(id)?;
        match (node.kind() == libc::S_IFDIR, directory) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            (true, true) if !node.entries.is_empty() => return Err(Errno::NOTEMPTY),
            _ => node.links = node.links.saturating_sub(1),
        }
        self.node_mut(parent)?.entries.remove(name);
        Ok(())
    }

    pub fn rename(
        &mut self,
        (parent, name): (u64, &OsStr),
        (new_parent, new_name): (u64, &OsStr),
        flags: u32,
    ) -> Result<()> {
        let id = self.lookup(parent, name)?;
        let there = self.lookup(new_parent, new_name).ok();
        match (flags, there) {
            (libc::RENAME_EXCHANGE, Some(other)) => {
                self.node_mut(parent)?.entries.insert(name.to_owned(), other);
                self.node_mut(new_parent)?.entries.insert(new_name.to_owned(), id);
                return Ok(());
            }
            (libc::RENAME_EXCHANGE, None) => return Err(Errno::NOENT),
            (libc::RENAME_NOREPLACE, Some(_)) => return Err(Errno::EXIST),
            (0, Some(other)) if other == id => return Ok(()),
            (0, Some(other)) => {
                let directory = self.node(other)?.kind() == libc::S_IFDIR;
                self.remove(new_parent, new_name, directory)?;
            }
            (0 | libc::RENAME_NOREPLACE, None) => {}
            _ => return Err(Errno::INVAL),
        }
        self.node_mut(parent)?.entries.remove(name);
        self.node_mut(new_parent)?.entries.insert(new_name.to_owned(), id);
        Ok(())
    }

    /// As many bytes as there are before the end of the file.
    pub fn read(&mut self, id: u64, offset: u64, length: usize) -> Result<Vec<u8>> {
        let leaf = self.node(id)?;
        let end = offset.saturating_add(length as u64).min(leaf.size).max(offset);
        for page in offset / PAGE..end.min(leaf.visible).div_ceil(PAGE) {
            if !self.node(id)?.pages.contains_key(&page) {
                self.note(id, |id| Read::Page(id, page));
            }
        }
        self.read_unnoted(id, offset, end)
    }

    fn read_unnoted(&self, id: u64, offset: u64, end: u64) -> Result<Vec<u8>> {
        let leaf = self.node(id)?;
        let mut bytes = vec![0; (end - offset) as usize];
        read_runs(
            &self.store,
            id,
            runs_between(&self.store, &leaf.runs, offset, end),
            leaf.visible,
            offset,
            &mut bytes,
        )
        .map_err(|_| Errno::IO)?;
        if !leaf.pages.is_empty() {
            for page in offset / PAGE..end.div_ceil(PAGE) {
                if let Some(written) = leaf.pages.get(&page) {
                    let from = (page * PAGE).max(offset);
                    let to = ((page + 1) * PAGE).min(end);
                    let source =
                        &written[(from - page * PAGE) as usize..(to - page * PAGE) as usize];
                    bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
                }
            }
        }
        Ok(bytes)
    }

    pub fn write(&mut self, id: u64, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= MAX_SIZE);
        let end = end.ok_or(Errno::FBIG)?;
        let mut at = offset;
        while at < end {
            let page = at / PAGE;
            let to = ((page + 1) * PAGE).min(end);
            let part = &data[(at - offset) as usize..(to - offset) as usize];
            self.note_rest(id, page, at, to)?;
            self.page(id, page)?[(at % PAGE) as usize..][..part.len()].copy_from_slice(part);
            at = to;
        }
        let leaf = self.node_mut(id)?;
        leaf.size = leaf.size.max(end);
        leaf.changed = SystemTime::now();
        Ok(())
    }

    /// What of a page is not written over is seen together with what is.
    fn note_rest(&mut self, id: u64, page: u64, from: u64, to: u64) -> Result<()> {
        let leaf = self.node(id)?;
        let end = leaf.visible.min((page + 1) * PAGE);
        let is_own = leaf.pages.contains_key(&page) || end <= page * PAGE;
        if !is_own && (from > page * PAGE || to < end) {
            self.note(id, |id| Read::Page(id, page));
        }
        Ok(())
    }

    /// A page of the file that can be written to.
    fn page(&mut self, id: u64, page: u64) -> Result<&mut [u8; PAGE as usize]> {
        if !self.node(id)?.pages.contains_key(&page) {
            if self.pages >= MAX_PAGES {
                return Err(Errno::NOSPC);
            }
            self.pages += 1;
            let mut bytes = Box::new([0; PAGE as usize]);
            let end = self.node(id)?.size.min((page + 1) * PAGE).max(page * PAGE);
            let old = self.read_unnoted(id, page * PAGE, end)?;
            bytes[..old.len()].copy_from_slice(&old);
            self.node_mut(id)?.pages.insert(page, bytes);
        }
        self.node_mut(id)?.pages.get_mut(&page).map(|page| &mut **page).ok_or(Errno::IO)
    }

    pub fn resize(&mut self, id: u64, size: u64) -> Result<()> {
        if size > MAX_SIZE {
            return Err(Errno::FBIG);
        }
        let old = self.node(id)?.size;
        if size < old && size % PAGE != 0 && self.node(id)?.pages.contains_key(&(size / PAGE)) {
            self.page(id, size / PAGE)?[(size % PAGE) as usize..].fill(0);
        }
        let leaf = self.node_mut(id)?;
        let before = leaf.pages.len();
        if size < old {
            leaf.pages.retain(|&page, _| page * PAGE < size);
        }
        leaf.visible = leaf.visible.min(size);
        leaf.size = size;
        leaf.changed = SystemTime::now();
        let gone = before - leaf.pages.len();
        self.pages -= gone as u64;
        Ok(())
    }

    pub fn zero(&mut self, id: u64, offset: u64, end: u64) -> Result<()> {
        let end = end.min(self.node(id)?.size);
        let mut at = offset;
        while at < end {
            let to = ((at / PAGE + 1) * PAGE).min(end);
            self.write(id, at, &[0; PAGE as usize][..(to - at) as usize])?;
            at = to;
        }
        Ok(())
    }
}
