//! Go programs: their calls are on stacks of goroutines, and no .eh_frame tells of them. What the
//! runtime of the language itself needs is there in any case, stripped or not: `.gopclntab`, and
//! `moduledata`, which says what it counts from.

mod table;

use super::address_space::{AddressSpace, FileId, Loaded};
use super::rules::{is_behind_call, Base, Rule, SavedBase, Unwind};
use super::symbols::Source;
use table::{Format, Header, Table, LONGEST_HEADER};

/// What `go version` looks for, at the begin of the data of each Go program.
const MARK: &[u8] = b"\xff Go buildinf:";
const MARK_WITHIN: usize = 1 << 16;
/// Bytes of a module's data, and of its table.
const MOST_DATA: usize = 128 << 20;
const MOST_TABLE: usize = 64 << 20;
/// Functions that an address may be in, each inlined into the next.
const MOST_INLINED: usize = 8;
// Words of moduledata: of the table's parts each has three, and then follow those of all others.
const WORDS: usize = 24;
const FIRST_PART: usize = 1;
const TEXT: usize = 22;
/// What an inlined function's tree is counted from, in 1.18 and in 1.20 and later.
const INLINE_BASES: (usize, usize) = (38, 40);

pub struct Go {
    file: FileId,
    table: Table,
    inline_base: u64,
    pub bias: u64,
}

impl Go {
    /// None for what is no Go program.
    pub fn read(space: &AddressSpace, module: &Loaded) -> Option<Go> {
        let file = module.file();
        let ranges = space.data_of(file);
        let is_marked = ranges.iter().any(|&(from, to)| {
            let length = to.saturating_sub(from).min(MARK_WITHIN as u64) as usize;
            read(space, file, from, length)
                .is_some_and(|bytes| bytes.chunks(16).any(|chunk| chunk.starts_with(MARK)))
        });
        let total: u64 = ranges.iter().map(|(from, to)| to.saturating_sub(*from)).sum();
        if !is_marked || total > MOST_DATA as u64 {
            return None;
        }
        let data = read_all(space, file, ranges)?;
        data.iter().find_map(|(from, bytes)| {
            let rows = bytes.chunks(8).enumerate().filter(|(_, row)| row.ends_with(&[0, 0, 1, 8]));
            rows.into_iter().find_map(|(number, _)| {
                let rest = &bytes[number * 8..];
                let header = Header::parse(rest.get(..LONGEST_HEADER)?)?;
                let at = from.checked_add(number as u64 * 8)?;
                let (text, inline_base) =
                    data.iter().find_map(|(_, bytes)| find_base(bytes, at, &header))?;
                let table = rest.get(..MOST_TABLE).unwrap_or(rest).to_vec();
                let table = Table::new(table, text)?;
                Some(Go { file, table, inline_base, bias: module.bias })
            })
        })
    }

    /// `offset` is an address in the file; that of a frame but the innermost is behind a call.
    pub fn find(&self, space: &AddressSpace, offset: u64, is_innermost: bool) -> Option<Rule> {
        let address = offset.wrapping_add(self.bias);
        let inside = if is_innermost { address } else { address.checked_sub(1)? };
        let function = self.table.find(inside)?;
        let size = self.table.frame_size(function, inside).and_then(|size| size.try_into().ok());
        let unwind = size.and_then(|size: i64| {
            let (base, offset) = (Base::Stack, size.checked_add(8)?);
            let saved_base = SavedBase::Unknown;
            Some(Unwind { base, offset, address: -8, saved_base, depth: None })
        });
        Some(Rule { is_behind_call: is_behind_call(space, address), unwind })
    }

    /// The call before an address: functions that were inlined first.
    pub fn sources(&self, space: &AddressSpace, offset: u64) -> Option<Vec<Source>> {
        let inside = offset.wrapping_add(self.bias).checked_sub(1)?;
        let (function, mut at) = (self.table.find(inside)?, inside);
        let mut found = Vec::new();
        while found.len() < MOST_INLINED {
            let (file, line) = self.table.place(function, at)?;
            let inlined = match self.table.inline_index(function, at) {
                Some(index) => Some(self.inlined(space, function, index)?),
                None => None,
            };
            let Some((name, parent)) = inlined else {
                let name = self.table.name(function)?;
                found.push(Source { function: name, file, line });
                break;
            };
            found.push(Source { function: name, file, line });
            at = parent;
        }
        Some(found)
    }

    /// The name of a function that was inlined, and an address in what it was inlined into.
    fn inlined(
        &self,
        space: &AddressSpace,
        function: table::Function,
        index: u32,
    ) -> Option<(String, u64)> {
        let (size, name, parent) = match self.table.format() {
            Format::V1_16 | Format::V1_18 => (20, 12, 16),
            Format::V1_20 => (16, 4, 8),
        };
        let tree = self.table.inline_tree(function, self.inline_base)?;
        let mut node = [0; 20];
        let node = node.get_mut(..size)?;
        space.read(self.file, tree.checked_add(u64::from(index) * size as u64)?, node)?;
        let name = self.table.name_at(table::u32_at(node, name)? as i32)?;
        let parent = self.table.behind_entry(function, table::u32_at(node, parent)?)?;
        Some((name, parent))
    }
}

/// What a table counts from, of the moduledata that points to it and to all its parts.
fn find_base(data: &[u8], table: u64, header: &Header) -> Option<(u64, u64)> {
    let word = |bytes: &[u8], number: usize| table::u64_at(bytes, number * 8);
    let starts = data.chunks_exact(8).enumerate().filter(|(_, row)| *row == table.to_le_bytes());
    starts.into_iter().find_map(|(number, _)| {
        let rest = &data[number * 8..];
        (rest.len() >= WORDS * 8).then_some(())?;
        for (part, offset) in header.parts.iter().enumerate() {
            let pointer = word(rest, FIRST_PART + 3 * part)?;
            (pointer == table.checked_add(*offset)?).then_some(())?;
        }
        let inline = match header.format {
            Format::V1_16 => 0,
            Format::V1_18 => word(rest, INLINE_BASES.0)?,
            Format::V1_20 => word(rest, INLINE_BASES.1)?,
        };
        Some((word(rest, TEXT)?, inline))
    })
}

/// What lies side by side as one: making a part read-only divides a table.
fn read_all(
    space: &AddressSpace,
    file: FileId,
    ranges: Vec<(u64, u64)>,
) -> Option<Vec<(u64, Vec<u8>)>> {
    let mut data: Vec<(u64, Vec<u8>)> = Vec::new();
    for (from, to) in ranges {
        let bytes = read(space, file, from, to.checked_sub(from)?.try_into().ok()?)?;
        match data.last_mut() {
            Some((at, before)) if *at + before.len() as u64 == from => before.extend(bytes),
            _ => data.push((from, bytes)),
        }
    }
    Some(data)
}

fn read(space: &AddressSpace, file: FileId, from: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    space.read(file, from, &mut bytes)?;
    Some(bytes)
}
