//! What was done, and its payload in the log.

use std::borrow::Cow;

use super::fields::{is_file_name, Fields, Front};
use super::MAX_FRAMES;

/// Bytes that the kernel calls a name: anything but NUL (and `/`, in file names).
pub type Name<'a> = Cow<'a, [u8]>;

/// How a write or a flush was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    pub const NONE: Flags = Flags(0);
    /// Write: the descriptor was open with O_DIRECT.
    pub const DIRECT: Flags = Flags(1);
    /// Write: durable at its end, as if followed by fdatasync (O_DSYNC, RWF_DSYNC).
    pub const DSYNC: Flags = Flags(2);
    /// Write: durable at its end, as if followed by fsync (O_SYNC, RWF_SYNC); DSYNC is set too.
    pub const SYNC: Flags = Flags(4);
    /// Write: pages changed through a shared mapping, written back by the kernel.
    pub const MAPPED: Flags = Flags(8);
    /// Fsync: fdatasync(2).
    pub const DATA_ONLY: Flags = Flags(16);
    /// Fsync: of a directory.
    pub const DIRECTORY: Flags = Flags(32);

    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    pub fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A name with the file it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    pub parent: u64,
    /// Type and permissions as in `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// Bytes at the start of the log; 0 for what is created later.
    pub size: u64,
    /// Empty for the recorded directory itself.
    pub name: Name<'a>,
    /// The target of a symbolic link; empty for anything else.
    pub target: Name<'a>,
}

/// An instruction: the number of its module, and its address there as the file has it (of a perf
/// map: as the process has it).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    pub module: u32,
    pub offset: u64,
}

