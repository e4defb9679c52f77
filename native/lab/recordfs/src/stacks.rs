//! Where a thread is in its program while it waits for its answer: the return addresses on its
//! stack, by what its modules say of their frames (.eh_frame). Nothing is guessed: a walk ends
//! where it would need a register that is not known, or where no call is before a return address.
//!
//! The kernel tells the stack pointer and the program counter of a thread that waits
//! (`/proc/THREAD/syscall`); its other registers are what callees have saved.

mod address_space;
mod call;
mod debug_file;
mod depth;
mod elf;
mod exports;
mod go;
mod maps;
pub mod memo;
mod perf_map;
mod python;
mod rules;
mod sources;
pub mod symbols;
mod tables;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use diskproof_wire::crash_log::{is_carrier, Address, Operation, MAX_FRAMES};
use rustix::io::Errno;

use self::address_space::{AddressSpace, Found, Stack};
use self::memo::Memo;
use self::rules::{Base, SavedBase, Unwind};
use self::sources::Sources;
use self::symbols::Source;
use self::tables::Tables;

/// Processes whose address spaces are kept; with more all of them are looked at anew.
const MOST_SPACES: usize = 128;
/// Modules that a log names, and addresses whose source is looked for.
const MOST_MODULES: usize = 1024;
const MOST_ADDRESSES: usize = 1 << 14;
const MOST_PATH: usize = 4096;
/// How far up from its pointer a stack is read.
const MOST_STACK: u64 = 1 << 20;

/// Tells the log who and what numbers stand for: a caller's number (0 for none), and what is said.
pub type Tell<'a> = &'a mut dyn FnMut(u32, &Operation<'_>) -> Result<(), Errno>;

/// What a thread may be in while it asks for something that could also be asked for without
/// waiting: then it is somewhere else by now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Write,
    Flush,
    /// What only ever is asked for by a thread that waits.
    Other,
}

impl Call {
    fn can_be(self, number: i64) -> bool {
        let writes = [
            libc::SYS_write,
            libc::SYS_pwrite64,
            libc::SYS_writev,
            libc::SYS_pwritev,
            libc::SYS_pwritev2,
            libc::SYS_sendfile,
            libc::SYS_splice,
            libc::SYS_copy_file_range,
        ];
        let flushes = [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_msync];
        match self {
            Call::Other => true,
            Call::Write => writes.contains(&number),
            Call::Flush => flushes.contains(&number) || writes.contains(&number),
        }
    }
}

/// A thread that asks.
#[derive(Clone, Copy)]
pub struct Asking {
    pub process: u32,
    pub thread: u32,
    /// The thread's number of itself, where its namespace has another one.
    pub own: u32,
}

/// A module as the log names it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Module {
    pub inode: u64,
    pub build_id: Vec<u8>,
    pub path: Vec<u8>,
}

#[derive(Default)]
pub struct Stacks {
    spaces: HashMap<u32, AddressSpace>,
    /// Their numbers in the log.
    modules: HashMap<Module, u32>,
    addresses: HashSet<Address>,
    /// What needs not be looked up, since its process said it.
    sources: Sources,
    tables: Tables,
    /// The mount's own device: reading a file there would ask us.
    own_device: Option<(u32, u32)>,
}

impl Stacks {
    pub fn new(own_device: Option<(u32, u32)>) -> Stacks {
        Stacks { own_device, tables: Tables::new(own_device), ..Stacks::default() }
    }

    /// The frames of a thread that waits, the innermost first, and how they are known again; none
    /// when they cannot be told.
    pub fn take(
        &mut self,
        Asking { process, thread, own }: Asking,
        at: Waiting,
        tell: Tell<'_>,
    ) -> (Vec<Address>, Option<Memo>) {
        let known = self.spaces.remove(&process);
        let (current, before) = match known {
            Some(space) if space.is_current() => (Some(space), None),
            before => (None, before),
        };
        let with_stack =
            |space: AddressSpace| Some((space.read_stack(at.stack, MOST_STACK)?, space));
        // After exec(2) nothing can be read from what was open before.
        let opened = || {
            let again = before.and_then(|before| before.open_again(thread));
            again.or_else(|| AddressSpace::open(process, thread))
        };
        let Some((mut stack, mut space)) =
            current.and_then(with_stack).or_else(|| with_stack(opened()?))
        else {
            return (Vec::new(), None);
        };
        space.seen.begin();
        let mut frames = self.walk(&mut space, &mut stack, at, tell);
        if self.spaces.len() >= MOST_SPACES {
            self.spaces.clear();
        }
        if self.addresses.len() < MOST_ADDRESSES {
            self.addresses.extend(frames.iter().filter(|frame| !self.sources.has(frame)));
        }
        let python = space.python(self.own_device);
        let pages = python.is_some().then_some(space.pages);
        let of_script = python.map(|python| python.frames(&space, own));
        let of_script = of_script.into_iter().flatten();
        let of_script: Vec<_> =
            of_script.map_while(|source| self.script_address(source, tell)).collect();
        frames.splice(..0, of_script);
        frames.truncate(MAX_FRAMES);
        let memo = Memo::new(at, thread, space.files.clone(), pages, &space.seen);
        self.spaces.insert(process, space);
        (frames, memo)
    }

