//! Which system calls stop for us: those after which a file can be read, and those that take its
//! name away.

use crate::door::MARKS;
use diskproof_supervise::calls::{CREAT, OPEN, OPENAT, OPENAT2};
use diskproof_supervise::{build_filter, Action, Call, Condition, Notification, Rule, Test};

const fn call(name: &'static str, x86_64: u32, i386: u32) -> Call {
    Call { name, x86_64, i386: Some(i386), x32: Some(x86_64) }
}

pub const EXECVE: Call = Call { name: "execve", x86_64: 59, i386: Some(11), x32: Some(520) };
pub const EXECVEAT: Call = Call { name: "execveat", x86_64: 322, i386: Some(358), x32: Some(545) };
const RENAME: Call = call("rename", 82, 38);
const RENAMEAT: Call = call("renameat", 264, 302);
const RENAMEAT2: Call = call("renameat2", 316, 353);
const LINK: Call = call("link", 86, 9);
const LINKAT: Call = call("linkat", 265, 303);
pub const UMOUNT2: Call = call("umount2", 166, 52);

#[allow(clippy::cast_sign_loss)]
const SEQUENTIAL: u32 = libc::POSIX_FADV_SEQUENTIAL as u32;
const FADVISE64: Call = Call { name: "fadvise64", x86_64: 221, i386: None, x32: Some(221) };

/// A file that was just made is looked up by its name before it gets another.
const RENAMES: [Call; 5] = [RENAME, RENAMEAT, RENAMEAT2, LINK, LINKAT];

/// 32-bit programs have no room for our marks.
const OPENAT_64: Call = Call { i386: None, x32: None, ..OPENAT };

/// Directories, and descriptors that cannot read, bring in no pages of files.
#[allow(clippy::cast_sign_loss)] // the kernel's flags are bits
const NOT_FILES: u32 = (libc::O_DIRECTORY | libc::O_PATH) as u32;

pub fn filter() -> Vec<diskproof_supervise::filter::Instruction> {
    let mut rules = vec![Rule { call: OPENAT_64, when: marked(), action: Action::Allow }];
    rules.extend([(OPEN, 1), (OPENAT, 2)].map(|(call, flags)| {
        Rule::when(call, Condition::low(flags, Test::NoBits(NOT_FILES)), Action::Notify)
    }));
    // It doubles what the kernel reads ahead: as if it was done.
    let sequential = Condition::low(3, Test::Equals(SEQUENTIAL));
    rules.push(Rule::when(FADVISE64, sequential, Action::Errno(0)));
    let always = [CREAT, OPENAT2, EXECVE, EXECVEAT, UMOUNT2].into_iter().chain(RENAMES);
    rules.extend(always.map(|call| Rule::always(call, Action::Notify)));
    build_filter(&rules)
}

/// The library tells of that open itself.
fn marked() -> Vec<Condition> {
    let both = |(argument, mark): (u8, u64)| {
        let equals = |half: u64| Test::Equals((half & u64::from(u32::MAX)) as u32);
        [Condition::low(argument, equals(mark)), Condition::high(argument, equals(mark >> 32))]
    };
    [4, 5].into_iter().zip(MARKS).flat_map(both).collect()
}

/// Whether a name is about to go or to be given.
pub fn renames(call: &Notification) -> bool {
    RENAMES.iter().any(|rename| call.is(rename))
}