/// One change, flush, mark or remark. The file it is about stands in its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// A name that was there when the log was begun.
    Base(Entry<'a>),
    Create(Entry<'a>),
    Mkdir(Entry<'a>),
    Symlink(Entry<'a>),
    Link {
        parent: u64,
        name: Name<'a>,
    },
    Unlink {
        parent: u64,
        name: Name<'a>,
    },
    Rmdir {
        parent: u64,
        name: Name<'a>,
    },
    /// `flags` as in renameat2(2); `replaced` is the file that had the new name, or 0.
    Rename {
        flags: u32,
        parent: u64,
        new_parent: u64,
        replaced: u64,
        name: Name<'a>,
        new_name: Name<'a>,
    },
    Write {
        flags: Flags,
        offset: u64,
        data: Cow<'a, [u8]>,
    },
    Truncate {
        size: u64,
    },
    /// `mode` as in fallocate(2).
    Fallocate {
        mode: u32,
        offset: u64,
        length: u64,
    },
    Fsync {
        flags: Flags,
    },
    /// An fsync of a part only: msync(2), data only.
    Msync {
        offset: u64,
        length: u64,
    },
    /// sync(2) or syncfs(2): all that is recorded is flushed.
    Sync,
    /// Absent values were left alone.
    Setattr {
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    Setxattr {
        name: Name<'a>,
        value: Cow<'a, [u8]>,
    },
    Removexattr {
        name: Name<'a>,
    },
    /// `flags` as in open(2).
    Open {
        handle: u64,
        flags: u32,
    },
    Release {
        handle: u64,
    },
    /// A line of the writer: what it told its own caller is done.
    Acknowledge {
        text: Cow<'a, [u8]>,
    },
    Note {
        text: Cow<'a, [u8]>,
    },
    /// Who the number in this record's frame stands for from now on: the next number.
    Caller {
        process: u32,
        thread: u32,
        name: Cow<'a, [u8]>,
    },
    /// Where the number in this record's frame was in its program when it asked, the innermost
    /// frame first: the addresses behind the calls.
    Stack {
        frames: Vec<Address>,
    },
    /// A file that programs ran from. Its number is 1 for the first of a log, then one more each.
    /// Without an inode it is what a process says of itself: a table of symbols that it writes (a
    /// perf map), or the file of a script.
    Module {
        inode: u64,
        /// Empty when it has none.
        build_id: Cow<'a, [u8]>,
        path: Cow<'a, [u8]>,
    },
    /// The source of an address. Where functions were inlined there are several, the innermost
    /// first.
    Line {
        address: Address,
        /// 0 when the file is not known: then the function is that of a table of symbols.
        line: u32,
        function: Name<'a>,
        file: Cow<'a, [u8]>,
    },
    /// The log is complete; why it ended.
    End {
        text: Cow<'a, [u8]>,
    },
}

impl Operation<'_> {
    /// The number that stands for it in the log.
    pub fn kind(&self) -> u8 {
        match self {
            Operation::Base(_) => 1,
            Operation::Create(_) => 2,
            Operation::Mkdir(_) => 3,
            Operation::Symlink(_) => 4,
            Operation::Link { .. } => 5,
            Operation::Unlink { .. } => 6,
            Operation::Rmdir { .. } => 7,
            Operation::Rename { .. } => 8,
            Operation::Write { .. } => 9,
            Operation::Truncate { .. } => 10,
            Operation::Fallocate { .. } => 11,
            Operation::Fsync { .. } | Operation::Msync { .. } => 12,
            Operation::Setattr { .. } => 13,
            Operation::Setxattr { .. } => 14,
            Operation::Removexattr { .. } => 15,
            Operation::Open { .. } => 16,
            Operation::Release { .. } => 17,
            Operation::Acknowledge { .. } => 18,
            Operation::Note { .. } => 19,
            Operation::End { .. } => 20,
            Operation::Caller { .. } => 21,
            Operation::Stack { .. } => 22,
            Operation::Module { .. } => 23,
            Operation::Line { .. } => 24,
            Operation::Sync => 25,
        }
    }

    pub fn flags(&self) -> Flags {
        match self {
            Operation::Write { flags, .. } | Operation::Fsync { flags } => *flags,
            Operation::Msync { .. } => Flags::DATA_ONLY,
            _ => Flags::NONE,
        }
    }

    /// The payload in two parts: its fields, and the bytes that follow them to its end.
    pub(super) fn payload(&self) -> (Vec<u8>, &[u8]) {
        let front = Front::default();
        let (front, rest): (Front, &[u8]) = match self {
            Operation::Base(entry)
            | Operation::Create(entry)
            | Operation::Mkdir(entry)
            | Operation::Symlink(entry) => (entry.front(), &entry.target),
            Operation::Link { parent, name }
            | Operation::Unlink { parent, name }
            | Operation::Rmdir { parent, name } => (front.u64(*parent).name(name), &[]),
            Operation::Rename { flags, parent, new_parent, replaced, name, new_name } => {
                let ids = front.u32(*flags).u64(*parent).u64(*new_parent).u64(*replaced);
                (ids.name(name).name(new_name), &[])
            }
            Operation::Write { offset, data, .. } => (front.u64(*offset), data),
            Operation::Truncate { size } => (front.u64(*size), &[]),
            Operation::Fallocate { mode, offset, length } => {
                (front.u32(*mode).u64(*offset).u64(*length), &[])
            }
            Operation::Fsync { .. } | Operation::Sync => (front, &[]),
            Operation::Msync { offset, length } => (front.u64(*offset).u64(*length), &[]),
            Operation::Setattr { mode, uid, gid } => (setattr_front([*mode, *uid, *gid]), &[]),
            Operation::Setxattr { name, value } => (front.name(name), value),
            Operation::Removexattr { name } => (front.name(name), &[]),
            Operation::Open { handle, flags } => (front.u64(*handle).u32(*flags), &[]),
            Operation::Release { handle } => (front.u64(*handle), &[]),
            Operation::Caller { process, thread, name } => (front.u32(*process).u32(*thread), name),
            Operation::Stack { frames } => {
                (frames.iter().fold(front, |front, frame| front.address(*frame)), &[])
            }
            Operation::Module { inode, build_id, path } => (front.u64(*inode).name(build_id), path),
            Operation::Line { address, line, function, file } => {
                (front.address(*address).u32(*line).name(function), file)
            }
            Operation::Acknowledge { text }
            | Operation::Note { text }
            | Operation::End { text } => (front, text),
        };
        (front.0, rest)
    }
}

/// The inverse of [`Operation::payload`]; None when the payload is none of that kind.
pub(super) fn decode(kind: u8, flags: Flags, payload: &[u8]) -> Option<Operation<'_>> {
    let mut fields = Fields(payload);
    let operation = match kind {
        1 => Operation::Base(Entry::decode(&mut fields)?.named_or_root()?),
        2 => Operation::Create(Entry::decode(&mut fields)?.named()?),
        3 => Operation::Mkdir(Entry::decode(&mut fields)?.named()?),
        4 => Operation::Symlink(Entry::decode(&mut fields)?.named()?),
        5 => Operation::Link { parent: fields.u64()?, name: fields.file_name()? },
        6 => Operation::Unlink { parent: fields.u64()?, name: fields.file_name()? },
        7 => Operation::Rmdir { parent: fields.u64()?, name: fields.file_name()? },
        8 => Operation::Rename {
            flags: fields.u32()?,
            parent: fields.u64()?,
            new_parent: fields.u64()?,
            replaced: fields.u64()?,
            name: fields.file_name()?,
            new_name: fields.file_name()?,
        },
        9 => Operation::Write { flags, offset: fields.u64()?, data: fields.rest() },
        10 => Operation::Truncate { size: fields.u64()? },
        11 => Operation::Fallocate {
            mode: fields.u32()?,
            offset: fields.u64()?,
            length: fields.u64()?,
        },
        12 if payload.is_empty() => Operation::Fsync { flags },
        12 => Operation::Msync { offset: fields.u64()?, length: fields.u64()? },
        13 => decode_setattr(&mut fields)?,
        14 => Operation::Setxattr { name: fields.name()?, value: fields.rest() },
        15 => Operation::Removexattr { name: fields.name()? },
        16 => Operation::Open { handle: fields.u64()?, flags: fields.u32()? },
        17 => Operation::Release { handle: fields.u64()? },
        18 => Operation::Acknowledge { text: fields.rest() },
        19 => Operation::Note { text: fields.rest() },
        20 => Operation::End { text: fields.rest() },
        21..=24 => decode_caller(kind, &mut fields)?,
        25 => Operation::Sync,
        _ => return None,
    };
    (fields.0.is_empty() && operation.flags() == flags).then_some(operation)
}

impl Entry<'_> {
    fn front(&self) -> Front {
        Front::default()
            .u64(self.parent)
            .u32(self.mode)
            .u32(self.uid)
            .u32(self.gid)
            .u32(self.rdev)
            .u64(self.size)
            .name(&self.name)
    }
}

impl<'a> Entry<'a> {
    fn decode(fields: &mut Fields<'a>) -> Option<Entry<'a>> {
        Some(Entry {
            parent: fields.u64()?,
            mode: fields.u32()?,
            uid: fields.u32()?,
            gid: fields.u32()?,
            rdev: fields.u32()?,
            size: fields.u64()?,
            name: fields.name()?,
            target: fields.rest(),
        })
    }

    fn named(self) -> Option<Self> {
        is_file_name(&self.name).then_some(self)
    }

    fn named_or_root(self) -> Option<Self> {
        let is_root = self.parent == 0 && self.name.is_empty();
        (is_root || is_file_name(&self.name)).then_some(self)
    }
}

fn decode_stack(fields: &mut Fields<'_>) -> Option<Vec<Address>> {
    let mut frames = Vec::new();
    while !fields.0.is_empty() && frames.len() < MAX_FRAMES {
        frames.push(fields.address()?);
    }
    Some(frames)
}

/// A mask of the values that are there (1 mode, 2 uid, 4 gid), then all three.
fn setattr_front(values: [Option<u32>; 3]) -> Front {
    let mask = (0..3).filter(|&bit| values[bit].is_some()).map(|bit| 1 << bit).sum();
    values.iter().fold(Front::default().u32(mask), |front, value| front.u32(value.unwrap_or(0)))
}

/// Who asked, and where in its program.
fn decode_caller<'a>(kind: u8, fields: &mut Fields<'a>) -> Option<Operation<'a>> {
    Some(match kind {
        21 => {
            Operation::Caller { process: fields.u32()?, thread: fields.u32()?, name: fields.rest() }
        }
        22 => Operation::Stack { frames: decode_stack(fields)? },
        23 => Operation::Module {
            inode: fields.u64()?,
            build_id: fields.bytes()?,
            path: fields.rest(),
        },
        24 => Operation::Line {
            address: fields.address()?,
            line: fields.u32()?,
            function: fields.name()?,
            file: fields.rest(),
        },
        _ => return None,
    })
}

fn decode_setattr<'a>(fields: &mut Fields<'a>) -> Option<Operation<'a>> {
    let mask = fields.u32().filter(|mask| mask >> 3 == 0)?;
    let mut value = |bit: u32| {
        let value = fields.u32()?;
        (mask & bit != 0 || value == 0).then_some((mask & bit != 0).then_some(value))
    };
    Some(Operation::Setattr { mode: value(1)?, uid: value(2)?, gid: value(4)? })
}
