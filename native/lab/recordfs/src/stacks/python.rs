//! What a thread of CPython runs: the frames of its script, from the interpreter's own structures
//! in the memory of the process that waits. Each object must be of the type that it should be; the
//! first that is not, and any length or number that none of them has, ends the walk.

mod layout;
mod lines;

use super::address_space::{AddressSpace, FileId, Loaded};
use super::exports::Exports;
use super::symbols::Source;
use layout::{Current, Instruction, Layout};

/// Frames that are told, and that are looked at for them.
pub const MOST_FRAMES: usize = 16;
const MOST_LOOKED_AT: usize = 64;
const MOST_INTERPRETERS: usize = 16;
const MOST_THREADS: usize = 512;
/// Letters of a name or path, and bytes of a table of lines.
const MOST_LETTERS: u64 = 4096;
const MOST_TABLE: u64 = 1 << 18;
/// Of a structure, as far as it is read.
const MOST_STRUCTURE: usize = 512;
/// Where glibc keeps the number of a thread in what pthread_self(3) points to.
const NUMBER_IN_PTHREAD: u64 = 720;
/// A frame of the interpreter's own C code.
const OWNED_BY_C: u8 = 3;
const TYPE: usize = 8;

/// An interpreter in a process.
pub struct Python {
    file: FileId,
    runtime: u64,
    layout: Layout,
    code_type: u64,
    text_type: u64,
    bytes_type: u64,
}

impl Python {
    /// None where there is none, or one of a version whose structures are not known.
    pub fn find(space: &mut AddressSpace, own_device: Option<(u32, u32)>) -> Option<Python> {
        let is_wanted = |name: &[u8]| {
            [&b"python3"[..], b"libpython3"].iter().any(|begin| name.starts_with(begin))
        };
        let modules = space.find_modules(is_wanted);
        modules.into_iter().find_map(|at| {
            let module = &space.modules[at];
            (Some(module.device) != own_device).then_some(())?;
            Python::read(space, module)
        })
    }

    fn read(space: &AddressSpace, module: &Loaded) -> Option<Python> {
        let exports = Exports::read(space, module)?;
        let (file, runtime) = (module.file(), exports.find("_PyRuntime")?);
        let layout = match exports.find("Py_Version") {
            Some(at) => {
                let mut version = [0; 8];
                space.read(file, at, &mut version)?;
                let version = u64::from_le_bytes(version);
                let (major, minor) = (version >> 24, (version >> 16) & 0xff);
                layout::of_version(major, minor).or_else(|| told(space, file, runtime))?
            }
            // 3.10 and older only have it in the names of their files.
            None => layout::of_version(3, minor_in_name(&module.named.path)?)
                .filter(|layout| layout.native_id.is_none())?,
        };
        let [code_type, text_type, bytes_type] =
            ["PyCode_Type", "PyUnicode_Type", "PyBytes_Type"].map(|name| exports.find(name));
        let (code_type, text_type, bytes_type) = (code_type?, text_type?, bytes_type?);
        Some(Python { file, runtime, layout, code_type, text_type, bytes_type })
    }

    /// The frames of a thread, the innermost first; `number` is the thread's own number of itself.
    pub fn frames(&self, space: &AddressSpace, number: u32) -> Vec<Source> {
        let memory = Memory { space, file: self.file };
        let mut found = Vec::new();
        let Some(mut frame) = self.first_frame(&memory, number) else { return found };
        for _ in 0..MOST_LOOKED_AT {
            let Some(next) = self.frame(&memory, frame, &mut found) else { break };
            frame = next;
            if frame == 0 || found.len() >= MOST_FRAMES {
                break;
            }
        }
        found
    }

