//! What each record did, as people name it: the operation and the paths it had at that time.

use std::collections::HashMap;
use std::sync::Arc;

use diskproof_wire::crash_log::{self, ROOT};
use serde::Serialize;

use crate::source_place::SourcePlace;
use crate::trace::{AttributeChange, Change, Place, Trace, What};

/// Directories above a name; a log that goes round in circles ends here.
const MAX_DEPTH: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Create,
    Mkdir,
    Symlink,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Exchange,
    Write,
    Truncate,
    Allocate,
    Zero,
    Setattr,
    Setxattr,
    Removexattr,
    Fsync,
    Fdatasync,
    Msync,
    Sync,
    Acknowledge,
}

/// The thread that asked for something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Caller {
    pub process: u32,
    pub thread: u32,
    pub name: String,
    /// The innermost of the program's own calls that led to it, and those around it; empty where
    /// nobody knows.
    #[serde(skip_serializing_if = "is_empty")]
    pub frames: Arc<[SourcePlace]>,
    /// Which of them is the place; those before it are of an interpreter's standard library.
    #[serde(skip_serializing_if = "is_first")]
    pub place: usize,
}

fn is_empty(frames: &Arc<[SourcePlace]>) -> bool {
    frames.is_empty()
}

fn is_first(place: &usize) -> bool {
    *place == 0
}

impl Caller {
    /// Whom a record names.
    pub fn named(operation: &crash_log::Operation<'_>) -> Option<Caller> {
        let crash_log::Operation::Caller { process, thread, name } = operation else { return None };
        let (process, thread) = (*process, *thread);
        let name = String::from_utf8_lossy(name).into_owned();
        Some(Caller { process, thread, name, frames: Arc::default(), place: 0 })
    }

    pub fn place(&self) -> Option<&SourcePlace> {
        self.frames.get(self.place)
    }
}

/// One record by its names. `to` is the second path of a rename or link.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    pub sequence: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    #[serde(rename = "operation")]
    pub kind: Kind,
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Of a write, of zeros or an msync how many; of a truncate or an allocation the size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// A write that is durable with its end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub durable: bool,
    /// None when the log does not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Caller>,
}

/// Goes through a log and knows every path.
pub struct Operations<'t> {
    trace: &'t Trace,
    next: u64,
    held: HashMap<Place, u64>,
    /// The names of each file, the oldest first; the last of all stays when it is taken away.
    names: HashMap<u64, Vec<Place>>,
}

