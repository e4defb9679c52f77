//! A seccomp program made from a table of rules: sorted, then a binary search over the numbers of
//! each architecture.
//!
//! A call without a rule is decided from its number alone. Kernels since 5.11 find that out when
//! the filter is installed and never run the program for it: it then costs a bit test.

use crate::calls::{Call, X32_BIT};

/// What the kernel does with a call that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Allow,
    /// Not run; the caller sees this error number, or 0 for success.
    Errno(u16),
    /// The supervisor is asked.
    Notify,
    /// A ptrace tracer is asked; the number is its event message.
    Trace(u16),
}

/// A test of one 32-bit half of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// 0 to 5.
    pub argument: u8,
    pub half: Half,
    pub test: Test,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    Low,
    /// 0 in 32-bit programs.
    High,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// At least one of these bits is set.
    AnyBits(u32),
    NoBits(u32),
    Equals(u32),
    Differs(u32),
}

impl Condition {
    pub const fn low(argument: u8, test: Test) -> Condition {
        Condition { argument, half: Half::Low, test }
    }

    pub const fn high(argument: u8, test: Test) -> Condition {
        Condition { argument, half: Half::High, test }
    }
}

/// When a call meets all conditions, the action is taken. Of several rules for one call the first
/// that matches counts; a call that none matches is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub call: Call,
    pub when: Vec<Condition>,
    pub action: Action,
}

impl Rule {
    /// For each call of that name.
    pub fn always(call: Call, action: Action) -> Rule {
        Rule { call, when: Vec::new(), action }
    }

    pub fn when(call: Call, condition: Condition, action: Action) -> Rule {
        Rule { call, when: vec![condition], action }
    }
}

pub const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
pub const AUDIT_ARCH_I386: u32 = 0x4000_0003;

const OFFSET_NUMBER: u32 = 0;
const OFFSET_ARCH: u32 = 4;
const OFFSET_ARGUMENTS: u32 = 16;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_BITS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

pub type Instruction = libc::sock_filter;

/// The program for all three tables; any other architecture is allowed everything.
///
/// # Panics
/// When a condition names an argument above 5: a mistake in the table, not in any input.
pub fn build_filter(rules: &[Rule]) -> Vec<Instruction> {
    let native = search(&by_number(rules, |call| Some(call.x86_64)));
    let x32 = search(&by_number(rules, |call| call.x32.map(|number| number | X32_BIT)));
    let i386 = search(&by_number(rules, |call| call.i386));
    let mut wide = vec![load(OFFSET_NUMBER)];
    wide.extend(when(AT_LEAST, X32_BIT, false, x32));
    wide.extend(native);
    let mut narrow = vec![load(OFFSET_NUMBER)];
    narrow.extend(i386);
    let mut program = vec![load(OFFSET_ARCH)];
    program.extend(when(EQUAL, AUDIT_ARCH_X86_64, false, wide));
    program.extend(when(EQUAL, AUDIT_ARCH_I386, false, narrow));
    program.push(end(Action::Allow));
    program
}

type Group<'a> = (u32, Vec<&'a Rule>);

/// The rules of each number in their order, the numbers sorted.
fn by_number(rules: &[Rule], number: impl Fn(&Call) -> Option<u32>) -> Vec<Group<'_>> {
    let mut groups: Vec<Group> = Vec::new();
    for rule in rules {
        let Some(number) = number(&rule.call) else { continue };
        match groups.iter_mut().find(|group| group.0 == number) {
            Some(group) => group.1.push(rule),
            None => groups.push((number, vec![rule])),
        }
    }
    groups.sort_by_key(|group| group.0);
    groups
}

/// With the number loaded: always ends in an answer.
fn search(groups: &[Group]) -> Vec<Instruction> {
    match groups {
        [] => vec![end(Action::Allow)],
        [(number, rules)] => {
            let mut found: Vec<_> = rules.iter().flat_map(|rule| judge(rule)).collect();
            found.push(end(Action::Allow));
            let mut program = when(EQUAL, *number, false, found);
            program.push(end(Action::Allow));
            program
        }
        _ => {
            let (lower, upper) = groups.split_at(groups.len() / 2);
            let mut program = when(AT_LEAST, upper[0].0, false, search(upper));
            program.extend(search(lower));
            program
        }
    }
}

/// The rule's action, or on to what follows.
fn judge(rule: &Rule) -> Vec<Instruction> {
    rule.when.iter().rev().fold(vec![end(rule.action)], |then, condition| {
        let (jump, value, negated) = match condition.test {
            Test::AnyBits(bits) => (ANY_BITS, bits, false),
            Test::NoBits(bits) => (ANY_BITS, bits, true),
            Test::Equals(value) => (EQUAL, value, false),
            Test::Differs(value) => (EQUAL, value, true),
        };
        assert!(condition.argument < 6, "a system call has six arguments");
        let half = if condition.half == Half::High { 4 } else { 0 };
        let mut program = vec![load(OFFSET_ARGUMENTS + 8 * u32::from(condition.argument) + half)];
        program.extend(when(jump, value, negated, then));
        program
    })
}

/// `then` where the test holds (or fails, if negated), else on behind it.
#[expect(clippy::expect_used, reason = "the kernel takes 4096 instructions at most")]
fn when(code: u16, k: u32, negated: bool, then: Vec<Instruction>) -> Vec<Instruction> {
    // A conditional jump reaches 255 instructions; a plain one any.
    let mut program = match (u8::try_from(then.len()), negated) {
        (Ok(over), false) => vec![Instruction { code, jt: 0, jf: over, k }],
        (Ok(over), true) => vec![Instruction { code, jt: over, jf: 0, k }],
        (Err(_), _) => {
            let (jt, jf) = if negated { (0, 1) } else { (1, 0) };
            let over = u32::try_from(then.len()).expect("a program has at most 4096 instructions");
            vec![Instruction { code, jt, jf, k }, Instruction { code: JUMP, jt: 0, jf: 0, k: over }]
        }
    };
    program.extend(then);
    program
}

const fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD, jt: 0, jf: 0, k: offset }
}

const fn end(action: Action) -> Instruction {
    let k = match action {
        Action::Allow => libc::SECCOMP_RET_ALLOW,
        Action::Errno(number) => libc::SECCOMP_RET_ERRNO | number as u32,
        Action::Notify => libc::SECCOMP_RET_USER_NOTIF,
        Action::Trace(message) => libc::SECCOMP_RET_TRACE | message as u32,
    };
    Instruction { code: RETURN, jt: 0, jf: 0, k }
}

#[cfg(test)]
#[path = "filter_test.rs"]
mod tests;
