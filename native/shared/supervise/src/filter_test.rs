//! The program is run by a small interpreter and compared with the rules read one by one.

use proptest::prelude::*;

use super::*;
use crate::calls::{FSYNC, MSYNC, OPENAT, PWRITEV2};

struct Asked {
    arch: u32,
    number: u32,
    arguments: [u64; 6],
}

/// Classic BPF as the kernel runs it; None for a jump that leaves the program.
fn run(program: &[Instruction], asked: &Asked) -> Option<u32> {
    let (mut at, mut value) = (0_usize, 0_u32);
    loop {
        let &Instruction { code, jt, jf, k } = program.get(at)?;
        at += 1;
        let holds = match code {
            LOAD => {
                value = word(asked, k);
                continue;
            }
            RETURN => return Some(k),
            JUMP => {
                at += k as usize;
                continue;
            }
            EQUAL => value == k,
            AT_LEAST => value >= k,
            ANY_BITS => value & k != 0,
            _ => return None,
        };
        at += usize::from(if holds { jt } else { jf });
    }
}

fn word(asked: &Asked, offset: u32) -> u32 {
    match offset {
        OFFSET_NUMBER => asked.number,
        OFFSET_ARCH => asked.arch,
        _ => {
            let place = offset - OFFSET_ARGUMENTS;
            (asked.arguments[place as usize / 8] >> (8 * (place % 8))) as u32
        }
    }
}

/// What the rules say, read one by one.
fn expected(rules: &[Rule], asked: &Asked) -> u32 {
    let number = |call: &Call| match asked.arch {
        AUDIT_ARCH_X86_64 if asked.number < X32_BIT => Some(call.x86_64),
        AUDIT_ARCH_X86_64 => call.x32.map(|number| number | X32_BIT),
        AUDIT_ARCH_I386 => call.i386,
        _ => None,
    };
    let holds = |condition: &Condition| {
        let argument = asked.arguments[usize::from(condition.argument)];
        let half = if condition.half == Half::High { argument >> 32 } else { argument } as u32;
        match condition.test {
            Test::AnyBits(bits) => half & bits != 0,
            Test::NoBits(bits) => half & bits == 0,
            Test::Equals(value) => half == value,
            Test::Differs(value) => half != value,
        }
    };
    let mut matching = rules
        .iter()
        .filter(|rule| number(&rule.call) == Some(asked.number) && rule.when.iter().all(holds));
    end(matching.next().map_or(Action::Allow, |rule| rule.action)).k
}

fn any_condition() -> impl Strategy<Value = Condition> {
    let test = prop_oneof![
        (0..4_u32).prop_map(Test::AnyBits),
        (0..4_u32).prop_map(Test::NoBits),
        (0..4_u32).prop_map(Test::Equals),
        (0..4_u32).prop_map(Test::Differs),
    ];
    let half = prop_oneof![Just(Half::Low), Just(Half::High)];
    (0..6_u8, half, test).prop_map(|(argument, half, test)| Condition { argument, half, test })
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let number = 0..60_u32;
    let call = (number.clone(), prop::option::of(number.clone()), prop::option::of(number))
        .prop_map(|(x86_64, i386, x32)| Call { name: "any", x86_64, i386, x32 });
    let action = prop_oneof![
        Just(Action::Allow),
        Just(Action::Notify),
        (0..200_u16).prop_map(Action::Errno),
        (0..200_u16).prop_map(Action::Trace),
    ];
    (call, prop::collection::vec(any_condition(), 0..4), action)
        .prop_map(|(call, when, action)| Rule { call, when, action })
}

fn any_asked() -> impl Strategy<Value = Asked> {
    let arch = prop_oneof![Just(AUDIT_ARCH_X86_64), Just(AUDIT_ARCH_I386), Just(0xc000_00b7)];
    let argument = (0..4_u64, 0..4_u64).prop_map(|(high, low)| high << 32 | low);
    (arch, 0..64_u32, any::<bool>(), prop::array::uniform6(argument)).prop_map(
        |(arch, number, x32, arguments)| {
            let number = if x32 { number | X32_BIT } else { number };
            Asked { arch, number, arguments }
        },
    )
}

impl std::fmt::Debug for Asked {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "{:#x} {} {:x?}", self.arch, self.number, self.arguments)
    }
}

proptest! {
    #[test]
    fn program_says_what_the_rules_say(
        rules in prop::collection::vec(any_rule(), 0..120),
        asked in prop::collection::vec(any_asked(), 64),
    ) {
        let program = build_filter(&rules);
        for asked in &asked {
            prop_assert_eq!(run(&program, asked), Some(expected(&rules, asked)), "{:?}", asked);
        }
    }
}

fn answer(rules: &[Rule], arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
    run(&build_filter(rules), &Asked { arch, number, arguments }).expect("ends in an answer")
}

#[test]
fn same_call_is_found_in_each_table() {
    let rules = [Rule::always(FSYNC, Action::Errno(0)), Rule::always(PWRITEV2, Action::Notify)];
    let none = [0; 6];
    assert_eq!(answer(&rules, AUDIT_ARCH_X86_64, 74, none), libc::SECCOMP_RET_ERRNO);
    assert_eq!(answer(&rules, AUDIT_ARCH_X86_64, 74 | X32_BIT, none), libc::SECCOMP_RET_ERRNO);
    assert_eq!(answer(&rules, AUDIT_ARCH_I386, 118, none), libc::SECCOMP_RET_ERRNO);
    assert_eq!(answer(&rules, AUDIT_ARCH_I386, 74, none), libc::SECCOMP_RET_ALLOW);
    assert_eq!(
        answer(&rules, AUDIT_ARCH_X86_64, 547 | X32_BIT, none),
        libc::SECCOMP_RET_USER_NOTIF
    );
    assert_eq!(answer(&rules, AUDIT_ARCH_X86_64, 328 | X32_BIT, none), libc::SECCOMP_RET_ALLOW);
}

#[test]
fn conditions_look_at_bits_of_one_argument() {
    let synchronous = Condition::low(2, Test::AnyBits(libc::MS_SYNC as u32));
    let rules = [Rule::when(MSYNC, synchronous, Action::Errno(0))];
    let sync = libc::MS_SYNC as u64;
    let wide = AUDIT_ARCH_X86_64;
    assert_eq!(answer(&rules, wide, 26, [0, 0, sync, 0, 0, 0]), libc::SECCOMP_RET_ERRNO);
    assert_eq!(answer(&rules, wide, 26, [sync, sync, 1, sync, 0, 0]), libc::SECCOMP_RET_ALLOW);
}

/// The kernel tries a program with the number and the architecture alone when it is installed; what
/// gets to an answer that way is never run again.
#[test]
fn calls_without_a_rule_are_decided_without_their_arguments() {
    let program =
        build_filter(&[Rule::when(OPENAT, Condition::low(2, Test::AnyBits(1)), Action::Notify)]);
    let blind: Vec<Instruction> = program
        .iter()
        .map(|&step| match step {
            Instruction { code: LOAD, k, .. } if k >= OFFSET_ARGUMENTS => load(u32::MAX),
            _ => step,
        })
        .collect();
    let reads_arguments = |number| {
        let asked = Asked { arch: AUDIT_ARCH_X86_64, number, arguments: [1; 6] };
        std::panic::catch_unwind(|| run(&blind, &asked)).is_err()
    };
    assert!(!reads_arguments(17), "pread64 is decided by its number");
    assert!(reads_arguments(OPENAT.x86_64));
}
