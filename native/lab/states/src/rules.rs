//! What each file system promises beyond POSIX; `docs/crash-model.md` gives each rule's source.

use crate::trace::Trace;
use crate::{never_logged, ranges};

/// The rules of one file system with its usual mount options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What a flush commits brings all that the journal holds from before.
    pub commits_all: bool,
    /// Of other files' truncations and zeros the edges too: those are data.
    pub commits_edges: bool,
    /// A rename over a file that is there brings the new one's length, and none of its data.
    pub rename_brings_size: bool,
    pub ranges_bring: RangesBring,
    /// A file ends with a sector that is there.
    pub data_before_size: bool,
    /// A write gets a new place, and counts from when the metadata says so: block by block, and
    /// with it the length of all that has been written.
    pub copies_on_write: bool,
    /// Data goes through the journal too, block by block, in its order.
    pub journals_data: bool,
    /// fsync of a directory, or of a file whose names changed after it was made, brings all
    /// metadata.
    pub checkpoints_names: bool,
    /// fsync of what is new logs the new directories above it.
    pub logs_directories: bool,
    pub forgets: Forgets,
    /// There is a log of single files and directories: changed names of what is in it are logged at
    /// once; else fsync of a directory may bring a name alone, and leave the one that the file had
    /// elsewhere.
    pub has_tree_log: bool,
    /// fdatasync does all that fsync does.
    pub datasync_is_sync: bool,
    pub synced_names: SyncedNames,
    /// sync(2) and syncfs(2) write everything, and have the disk flush only where the log has
    /// something to write; fsync has it flush in any case.
    pub sync_may_not_flush: bool,
    /// fsync of a file that is no checkpoint does not wait for its record: the flush may come
    /// before that, which is durable with the next one.
    pub fsync_may_not_wait: bool,
}

/// How long a file is by a range within it that was allocated, punched or zeroed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangesBring {
    /// Up to the range's end, also where its length was to be kept.
    TheirEnd,
    /// Up to the range's end.
    WhatIsAsked,
    /// As long as without.
    Nothing,
}

/// Whose changes of a name fsync leaves out when it logs the name for a file that got it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgets {
    Nobodys,
    /// Those of a file that was never on the disk.
    NewFiles,
    /// Those of whoever had it when a new file got it.
    EveryFiles,
}

/// Which of a file's names fsync of the file makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncedNames {
    All,
    /// Not one that another file gets later.
    NotTakenLater,
    /// Not one that another file had.
    NotTakenBefore,
}

/// ext4, `data=ordered`: allocated blocks may be unwritten when their size is committed
/// (`dioread_nolock`), as those are that a rename has had allocated.
pub const EXT4: Rules = Rules {
    commits_all: true,
    commits_edges: false,
    rename_brings_size: true,
    ranges_bring: RangesBring::TheirEnd,
    data_before_size: false,
    copies_on_write: false,
    journals_data: false,
    checkpoints_names: false,
    logs_directories: false,
    forgets: Forgets::Nobodys,
    has_tree_log: false,
    datasync_is_sync: false,
    synced_names: SyncedNames::All,
    sync_may_not_flush: false,
    fsync_may_not_wait: false,
};
/// A rename's data is in the same order as all else.
pub const EXT4_JOURNAL: Rules = Rules {
    commits_edges: true,
    rename_brings_size: false,
    ranges_bring: RangesBring::WhatIsAsked,
    data_before_size: true,
    journals_data: true,
    ..EXT4
};
/// A rename has nothing allocated.
pub const EXT4_WRITEBACK: Rules = Rules { rename_brings_size: false, ..EXT4 };
/// The size is logged when the data has been written.
pub const XFS: Rules = Rules {
    ranges_bring: RangesBring::Nothing,
    data_before_size: true,
    sync_may_not_flush: true,
    ..EXT4_WRITEBACK
};
/// fsync logs the one file and new directories above it; all else comes with the next transaction.
pub const BTRFS: Rules = Rules {
    commits_all: false,
    rename_brings_size: false,
    ranges_bring: RangesBring::Nothing,
    copies_on_write: true,
    logs_directories: true,
    forgets: Forgets::NewFiles,
    has_tree_log: true,
    datasync_is_sync: true,
    synced_names: SyncedNames::NotTakenLater,
    ..EXT4
};
/// fsync of a file that was made logs its inode, with its name, which the recovery takes from
/// whoever has it; else it is a checkpoint.
pub const F2FS: Rules = Rules {
    commits_all: false,
    rename_brings_size: false,
    ranges_bring: RangesBring::WhatIsAsked,
    checkpoints_names: true,
    forgets: Forgets::EveryFiles,
    synced_names: SyncedNames::NotTakenBefore,
    ..EXT4
};
/// As Linux has it (6.1, and by its source older and newer ones): after a mount and after each
/// checkpoint, which others may ask for, the first record is not waited for.
pub const F2FS_UNWAITED: Rules = Rules { fsync_may_not_wait: true, ..F2FS };

impl Rules {
    /// Makes of a log what this file system makes of what it was asked.
    pub fn carry_out(self, trace: &mut Trace) {
        ranges::set_lengths(trace, self.ranges_bring);
        match self.forgets {
            Forgets::Nobodys => {}
            Forgets::NewFiles => never_logged::forget_new_files(trace),
            Forgets::EveryFiles => never_logged::forget_at_creation(trace),
        }
    }

    /// When a name is one file's and then another's: whose change fsync of the file does not keep.
    pub fn unsynced(self, first: u64, second: u64) -> Option<u64> {
        match self.synced_names {
            SyncedNames::All => None,
            SyncedNames::NotTakenLater => Some(first),
            SyncedNames::NotTakenBefore => Some(second),
        }
    }
}