impl<'t> Operations<'t> {
    pub fn new(trace: &'t Trace) -> Operations<'t> {
        let mut names: HashMap<u64, Vec<Place>> = HashMap::new();
        let mut held = HashMap::new();
        for (place, file, _) in &trace.base {
            held.insert(place.clone(), *file);
            names.entry(*file).or_default().push(place.clone());
        }
        Operations { trace, next: 1, held, names }
    }

    /// A path below the recorded directory; `.` for that itself.
    fn path(&self, file: u64) -> String {
        match self.names.get(&file).and_then(|names| names.first()) {
            Some(place) => self.place(place),
            None if file == ROOT => ".".to_owned(),
            None => format!("#{file}"),
        }
    }

    fn place(&self, place: &Place) -> String {
        let mut parts = Vec::new();
        let mut at = Some(place);
        while let Some((parent, name)) = at {
            parts.push(String::from_utf8_lossy(name));
            let known = || self.names.get(parent).and_then(|names| names.first());
            at = if *parent == ROOT || parts.len() > MAX_DEPTH { None } else { known() };
        }
        parts.retain(|part| !part.is_empty());
        parts.reverse();
        if parts.is_empty() {
            ".".to_owned()
        } else {
            parts.join("/")
        }
    }

    fn give(&mut self, place: &Place, file: Option<u64>) {
        if let Some(before) = self.held.remove(place) {
            if let Some(names) = self.names.get_mut(&before).filter(|names| names.len() > 1) {
                names.retain(|name| name != place);
            }
        }
        if let Some(file) = file {
            self.held.insert(place.clone(), file);
            let names = self.names.entry(file).or_default();
            // A name that it has no more was kept for those who still have it open.
            names.retain(|name| name != place && self.held.get(name) == Some(&file));
            names.push(place.clone());
        }
    }

    fn kind_of_name(&self, file: u64, given: Option<u64>) -> Kind {
        let node = self.trace.nodes.get(&file).map_or(0, |node| node.mode) & libc::S_IFMT;
        match (given, node) {
            (Some(_), _) if self.names.contains_key(&file) => Kind::Link,
            (Some(_), libc::S_IFDIR) => Kind::Mkdir,
            (Some(_), libc::S_IFLNK) => Kind::Symlink,
            (Some(_), _) => Kind::Create,
            (None, libc::S_IFDIR) => Kind::Rmdir,
            (None, _) => Kind::Unlink,
        }
    }

    /// None for a remark.
    fn name(&mut self, sequence: u64) -> Option<Operation> {
        let trace = self.trace;
        let event = trace.event(sequence);
        let (begin_ns, end_ns, file) = (event.begin_ns, event.end_ns, event.file);
        let (path, durable) = (String::new(), false);
        let by = (event.caller as usize).checked_sub(1).and_then(|at| trace.callers.get(at));
        let bare = |kind| {
            let (to, offset, bytes, path) = (None, None, None, path.clone());
            let by = by.cloned();
            Operation { sequence, begin_ns, end_ns, kind, path, to, offset, bytes, durable, by }
        };
        Some(match &event.what {
            What::Remark => return None,
            What::Acknowledge(text) => {
                let path = String::from_utf8_lossy(text).into_owned();
                Operation { path, ..bare(Kind::Acknowledge) }
            }
            What::Sync => Operation { path: self.path(ROOT), ..bare(Kind::Sync) },
            What::Flush { part: Some(part), .. } => {
                let (offset, bytes) = (Some(part.start), Some(part.end - part.start));
                Operation { path: self.path(file), offset, bytes, ..bare(Kind::Msync) }
            }
            What::Flush { data_only, part: None } => {
                let kind = if *data_only { Kind::Fdatasync } else { Kind::Fsync };
                Operation { path: self.path(file), ..bare(kind) }
            }
            What::Change(Change::Names { sets, .. }) => self.of_names(file, sets, bare),
            What::Change(change) => {
                of_content(change, Operation { path: self.path(file), ..bare(Kind::Write) })
            }
        })
    }

    fn of_names(
        &mut self,
        file: u64,
        sets: &[(Place, Option<u64>)],
        bare: impl Fn(Kind) -> Operation,
    ) -> Operation {
        let paths: Vec<String> = sets.iter().map(|(place, _)| self.place(place)).collect();
        let named = match (sets, &paths[..]) {
            ([(_, left), _], [old, new]) => {
                let kind = if left.is_some() { Kind::Exchange } else { Kind::Rename };
                Operation { path: old.clone(), to: Some(new.clone()), ..bare(kind) }
            }
            ([(_, given)], [path]) => match self.kind_of_name(file, *given) {
                Kind::Link => {
                    Operation { path: self.path(file), to: Some(path.clone()), ..bare(Kind::Link) }
                }
                kind => Operation { path: path.clone(), ..bare(kind) },
            },
            _ => bare(Kind::Rename),
        };
        for (place, given) in sets {
            self.give(place, *given);
        }
        named
    }
}

fn of_content(change: &Change, named: Operation) -> Operation {
    match change {
        Change::Write { offset, length, synced, .. } => {
            let (offset, bytes) = (Some(*offset), Some(*length));
            Operation { kind: Kind::Write, offset, bytes, durable: *synced, ..named }
        }
        Change::Truncate { size } => {
            Operation { kind: Kind::Truncate, bytes: Some(*size), ..named }
        }
        Change::Grow { size } => Operation { kind: Kind::Allocate, bytes: Some(*size), ..named },
        Change::Zero { offset, length, .. } => {
            let (offset, bytes) = (Some(*offset), Some(*length));
            Operation { kind: Kind::Zero, offset, bytes, ..named }
        }
        Change::Attributes(AttributeChange::Owner { .. }) => {
            Operation { kind: Kind::Setattr, ..named }
        }
        Change::Attributes(AttributeChange::Extended { name, value }) => {
            let kind = if value.is_some() { Kind::Setxattr } else { Kind::Removexattr };
            Operation { kind, to: Some(String::from_utf8_lossy(name).into_owned()), ..named }
        }
        Change::Names { .. } => named,
    }
}

impl Iterator for Operations<'_> {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        while self.next <= self.trace.last() {
            let sequence = self.next;
            self.next += 1;
            if let Some(named) = self.name(sequence) {
                return Some(named);
            }
        }
        None
    }
}
