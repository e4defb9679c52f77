//! Random operations that make sense one after the other.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use diskproof_random::Random;
use diskproof_wire::crash_log::{Flags, Operation, ROOT};

use crate::logs::{entry, DISK};

pub type Name = (u64, Vec<u8>);

#[derive(Clone, Debug)]
pub enum Act {
    Write {
        file: u64,
        offset: u64,
        length: u64,
        synced: bool,
        fill: u8,
    },
    Truncate {
        file: u64,
        size: u64,
    },
    Grow {
        file: u64,
        size: u64,
    },
    Punch {
        file: u64,
        offset: u64,
        length: u64,
    },
    Mode {
        file: u64,
        mode: u32,
    },
    /// A new file of this mode.
    Make {
        file: u64,
        name: Name,
        mode: u32,
    },
    Link {
        file: u64,
        name: Name,
    },
    Take {
        file: u64,
        name: Name,
        directory: bool,
    },
    Move {
        file: u64,
        from: Name,
        to: Name,
        replaced: u64,
    },
    Flush {
        file: u64,
        data_only: bool,
        directory: bool,
    },
    Sync,
}

#[derive(Clone, Debug)]
pub struct Timed {
    pub act: Act,
    pub begin: u64,
    pub end: u64,
}

/// All names and sizes as they are with everything done, so that a log makes sense.
pub struct World {
    pub names: BTreeMap<Name, u64>,
    pub directories: BTreeSet<u64>,
    pub files: Vec<u64>,
    pub next: u64,
    sector: u64,
    /// Every other change is a discard of whole sectors.
    discards: bool,
}

impl World {
    pub fn new(sector: u64, discards: bool) -> World {
        let names = [(b"disk".to_vec(), DISK), (b"d3".to_vec(), 3), (b"d4".to_vec(), 4)];
        World {
            names: names.into_iter().map(|(name, file)| ((ROOT, name), file)).collect(),
            directories: [ROOT, 3, 4].into(),
            files: vec![DISK],
            next: 9,
            sector,
            discards,
        }
    }

    fn pick<T: Clone>(random: &mut Random, from: &[T]) -> T {
        from[random.below(from.len() as u64) as usize].clone()
    }

    /// A name that may be taken or not.
    fn some_name(&self, random: &mut Random) -> Name {
        let directories: Vec<u64> = self.directories.iter().copied().collect();
        (World::pick(random, &directories), vec![b'a' + random.below(3) as u8])
    }

    fn some_link(&self, random: &mut Random) -> (Name, u64) {
        let taken: Vec<(Name, u64)> = self
            .names
            .iter()
            .filter(|(_, file)| !self.directories.contains(file))
            .map(|(name, file)| (name.clone(), *file))
            .collect();
        if taken.is_empty() {
            ((ROOT, Vec::new()), 0)
        } else {
            World::pick(random, &taken)
        }
    }

    fn make(&mut self, random: &mut Random) -> Option<Act> {
        let name = self.some_name(random);
        if self.names.contains_key(&name) {
            return None;
        }
        let (file, is_directory) = (self.next, random.chance(30));
        self.next += 1;
        self.names.insert(name.clone(), file);
        if is_directory {
            self.directories.insert(file);
        } else {
            self.files.push(file);
        }
        let mode = if is_directory { libc::S_IFDIR | 0o755 } else { libc::S_IFREG | 0o644 };
        Some(Act::Make { file, name, mode })
    }

    fn link(&mut self, random: &mut Random) -> Option<Act> {
        let (name, (_, file)) = (self.some_name(random), self.some_link(random));
        if file == 0 || self.names.contains_key(&name) {
            return None;
        }
        self.names.insert(name.clone(), file);
        Some(Act::Link { file, name })
    }

    fn unlink(&mut self, random: &mut Random) -> Option<Act> {
        let (name, file) = self.some_link(random);
        self.names.remove(&name)?;
        Some(Act::Take { file, name, directory: false })
    }

    fn rmdir(&mut self, random: &mut Random) -> Option<Act> {
        let empty = |(name, file): (&Name, &u64)| {
            let used = self.names.keys().any(|(parent, _)| parent == file);
            (self.directories.contains(file) && !used).then(|| (name.clone(), *file))
        };
        let empty: Vec<(Name, u64)> = self.names.iter().filter_map(empty).collect();
        if empty.is_empty() {
            return None;
        }
        let (name, file) = World::pick(random, &empty);
        self.names.remove(&name);
        self.directories.remove(&file);
        Some(Act::Take { file, name, directory: true })
    }

