//! How far the stack has grown since a function was entered, at an instruction of it: for frames
//! that .eh_frame only tells by a frame pointer (Rust's standard library, gcc without `-O`), where
//! that is not known. All ways through the function are followed from its first instruction. What
//! moves the stack pointer by no fixed amount, or differs between two ways, is not known.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// Bytes of a function that is looked at.
pub const MOST: u64 = 1 << 16;
/// How often all instructions are gone through; a way back takes one turn.
const MOST_TURNS: usize = 16;

/// Bytes pushed since the function was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    pub stack: i64,
    /// What the frame pointer points to, where the function has set it.
    pub frame: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No way leads there, as far as is known.
    Never,
    Known(Depth),
    /// Ways differ, or nobody can say.
    Unknown,
}

impl State {
    fn join(self, other: State) -> State {
        match (self, other) {
            (State::Never, one) | (one, State::Never) => one,
            (one, other) if one == other => one,
            _ => State::Unknown,
        }
    }
}

/// The depth behind the instruction that ends at `address`. `code` is the whole function, which
/// begins at `start`.
pub fn find(code: &[u8], start: u64, address: u64) -> Option<Depth> {
    let decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let all: Vec<Instruction> = decoder.into_iter().collect();
    let index = |address: u64| all.binary_search_by_key(&address, Instruction::ip).ok();
    let wanted = all.binary_search_by_key(&address, Instruction::next_ip).ok()?;
    let mut states = vec![State::Never; all.len() + 1];
    *states.first_mut()? = State::Known(Depth { stack: 0, frame: None });
    let mut factory = InstructionInfoFactory::new();
    for _ in 0..MOST_TURNS {
        let before = states.clone();
        for (number, instruction) in all.iter().enumerate() {
            let after = step(instruction, states[number], &mut factory);
            let (goes_on, target) = ways(instruction);
            if goes_on {
                states[number + 1] = states[number + 1].join(after);
            }
            if let Some(target) = target.and_then(index) {
                states[target] = states[target].join(after);
            }
        }
        if states == before {
            return match step(&all[wanted], states[wanted], &mut factory) {
                State::Known(depth) => Some(depth),
                _ => None,
            };
        }
    }
    None
}

/// Whether the next instruction may follow, and which other one.
fn ways(instruction: &Instruction) -> (bool, Option<u64>) {
    let target = instruction.near_branch_target();
    match instruction.flow_control() {
        FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => (true, None),
        FlowControl::Interrupt => (true, None),
        FlowControl::ConditionalBranch => (true, Some(target)),
        FlowControl::UnconditionalBranch => (false, Some(target)),
        _ => (false, None),
    }
}

fn step(instruction: &Instruction, state: State, factory: &mut InstructionInfoFactory) -> State {
    let State::Known(Depth { stack, frame }) = state else { return state };
    if instruction.is_invalid() {
        return State::Unknown;
    }
    let calls = [FlowControl::Call, FlowControl::IndirectCall];
    if calls.contains(&instruction.flow_control()) {
        return state;
    }
    let info = factory.info(instruction);
    let writes = |register| {
        info.used_registers().iter().any(|used| {
            used.register().full_register() == register
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)
        })
    };
    let (stack, frame) = match (writes(Register::RSP), writes(Register::RBP)) {
        (false, false) => return state,
        (false, true) => (Some(stack), set_frame(instruction, stack)),
        (true, of_frame) => {
            let further = move_stack(instruction, stack, frame);
            (further, frame.filter(|_| !of_frame))
        }
    };
    stack.map_or(State::Unknown, |stack| State::Known(Depth { stack, frame }))
}

/// What the frame pointer points to now; the stack pointer did not move.
fn set_frame(instruction: &Instruction, stack: i64) -> Option<i64> {
    let is_whole = instruction.op0_register() == Register::RBP;
    match instruction.mnemonic() {
        Mnemonic::Mov if is_whole && is_register(instruction, Register::RSP) => Some(stack),
        Mnemonic::Lea if is_whole && is_based_on(instruction, Register::RSP) => {
            stack.checked_sub(instruction.memory_displacement64() as i64)
        }
        _ => None,
    }
}

fn move_stack(instruction: &Instruction, stack: i64, frame: Option<i64>) -> Option<i64> {
    let is_whole =
        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP;
    let distance = instruction.memory_displacement64() as i64;
    match instruction.mnemonic() {
        Mnemonic::Push | Mnemonic::Pushfq => {
            stack.checked_sub(instruction.stack_pointer_increment().into())
        }
        Mnemonic::Pop | Mnemonic::Popfq if !is_whole => {
            stack.checked_sub(instruction.stack_pointer_increment().into())
        }
        Mnemonic::Sub if is_whole => stack.checked_add(immediate(instruction)?),
        Mnemonic::Add if is_whole => stack.checked_sub(immediate(instruction)?),
        Mnemonic::Leave => frame?.checked_sub(8),
        Mnemonic::Mov if is_whole && is_register(instruction, Register::RBP) => frame,
        Mnemonic::Lea if is_whole && is_based_on(instruction, Register::RBP) => {
            frame?.checked_sub(distance)
        }
        Mnemonic::Lea if is_whole && is_based_on(instruction, Register::RSP) => {
            stack.checked_sub(distance)
        }
        // What returns goes nowhere here.
        Mnemonic::Ret => Some(stack),
        _ => None,
    }
}

