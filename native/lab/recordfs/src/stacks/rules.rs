//! How the frames of a module are left, as its .eh_frame has it.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    LittleEndian, ParsedEhFrameHdr, Pointer, RegisterRule, UnwindContext, UnwindSection, X86_64,
};

use super::address_space::{AddressSpace, Loaded};
use super::call::{ends_in_call, LONGEST};
use super::depth;

/// Bytes of .eh_frame that a module may have; those of a browser have less than half.
const MOST_FRAMES: u64 = 64 << 20;
const MOST_HEADER: u64 = 16 << 20;
// What a header says of itself: gimli's DW_EH_PE_pcrel|sdata4, udata4, datarel|sdata4.
const POINTER: u8 = 0x1b;
const COUNT: u8 = 0x03;
const TABLE: u8 = 0x3b;
const ROW: u64 = 8;
/// Rules that are kept.
const MOST_RULES: usize = 1 << 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The stack pointer.
    Stack,
    /// The frame pointer, where it is known.
    Frame,
}

/// Where the caller's frame is; offsets are from the frame's address (CFA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwind {
    pub base: Base,
    pub offset: i64,
    pub address: i64,
    pub saved_base: SavedBase,
    /// How far the stack pointer is below that address, where the frame pointer is not needed
    /// for it.
    pub depth: Option<i64>,
}

/// Where the caller's frame pointer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedBase {
    /// Still in its register.
    Kept,
    At(i64),
    Unknown,
}

/// What is known of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The instruction before it is a call.
    pub is_behind_call: bool,
    /// None where the walk ends.
    pub unwind: Option<Unwind>,
}

pub struct Rules {
    bases: BaseAddresses,
    header: Vec<u8>,
    frames: Vec<u8>,
    known: Mutex<HashMap<u64, Rule>>,
}

type Reader<'a> = EndianSlice<'a, LittleEndian>;

impl Rules {
    /// None when it has none.
    pub fn read(memory: &File, module: &Loaded) -> Option<Rules> {
        let (at, end) = module.headers.eh_frame_hdr?;
        let header = read(memory, module, at, end, MOST_HEADER)?;
        let bases = BaseAddresses::default().set_eh_frame_hdr(at);
        let Pointer::Direct(from) = parse(&header, &bases)?.eh_frame_ptr() else { return None };
        // Its length is nowhere; what follows it in its segment is never asked for.
        let (_, to) =
            *module.headers.loaded.iter().find(|(begin, end)| (*begin..*end).contains(&from))?;
        let frames = read(memory, module, from, to, MOST_FRAMES)?;
        let bases = bases.set_eh_frame(from);
        Some(Rules { bases, header, frames, known: Mutex::default() })
    }

    /// `offset` is an address in the file; that of a frame but the innermost is behind a call.
    pub fn find(
        &self,
        space: &AddressSpace,
        module: usize,
        offset: u64,
        is_innermost: bool,
    ) -> Option<Rule> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // An instruction that is behind a system call is behind none of a function.
        let key = if is_innermost { offset } else { offset | 1 << 63 };
        if let Some(rule) = known.get(&key) {
            return Some(*rule);
        }
        let module = space.modules.get(module)?;
        let is_behind_call = is_behind_call(space, offset.wrapping_add(module.bias));
        let inside = if is_innermost { offset } else { offset.checked_sub(1)? };
        let mut unwind = self.look_up(inside);
        if let Some(unwind) = unwind.as_mut().filter(|unwind| unwind.base == Base::Frame) {
            unwind.depth = self.find_depth(space, module, inside, offset, unwind.offset);
        }
        let rule = Rule { is_behind_call, unwind };
        if known.len() >= MOST_RULES {
            known.clear();
        }
        known.insert(key, rule);
        Some(rule)
    }

    /// What .eh_frame says of a function, by an address in it.
    fn describe(&self, address: u64) -> Option<FrameDescriptionEntry<Reader<'_>>> {
        let frames = EhFrame::new(&self.frames, LittleEndian);
        let header = parse(&self.header, &self.bases)?;
        let Pointer::Direct(at) = header.table()?.lookup(address, &self.bases).ok()? else {
            return None;
        };
        let Pointer::Direct(from) = header.eh_frame_ptr() else { return None };
        let at = EhFrameOffset(at.checked_sub(from)?.try_into().ok()?);
        let fde = frames.fde_from_offset(&self.bases, at, EhFrame::cie_from_offset).ok();
        fde.filter(|fde| fde.contains(address) && !fde.is_signal_trampoline())
    }

    /// How far the stack pointer is below a frame that is known by the frame pointer: what all
    /// instructions of the function before it make of it, if they set the frame pointer as
    /// .eh_frame says.
    fn find_depth(
        &self,
        space: &AddressSpace,
        module: &Loaded,
        inside: u64,
        offset: u64,
        expected: i64,
    ) -> Option<i64> {
        let fde = self.describe(inside)?;
        let (start, length) = (fde.initial_address(), fde.len());
        // A part of a function that lies elsewhere is not entered by a call.
        let first = self.look_up(start)?;
        if (first.base, first.offset) != (Base::Stack, 8) || length > depth::MOST {
            return None;
        }
        let mut code = vec![0; length.try_into().ok()?];
        space.read(module.file(), start.wrapping_add(module.bias), &mut code)?;
        let depth = depth::find(&code, start, offset)?;
        let is_expected = depth.frame.and_then(|frame| frame.checked_add(8)) == Some(expected);
        depth.stack.checked_add(8).filter(|_| is_expected)
    }

    fn look_up(&self, address: u64) -> Option<Unwind> {
        let frames = EhFrame::new(&self.frames, LittleEndian);
        let fde = self.describe(address)?;
        let mut context = UnwindContext::new();
        let row = fde.unwind_info_for_address(&frames, &self.bases, &mut context, address).ok()?;
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else { return None };
        let base = match register {
            X86_64::RSP => Base::Stack,
            X86_64::RBP => Base::Frame,
            _ => return None,
        };
        let RegisterRule::Offset(address) = row.register(X86_64::RA) else { return None };
        let saved_base = match row.register(X86_64::RBP) {
            RegisterRule::Offset(at) => SavedBase::At(at),
            // By the convention of calls it is as it was.
            RegisterRule::Undefined | RegisterRule::SameValue => SavedBase::Kept,
            _ => return None,
        };
        Some(Unwind { base, offset, address, saved_base, depth: None })
    }
}

