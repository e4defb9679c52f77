//! Where CPython keeps what, by its minor version. Up to 3.12 the figures are what `offsetof` says
//! of the headers of each version; from 3.13 on the interpreter tells them itself.

/// The table of 3.13 (`_Py_DebugOffsets`), as far as it is needed.
pub const TOLD_LENGTH: usize = 352;
const COOKIE: &[u8; 8] = b"xdebugpy";
/// No structure of the interpreter is larger.
const MOST_OFFSET: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// `co_lnotab` of 3.9 and older.
    Steps,
    /// `co_linetable` of 3.10.
    Ranges,
    /// `co_linetable` of 3.11 and later.
    Locations,
}

/// How far a thread's frame is from its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Current {
    Direct(u64),
    /// Over a `_PyCFrame`.
    Through(u64, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// Its number, each of so many bytes.
    Number(u64, i64),
    /// Its address.
    Pointer(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    // Of the runtime.
    pub interpreters: u64,
    // Of an interpreter.
    pub next_interpreter: u64,
    pub threads: u64,
    // Of a thread.
    pub next_thread: u64,
    pub thread_id: u64,
    pub native_id: Option<u64>,
    pub current: Current,
    // Of a frame.
    pub previous: u64,
    pub code: u64,
    pub instruction: Instruction,
    /// Says which frames are none of Python.
    pub owner: Option<u64>,
    // Of a code object.
    pub file: u64,
    pub name: u64,
    pub first_line: u64,
    pub table: u64,
    pub instructions: u64,
    pub lines: Lines,
    /// Where the letters of a string are, in ASCII and in anything else.
    pub letters: (u64, u64),
}

const V3_8: Layout = Layout {
    interpreters: 32,
    next_interpreter: 0,
    threads: 8,
    next_thread: 8,
    thread_id: 176,
    native_id: None,
    current: Current::Direct(24),
    previous: 24,
    code: 32,
    instruction: Instruction::Number(104, 1),
    owner: None,
    file: 104,
    name: 112,
    first_line: 40,
    table: 120,
    instructions: 0,
    lines: Lines::Steps,
    letters: (48, 72),
};

const V3_7: Layout =
    Layout { interpreters: 24, file: 96, name: 104, first_line: 36, table: 112, ..V3_8 };

const V3_10: Layout =
    Layout { instruction: Instruction::Number(96, 2), lines: Lines::Ranges, ..V3_8 };

const V3_11: Layout = Layout {
    interpreters: 40,
    next_interpreter: 0,
    threads: 16,
    next_thread: 8,
    thread_id: 152,
    native_id: Some(160),
    current: Current::Through(56, 8),
    previous: 48,
    code: 32,
    instruction: Instruction::Pointer(56),
    owner: None,
    file: 112,
    name: 128,
    first_line: 72,
    table: 136,
    instructions: 184,
    lines: Lines::Locations,
    letters: (48, 72),
};

const V3_12: Layout = Layout {
    threads: 72,
    thread_id: 136,
    native_id: Some(144),
    current: Current::Through(56, 0),
    previous: 8,
    code: 0,
    owner: Some(70),
    first_line: 68,
    instructions: 192,
    letters: (40, 56),
    ..V3_11
};

/// None for a version that was never looked at. 3.13 and later tell it themselves.
pub fn of_version(major: u64, minor: u64) -> Option<Layout> {
    match (major, minor) {
        (3, 7) => Some(V3_7),
        (3, 8 | 9) => Some(V3_8),
        (3, 10) => Some(V3_10),
        (3, 11) => Some(V3_11),
        (3, 12) => Some(V3_12),
        _ => None,
    }
}

/// What 3.13 says of itself, where it is not built without its lock (free-threaded).
pub fn told(table: &[u8; TOLD_LENGTH]) -> Option<Layout> {
    let word = |at: usize| {
        let bytes = table.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes)).filter(|&value| value < MOST_OFFSET)
    };
    let version = u32::from_le_bytes(table.get(8..12)?.try_into().ok()?);
    if table.get(..8)? != COOKIE || version >> 16 != 0x030d || word(16)? != 0 {
        return None;
    }
    Some(Layout {
        interpreters: word(40)?,
        next_interpreter: word(64)?,
        threads: word(72)?,
        next_thread: word(168)?,
        current: Current::Direct(word(184)?),
        thread_id: word(192)?,
        native_id: Some(word(200)?),
        previous: word(232)?,
        code: word(240)?,
        instruction: Instruction::Pointer(word(248)?),
        owner: Some(word(264)?),
        file: word(280)?,
        name: word(296)?,
        table: word(304)?,
        first_line: word(312)?,
        instructions: word(344)?,
        ..V3_12
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_that_were_looked_at_have_a_layout() {
        for minor in 0..30 {
            assert_eq!(of_version(3, minor).is_some(), (7..=12).contains(&minor));
        }
        assert_eq!((of_version(2, 7), of_version(4, 11)), (None, None));
    }

    #[test]
    fn any_table_is_taken_or_refused() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let mut table = [0; TOLD_LENGTH];
            table[..8].copy_from_slice(COOKIE);
            table[11] = 3;
            table[10] = 13;
            for (to, from) in table[24..].iter_mut().zip(bytes) {
                *to = *from;
            }
            let layout = told(&table);
            assert!(layout.is_none_or(|layout| layout.threads < MOST_OFFSET));
            table[10] = 14;
            assert_eq!(told(&table), None);
        });
    }
}
