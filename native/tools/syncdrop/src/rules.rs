//! Which calls the filter hands to the supervisor. All others are decided from their number alone.

use diskproof_supervise::calls::{
    Call, FDATASYNC, FILE_SETATTR, FSYNC, IOCTL, IO_SUBMIT, IO_URING_SETUP, MSYNC, OPEN, OPENAT,
    OPENAT2, PWRITEV2, SYNC, SYNCFS, SYNC_FILE_RANGE,
};
use diskproof_supervise::{Action, Condition, Rule, Test};

use crate::page::{FAR_AWAY, LOOKED_THROUGH};
use diskproof_bare::syscall::{MS_SYNC, O_SYNCS, RWF_SYNCS};

pub const SET_FLAGS: u32 = 0x4008_6602;
pub const SET_FLAGS_32: u32 = 0x4004_6602;
pub const SET_ATTRIBUTES: u32 = 0x401c_5820;

/// Arguments of 64 bits take two registers in 32-bit programs, and one in x32 ones: their flags are
/// elsewhere.
const SYNC_FILE_RANGE_64: Call = Call { i386: None, ..SYNC_FILE_RANGE };
const SYNC_FILE_RANGE_32: Call = Call { x86_64: NEVER, x32: None, ..SYNC_FILE_RANGE };
const PWRITEV2_64: Call = Call { x32: None, ..PWRITEV2 };
pub const PWRITEV2_X32: Call = Call { x86_64: NEVER, i386: None, ..PWRITEV2 };
/// No call has this number.
const NEVER: u32 = 0x3fff_ffff;

/// The table. The library's own questions, harmless in anybody's hands, are let through.
pub fn rules(strict: bool) -> Vec<Rule> {
    let low = |argument, test| Condition::low(argument, test);
    let bits = |argument, bits: i32| Condition::low(argument, Test::AnyBits(bits as u32));
    let mut rules: Vec<Rule> = [FSYNC, FDATASYNC, SYNCFS, SYNC, OPENAT2, SYNC_FILE_RANGE_32]
        .map(|call| Rule::always(call, Action::Notify))
        .into();
    let ours = vec![Condition::high(1, Test::Equals(FAR_AWAY)), low(3, Test::Equals(1))];
    let looked_through =
        vec![low(3, Test::Equals(LOOKED_THROUGH[0])), low(4, Test::Equals(LOOKED_THROUGH[1]))];
    rules.extend([
        Rule::when(SYNC_FILE_RANGE_64, low(3, Test::Equals(0)), Action::Allow),
        Rule { call: SYNC_FILE_RANGE_64, when: ours, action: Action::Allow },
        Rule::always(SYNC_FILE_RANGE_64, Action::Notify),
        Rule::when(MSYNC, bits(2, MS_SYNC), Action::Notify),
        Rule::when(OPEN, bits(1, O_SYNCS), Action::Notify),
        Rule::when(OPENAT, bits(2, O_SYNCS), Action::Notify),
        Rule::when(PWRITEV2_64, bits(5, RWF_SYNCS), Action::Notify),
        Rule::when(PWRITEV2_X32, bits(4, RWF_SYNCS), Action::Notify),
        Rule { call: IO_SUBMIT, when: looked_through, action: Action::Allow },
        Rule::always(IO_SUBMIT, Action::Notify),
        Rule::always(FILE_SETATTR, Action::Notify),
    ]);
    for request in [SET_FLAGS, SET_FLAGS_32, SET_ATTRIBUTES] {
        rules.push(Rule::when(IOCTL, low(1, Test::Equals(request)), Action::Notify));
    }
    // Programs take the kernel for one without io_uring, and do without.
    let ring = if strict { Action::Errno(libc::ENOSYS as u16) } else { Action::Notify };
    rules.push(Rule::always(IO_URING_SETUP, ring));
    rules
}