    /// Tells the source of all addresses, as far as it is found in a few seconds.
    pub fn tell_lines(&mut self, mut tell: impl FnMut(&Operation<'_>)) -> io::Result<()> {
        self.sources.tell(&mut tell);
        let mut modules: Vec<_> = self.modules.iter().collect();
        modules.sort_unstable_by_key(|(_, number)| **number);
        let modules: Vec<_> = modules.into_iter().map(|(module, _)| module.clone()).collect();
        let is_asked = |address: &&Address| {
            let module = (address.module as usize).checked_sub(1).and_then(|at| modules.get(at));
            module.is_some_and(|module| !is_carrier(&module.path))
        };
        let mut addresses: Vec<_> = self.addresses.iter().filter(is_asked).copied().collect();
        addresses.sort_unstable();
        if addresses.is_empty() {
            return Ok(());
        }
        symbols::look_up(&modules, &addresses, &mut tell)
    }

    fn walk(
        &mut self,
        space: &mut AddressSpace,
        stack: &mut Stack,
        at: Waiting,
        tell: Tell<'_>,
    ) -> Vec<Address> {
        let mut frames = Vec::new();
        let (mut address, mut pointer, mut base) = (at.address, at.stack, None);
        while frames.len() < MAX_FRAMES {
            let module = match space.find(address) {
                Some(Found::Module(module)) => module,
                Some(Found::Written) => {
                    // Code that the process made itself: it may have written what it is.
                    let number = self.number(&space.perf_map(), tell);
                    frames.extend(number.map(|module| Address { module, offset: address }));
                    break;
                }
                None => break,
            };
            let is_first = frames.is_empty();
            let offset = address.wrapping_sub(space.modules[module].bias);
            let rule = self.tables.find(space, module, offset, is_first);
            if !is_first && rule.is_some_and(|rule| !rule.is_behind_call) {
                // Nobody returns to here.
                break;
            }
            let Some(number) = self.number(&space.modules[module].named, tell) else { break };
            let frame = Address { module: number, offset };
            frames.push(frame);
            if !self.sources.has(&frame) {
                let sources = self.tables.sources(space, module, offset);
                self.sources.add(frame, sources.unwrap_or_default());
            }
            let unwind = rule.and_then(|rule| rule.unwind);
            match unwind.and_then(|unwind| leave(unwind, space, stack, (pointer, base))) {
                Some(caller) => (address, pointer, base) = caller,
                None => break,
            }
        }
        frames
    }

    /// The number of a line of a script, whose file is the module.
    fn script_address(&mut self, source: Source, tell: Tell<'_>) -> Option<Address> {
        let mut path = source.file.clone().into_bytes();
        path.truncate(MOST_PATH);
        let module = self.number(&Module { inode: 0, build_id: Vec::new(), path }, tell)?;
        self.sources.number(module, source)
    }

    fn number(&mut self, module: &Module, tell: Tell<'_>) -> Option<u32> {
        if let Some(number) = self.modules.get(module) {
            return Some(*number);
        }
        if self.modules.len() >= MOST_MODULES {
            return None;
        }
        let Module { inode, build_id, path } = module;
        let said =
            Operation::Module { inode: *inode, build_id: build_id.into(), path: path.into() };
        tell(0, &said).ok()?;
        let number = self.modules.len() as u32 + 1;
        self.modules.insert(module.clone(), number);
        Some(number)
    }
}

/// The caller's address, its stack pointer, and its frame pointer where that is known.
fn leave(
    unwind: Unwind,
    space: &AddressSpace,
    stack: &mut Stack,
    (pointer, base): (u64, Option<u64>),
) -> Option<(u64, u64, Option<u64>)> {
    let frame = match (unwind.base, base) {
        (Base::Stack, _) => pointer.checked_add_signed(unwind.offset),
        (Base::Frame, Some(base)) => base.checked_add_signed(unwind.offset),
        (Base::Frame, None) => pointer.checked_add_signed(unwind.depth?),
    };
    let frame = frame.filter(|frame| *frame > pointer)?;
    let mut read = |at| stack.read(space, frame.checked_add_signed(at)?, pointer);
    let address = read(unwind.address)?;
    let base = match unwind.saved_base {
        SavedBase::At(at) => read(at),
        SavedBase::Kept => base,
        SavedBase::Unknown => None,
    };
    Some((address, frame, base))
}

/// A thread in a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    number: i64,
    stack: u64,
    address: u64,
}

impl Waiting {
    /// None where it may be somewhere else by now.
    pub fn read(syscall: &File, call: Call) -> Option<Waiting> {
        let mut text = [0; 256];
        let length = syscall.read_at(&mut text, 0).ok()?;
        parse_syscall(&text[..length]).filter(|at| call.can_be(at.number))
    }
}

/// `NUMBER SIX ARGUMENTS STACK ADDRESS`; anything else is no thread in a system call.
fn parse_syscall(text: &[u8]) -> Option<Waiting> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut words = words.skip(6);
    let mut hexadecimal = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (stack, address) = (hexadecimal()?, hexadecimal()?);
    words.next().is_none().then_some(Waiting { number, stack, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_thread_in_a_system_call_has_a_place() {
        let text = b"1 0x3 0x7ffd 0x6 0x0 0x0 0x0 0x7ffc8 0x7f0011\n";
        let found = parse_syscall(text).unwrap();
        assert_eq!((found.number, found.stack, found.address), (1, 0x7ffc8, 0x7f0011));
        assert!(Call::Write.can_be(1) && Call::Flush.can_be(1) && !Call::Write.can_be(202));
        for text in
            [&b"running\n"[..], b"-1 0x7ffc8 0x7f0011\n", b"", b"\xff", b"1 2 3 4 5 6 7 8 9"]
        {
            assert_eq!(parse_syscall(text), None);
        }
    }
}