    fn first_frame(&self, memory: &Memory<'_>, number: u32) -> Option<u64> {
        let is_native = |state: &[u8]| {
            self.layout.native_id.and_then(|at| word(state, at)) == Some(number.into())
        };
        let threads = self.threads(memory, is_native);
        // After fork(2) the number of itself may be the parent's; glibc's is right.
        let is_of_glibc = |state: &&Vec<u8>| {
            let at = word(state, self.layout.thread_id)
                .and_then(|thread| thread.checked_add(NUMBER_IN_PTHREAD));
            let told = at.and_then(|at| memory.structure(at, 4));
            told.is_some_and(|told| told == number.to_le_bytes())
        };
        let native = threads.last().filter(|state| is_native(state));
        let state = native.or_else(|| threads.iter().find(is_of_glibc))?;
        match self.layout.current {
            Current::Direct(at) => word(state, at),
            Current::Through(at, further) => memory.word(word(state, at)?.checked_add(further)?),
        }
        .filter(|&frame| frame != 0)
    }

    /// The states of all threads up to the one that is wanted.
    fn threads(&self, memory: &Memory<'_>, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let layout = &self.layout;
        let (Current::Direct(current) | Current::Through(current, _)) = layout.current;
        let last = [current, layout.thread_id, layout.next_thread, layout.native_id.unwrap_or(0)];
        let length = last.into_iter().max().map_or(0, |last| last + 8);
        let mut found = Vec::new();
        let mut interpreter = memory.word(self.runtime.wrapping_add(layout.interpreters));
        for _ in 0..MOST_INTERPRETERS {
            let Some(this) = interpreter.filter(|&this| this != 0) else { break };
            let mut thread = memory.word(this.wrapping_add(layout.threads));
            while let Some(state) = thread.filter(|&at| at != 0 && found.len() < MOST_THREADS) {
                let Some(state) = memory.structure(state, length) else { break };
                thread = word(&state, layout.next_thread);
                let is_last = is_wanted(&state);
                found.push(state);
                if is_last {
                    return found;
                }
            }
            interpreter = memory.word(this.wrapping_add(layout.next_interpreter));
        }
        found
    }

    /// Adds what a frame runs; the frame around it, 0 where none is.
    fn frame(&self, memory: &Memory<'_>, at: u64, found: &mut Vec<Source>) -> Option<u64> {
        let layout = &self.layout;
        let (Instruction::Number(instruction, _) | Instruction::Pointer(instruction)) =
            layout.instruction;
        let last = [layout.previous, layout.code, instruction, layout.owner.unwrap_or(0)];
        let frame = memory.structure(at, last.into_iter().max()? + 8)?;
        let owner = layout.owner.and_then(|at| frame.get(usize::try_from(at).ok()?).copied());
        if owner != Some(OWNED_BY_C) {
            found.push(self.source(
                memory,
                word(&frame, layout.code)?,
                word(&frame, instruction)?,
            )?);
        }
        word(&frame, layout.previous)
    }

    /// Where in its source a code object is. `instruction` is as the frame has it.
    fn source(&self, memory: &Memory<'_>, at: u64, instruction: u64) -> Option<Source> {
        let layout = &self.layout;
        let last = [layout.file, layout.name, layout.table, layout.first_line];
        let code = memory.structure(at, last.into_iter().max()? + 8)?;
        if word(&code, TYPE as u64)? != self.code_type {
            return None;
        }
        let file = self.text(memory, word(&code, layout.file)?)?;
        let function = self.text(memory, word(&code, layout.name)?)?;
        let bytes = memory.structure(word(&code, layout.table)?, 32)?;
        let length = word(&bytes, 16).filter(|length| *length <= MOST_TABLE)?;
        if word(&bytes, TYPE as u64)? != self.bytes_type {
            return None;
        }
        let mut table = vec![0; length.try_into().ok()?];
        memory.read(word(&code, layout.table)?.checked_add(32)?, &mut table)?;
        let first = word(&code, layout.first_line)? as i32;
        let at = match layout.instruction {
            Instruction::Number(_, size) => i64::from(instruction as i32).wrapping_mul(size),
            Instruction::Pointer(_) => {
                instruction.wrapping_sub(at.wrapping_add(layout.instructions)) as i64
            }
        };
        let line = lines::find(layout.lines, &table, first, at).unwrap_or(0);
        Some(Source { function, file, line })
    }

