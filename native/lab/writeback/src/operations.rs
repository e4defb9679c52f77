//! The system calls that wait for us: those by which a program changes files, promises, or ends.

use diskproof_supervise::calls::{
    CREAT, EXIT_GROUP, FDATASYNC, FSYNC, MSYNC, OPEN, OPENAT, OPENAT2, PWRITEV2, SYNC_FILE_RANGE,
    WRITE,
};
use diskproof_supervise::filter::Instruction;
use diskproof_supervise::{build_filter, Action, Call, Condition, Rule, Test};

const fn call(name: &'static str, x86_64: u32, i386: u32) -> Call {
    Call { name, x86_64, i386: Some(i386), x32: Some(x86_64) }
}

const fn with_pointers(name: &'static str, x86_64: u32, i386: u32, x32: u32) -> Call {
    Call { name, x86_64, i386: Some(i386), x32: Some(x32) }
}

const CHANGES: [Call; 21] = [
    call("pwrite64", 18, 181),
    with_pointers("writev", 20, 146, 516),
    call("truncate", 76, 92),
    call("ftruncate", 77, 93),
    call("rename", 82, 38),
    call("mkdir", 83, 39),
    call("rmdir", 84, 40),
    call("link", 86, 9),
    call("unlink", 87, 10),
    call("symlink", 88, 83),
    call("mkdirat", 258, 296),
    call("unlinkat", 263, 301),
    call("renameat", 264, 302),
    call("linkat", 265, 303),
    call("symlinkat", 266, 304),
    call("fallocate", 285, 324),
    with_pointers("pwritev", 296, 334, 535),
    call("renameat2", 316, 353),
    call("copy_file_range", 326, 377),
    call("sendfile", 40, 187),
    call("utimensat", 280, 320),
];

/// Whoever shares files takes locks before and after stores to mapped ones.
const FCNTL: Call = call("fcntl", 72, 55);
#[allow(clippy::cast_sign_loss)] // the kernel's commands are numbers
const LOCKS: [u32; 4] = [
    libc::F_SETLK as u32,
    libc::F_SETLKW as u32,
    libc::F_OFD_SETLK as u32,
    libc::F_OFD_SETLKW as u32,
];

/// Writeback that a program starts and does not wait for: it is over when the disk has come to it.
/// So it is left to us, as all other is. 32-bit programs pass its flags elsewhere.
const STARTS_WRITEBACK: Call = Call { i386: None, ..SYNC_FILE_RANGE };

#[allow(clippy::cast_sign_loss)] // the kernel's flags are bits
const MAKES: u32 = (libc::O_CREAT | libc::O_TRUNC) as u32;

pub fn filter() -> Vec<Instruction> {
    let opens = [(OPEN, 1), (OPENAT, 2)].map(|(call, flags)| {
        Rule::when(call, Condition::low(flags, Test::AnyBits(MAKES)), Action::Notify)
    });
    let locks = LOCKS
        .map(|command| Rule::when(FCNTL, Condition::low(1, Test::Equals(command)), Action::Notify));
    let always =
        [CREAT, OPENAT2, WRITE, PWRITEV2, FSYNC, FDATASYNC, MSYNC, SYNC_FILE_RANGE, EXIT_GROUP];
    let always = always.into_iter().chain(CHANGES);
    let starts = Condition::low(3, Test::Equals(libc::SYNC_FILE_RANGE_WRITE));
    let starts = Rule::when(STARTS_WRITEBACK, starts, Action::Errno(0));
    let some = opens.into_iter().chain(locks).chain([starts]);
    let rules: Vec<_> = some.chain(always.map(|call| Rule::always(call, Action::Notify))).collect();
    build_filter(&rules)
}