fn immediate(instruction: &Instruction) -> Option<i64> {
    let is_one = matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
    is_one.then(|| instruction.immediate(1) as i64)
}

fn is_register(instruction: &Instruction, register: Register) -> bool {
    instruction.op1_kind() == OpKind::Register && instruction.op1_register() == register
}

fn is_based_on(instruction: &Instruction, register: Register) -> bool {
    instruction.memory_base() == register && instruction.memory_index() == Register::None
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: [u8; 5] = [0xe8, 0, 0, 0, 0];

    /// The depth behind the call that ends the code.
    fn at_call(before: &[&[u8]]) -> Option<(i64, Option<i64>)> {
        at_call_before(before, &[])
    }

    fn at_call_before(before: &[&[u8]], after: &[&[u8]]) -> Option<(i64, Option<i64>)> {
        let code = [&before.concat()[..], &CALL].concat();
        let address = 0x1000 + code.len() as u64;
        let code = [&code[..], &after.concat()].concat();
        find(&code, 0x1000, address).map(|depth| (depth.stack, depth.frame))
    }

    const PUSH_RBP: &[u8] = &[0x55];
    const SET_FRAME: &[u8] = &[0x48, 0x89, 0xe5];
    const PUSH_R15: &[u8] = &[0x41, 0x57];
    const SUB_24: &[u8] = &[0x48, 0x83, 0xec, 24];
    const LEAVE: &[u8] = &[0xc9];
    const RET: &[u8] = &[0xc3];
    const PROLOGUE: [&[u8]; 4] = [PUSH_RBP, SET_FRAME, PUSH_R15, SUB_24];

    #[test]
    fn a_prologue_is_counted() {
        assert_eq!(at_call(&PROLOGUE), Some((40, Some(8))));
        let large: &[u8] = &[0x48, 0x81, 0xec, 0, 0x10, 0, 0];
        let endbr: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
        assert_eq!(at_call(&[endbr, PUSH_RBP, SET_FRAME, large]), Some((0x1008, Some(8))));
        // Arguments on the stack, and those of a call before taken away.
        let (push_7, add_16): (&[u8], &[u8]) = (&[0x6a, 7], &[0x48, 0x83, 0xc4, 16]);
        let more = [&PROLOGUE[..], &[push_7, push_7, &CALL, add_16, push_7]].concat();
        assert_eq!(at_call(&more), Some((48, Some(8))));
        // lea rsp, [rbp-16]
        let back: &[u8] = &[0x48, 0x8d, 0x65, 0xf0];
        assert_eq!(at_call(&[&PROLOGUE[..], &[back]].concat()), Some((24, Some(8))));
    }

    #[test]
    fn a_call_behind_a_way_out_has_the_depth_of_who_jumps_there() {
        let jump_over: &[u8] = &[0x74, 2];
        let more = [&PROLOGUE[..], &[jump_over, LEAVE, RET]].concat();
        assert_eq!(at_call(&more), Some((40, Some(8))));
        // Nobody jumps there, as with a table of jumps.
        assert_eq!(at_call(&[&PROLOGUE[..], &[LEAVE, RET]].concat()), None);
        // A loop whose end jumps back to the call: jmp to behind it, je back.
        let (forth, back): (&[u8], &[u8]) = (&[0xeb, 5], &[0x74, 0xf9]);
        let more = [&PROLOGUE[..], &[forth]].concat();
        assert_eq!(at_call_before(&more, &[back, LEAVE, RET]), Some((40, Some(8))));
    }

    #[test]
    fn what_is_not_fixed_is_not_known() {
        let unfixed: [&[u8]; 5] = [
            // and rsp, -32; sub rsp, rax; mov rsp, rax; pop rsp; enter
            &[0x48, 0x83, 0xe4, 0xe0],
            &[0x48, 0x29, 0xc4],
            &[0x48, 0x89, 0xc4],
            &[0x5c],
            &[0xc8, 16, 0, 0],
        ];
        for instruction in unfixed {
            assert_eq!(at_call(&[&PROLOGUE[..], &[instruction]].concat()), None);
        }
        // Pushes in a loop: push rax; je back.
        assert_eq!(at_call(&[&PROLOGUE[..], &[&[0x50], &[0x74, 0xfd]]].concat()), None);
        // A frame pointer that is a number again: mov rbp, rax.
        let lost = [&PROLOGUE[..], &[&[0x48, 0x89, 0xc5]]].concat();
        assert_eq!(at_call(&lost), Some((40, None)));
        // Not at the end of an instruction.
        assert_eq!(find(&PROLOGUE.concat(), 0x1000, 0x1002), None);
    }

    #[test]
    fn any_code_has_a_depth_or_none() {
        bolero::check!().for_each(|bytes: &[u8]| {
            for address in 0..bytes.len().min(64) as u64 {
                let _ = find(bytes, 0, address);
            }
            let _ = find(bytes, u64::MAX - 7, 3);
        });
    }
}