    fn rename(&mut self, random: &mut Random) -> Option<Act> {
        let ((from, file), to) = (self.some_link(random), self.some_name(random));
        let replaced = self.names.get(&to).copied().unwrap_or(0);
        if file == 0 || file == replaced || self.directories.contains(&replaced) {
            return None;
        }
        self.names.remove(&from);
        self.names.insert(to.clone(), file);
        Some(Act::Move { file, from, to, replaced })
    }

    pub fn act(&mut self, random: &mut Random) -> Option<Act> {
        let file = World::pick(random, &self.files);
        let sector = self.sector;
        if self.discards && random.chance(50) {
            let (offset, length) = (random.below(3) * sector, (1 + random.below(4)) * sector);
            return Some(Act::Punch { file, offset, length });
        }
        let edge = |random: &mut Random| match random.below(3) {
            0 => random.below(4 * sector),
            _ => random.below(4) * sector,
        };
        Some(match random.below(16) {
            0..=2 => {
                let length = World::pick(random, &[sector, 100, sector, 2 * sector]);
                let (synced, fill) = (random.chance(15), 1 + random.below(250) as u8);
                Act::Write { file, offset: edge(random), length, synced, fill }
            }
            3 => Act::Truncate { file, size: edge(random) },
            4 => Act::Grow { file, size: 1 + edge(random) },
            5 => Act::Mode { file, mode: 0o600 + random.below(8) as u32 },
            6 | 7 => return self.make(random),
            8 => return self.link(random),
            9 => return self.unlink(random),
            10 => return self.rmdir(random),
            11 => return self.rename(random),
            12 => Act::Punch { file, offset: edge(random), length: 1 + random.below(2 * sector) },
            13 => Act::Flush { file, data_only: random.chance(40), directory: false },
            14 => Act::Sync,
            _ => {
                let directories: Vec<u64> = self.directories.iter().copied().collect();
                let file = World::pick(random, &directories);
                Act::Flush { file, data_only: false, directory: true }
            }
        })
    }
}

pub fn operation(act: &Act) -> (u64, Operation<'static>) {
    let owned = |name: &Name| Cow::Owned(name.1.clone());
    match act {
        Act::Write { file, offset, length, synced, fill } => {
            let flags = if *synced { Flags::DSYNC } else { Flags::NONE };
            let data = Cow::Owned(vec![*fill; *length as usize]);
            (*file, Operation::Write { flags, offset: *offset, data })
        }
        Act::Truncate { file, size } => (*file, Operation::Truncate { size: *size }),
        Act::Grow { file, size } => {
            (*file, Operation::Fallocate { mode: 0, offset: 0, length: *size })
        }
        Act::Punch { file, offset, length } => {
            (*file, Operation::Fallocate { mode: 3, offset: *offset, length: *length })
        }
        Act::Mode { file, mode } => {
            (*file, Operation::Setattr { mode: Some(*mode), uid: None, gid: None })
        }
        Act::Make { file, name, mode } => {
            let entry = entry(name.0, *mode, 0, &name.1);
            let directory = mode & libc::S_IFMT == libc::S_IFDIR;
            (*file, if directory { Operation::Mkdir(entry) } else { Operation::Create(entry) })
        }
        Act::Link { file, name } => (*file, Operation::Link { parent: name.0, name: owned(name) }),
        Act::Take { file, name, directory: false } => {
            (*file, Operation::Unlink { parent: name.0, name: owned(name) })
        }
        Act::Take { file, name, .. } => {
            (*file, Operation::Rmdir { parent: name.0, name: owned(name) })
        }
        Act::Move { file, from, to, replaced } => {
            let (name, new_name) = (owned(from), owned(to));
            let (parent, new_parent, replaced) = (from.0, to.0, *replaced);
            (*file, Operation::Rename { flags: 0, parent, new_parent, replaced, name, new_name })
        }
        Act::Flush { file, data_only, directory } => {
            let kind = if *directory { Flags::DIRECTORY } else { Flags::NONE };
            let flags = if *data_only { kind.with(Flags::DATA_ONLY) } else { kind };
            (*file, Operation::Fsync { flags })
        }
        Act::Sync => (0, Operation::Sync),
    }
}