/// Whether an instruction that calls stands before an address.
pub fn is_behind_call(space: &AddressSpace, address: u64) -> bool {
    let mut before = [0; LONGEST];
    let at = address.checked_sub(LONGEST as u64);
    at.is_some_and(|at| space.files.memory.read_exact_at(&mut before, at).is_ok())
        && ends_in_call(&before)
}

/// A header as linkers write it, with a table that is searched, in 4 bytes each, and lies in it:
/// sums over anything else overflow in the library.
fn parse<'a>(header: &'a [u8], bases: &BaseAddresses) -> Option<ParsedEhFrameHdr<Reader<'a>>> {
    let (encodings, rest) = header.split_first_chunk::<4>()?;
    let (_, rest) = rest.split_first_chunk::<4>()?;
    let (count, table) = rest.split_first_chunk::<4>()?;
    let is_usual = matches!(encodings, [1, POINTER, COUNT, TABLE]);
    let is_whole = u64::from(u32::from_le_bytes(*count)) <= table.len() as u64 / ROW;
    let parsed = EhFrameHdr::new(header, LittleEndian).parse(bases, 8).ok();
    parsed.filter(|_| is_usual && is_whole)
}

fn read(memory: &File, module: &Loaded, from: u64, to: u64, most: u64) -> Option<Vec<u8>> {
    let length = to.checked_sub(from).filter(|length| *length <= most)?;
    let mut bytes = vec![0; length.try_into().ok()?];
    memory.read_exact_at(&mut bytes, from.wrapping_add(module.bias)).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(header: &[u8], frames: &[u8]) -> Rules {
        let bases = BaseAddresses::default().set_eh_frame_hdr(0x1000).set_eh_frame(0x2000);
        Rules { bases, header: header.into(), frames: frames.into(), known: Mutex::default() }
    }

    #[test]
    fn any_tables_give_a_rule_or_none() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let (header, frames) = bytes.split_at(bytes.len() / 2);
            let _ = made(header, frames).look_up(0x1800);
            let usual = [&[1, POINTER, COUNT, TABLE], header].concat();
            let _ = made(&usual, frames).look_up(0x1800);
            // As many rows as there are, of any addresses.
            let rows = header.get(4..).map_or(0, |rows| rows.len() / ROW as usize) as u32;
            let (pointer, rows) = (header.get(..4).unwrap_or(&[0; 4]), rows.to_le_bytes());
            let table = header.get(4..).unwrap_or_default();
            let usual = [&[1, POINTER, COUNT, TABLE], pointer, &rows, table].concat();
            let _ = made(&usual, frames).look_up(0x1800);
            // A table with one entry, of whatever is behind it.
            let mut header = vec![1, 0x1b, 0x03, 0x3b];
            header.extend(0xffcu32.to_le_bytes());
            header.extend(1u32.to_le_bytes());
            header.extend([0; 4]);
            header.extend(0x1000u32.to_le_bytes());
            let _ = made(&header, bytes).look_up(0x1000);
        });
    }

    #[test]
    fn a_function_of_this_program_has_its_rule() {
        use object::{Object, ObjectSection, ObjectSymbol};
        let file = std::fs::read("/proc/self/exe").unwrap();
        let file = object::File::parse(&*file).unwrap();
        let section = |name| file.section_by_name(name).unwrap();
        let (header, frames) = (section(".eh_frame_hdr"), section(".eh_frame"));
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(header.address())
            .set_eh_frame(frames.address());
        let (header, frames) = (header.data().unwrap().into(), frames.data().unwrap().into());
        let rules = Rules { bases, header, frames, known: Mutex::default() };
        // At its first instruction the return address is all that lies on the stack.
        let (base, saved_base) = (Base::Stack, SavedBase::Kept);
        let first = Unwind { base, offset: 8, address: -8, saved_base, depth: None };
        // _start has no caller.
        assert_eq!(rules.look_up(file.entry()), None);
        let text = file.symbols().find(|symbol| {
            symbol.name().is_ok_and(|name| name.contains("a_function_of_this_program_has_its_rule"))
        });
        assert_eq!(rules.look_up(text.unwrap().address()), Some(first));
    }
}