    /// A string in one block (compact), as all names and paths of code are.
    fn text(&self, memory: &Memory<'_>, at: u64) -> Option<String> {
        let head = memory.structure(at, 40)?;
        let (length, state) = (word(&head, 16)?, word(&head, 32)?);
        let (kind, is_compact, is_ascii) = ((state >> 2) & 7, state & 32 != 0, state & 64 != 0);
        if word(&head, TYPE as u64)? != self.text_type || !is_compact || length > MOST_LETTERS {
            return None;
        }
        let (ascii, other) = self.layout.letters;
        let mut bytes = vec![0; usize::try_from(length * kind).ok()?];
        memory.read(at.checked_add(if is_ascii { ascii } else { other })?, &mut bytes)?;
        let size = match kind {
            1 | 2 | 4 => usize::try_from(kind).ok()?,
            _ => return None,
        };
        let letter = |bytes: &[u8]| {
            let number = bytes.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte));
            char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        Some(bytes.chunks_exact(size).map(letter).collect())
    }
}

fn told(space: &AddressSpace, file: FileId, runtime: u64) -> Option<Layout> {
    let mut table = [0; layout::TOLD_LENGTH];
    space.read(file, runtime, &mut table)?;
    layout::told(&table)
}

/// Of `/usr/bin/python3.9` and `/usr/lib/libpython3.9.so.1.0` 9.
fn minor_in_name(path: &[u8]) -> Option<u64> {
    let name = path.rsplit(|&byte| byte == b'/').next()?;
    let name = std::str::from_utf8(name).ok()?;
    let rest = name.strip_prefix("lib").unwrap_or(name).strip_prefix("python3.")?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// The word at an offset of a structure.
fn word(structure: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    Some(u64::from_le_bytes(structure.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Memory of an interpreter: its file's, and such of no file.
struct Memory<'a> {
    space: &'a AddressSpace,
    file: FileId,
}

impl Memory<'_> {
    fn read(&self, at: u64, bytes: &mut [u8]) -> Option<()> {
        self.space.read(self.file, at, bytes)?;
        self.space.seen.add(at, bytes);
        Some(())
    }

    fn structure(&self, at: u64, length: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(length).ok().filter(|length| *length <= MOST_STRUCTURE)?;
        let mut bytes = vec![0; length];
        self.read(at, &mut bytes)?;
        Some(bytes)
    }

    fn word(&self, at: u64) -> Option<u64> {
        word(&self.structure(at, 8)?, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_stand_in_names_of_files() {
        for (path, minor) in [
            ("/usr/bin/python3.9", Some(9)),
            ("/opt/lib/libpython3.10.so.1.0", Some(10)),
            ("/usr/lib/libpython3.7m.so.1.0", Some(7)),
            ("/usr/lib/libpython3.so", None),
            ("/usr/bin/python3", None),
            ("/usr/bin/python3.x", None),
        ] {
            assert_eq!(minor_in_name(path.as_bytes()), minor, "{path}");
        }
    }

    #[test]
    fn an_interpreter_that_waits_says_where_it_is() {
        use std::io::Read;
        use std::process::{Command, Stdio};
        let script = "def f():\n\n  input()\nprint('a', flush=True)\nf()";
        let mut program = Command::new("/usr/bin/python3")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        program.stdout.as_mut().unwrap().read_exact(&mut [0; 2]).unwrap();
        let number = program.id();
        let mut space = AddressSpace::open(number, number).unwrap();
        let python = Python::find(&mut space, None).unwrap();
        let source = |function: &str, line| Source {
            function: function.into(),
            file: "<string>".into(),
            line,
        };
        let expected = [source("f", 3), source("<module>", 5)];
        while python.frames(&space, number) != expected {
            std::thread::yield_now();
        }
        assert_eq!(python.frames(&space, number + 1), []);
        program.kill().unwrap();
        program.wait().unwrap();
    }
}
