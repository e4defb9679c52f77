//! `.gopclntab`: for each instruction of a Go program its function, file and line, and how large
//! the frame is there. Formats of Go 1.16 (magic ...fa), 1.18 (...f0) and 1.20 and later (...f1).

/// What precedes a table, up to where its parts are.
pub const LONGEST_HEADER: usize = 72;
/// Steps of one sequence of values, and bytes of a name.
const MOST_STEPS: usize = 1 << 20;
const MOST_NAME: usize = 4096;
const TOP_OF_STACK: u8 = 1;
const WRITES_STACK_POINTER: u8 = 2;
const INLINE_INDEX: u32 = 2;
const INLINE_TREE: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    V1_16,
    V1_18,
    V1_20,
}

/// What a table says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub format: Format,
    functions: usize,
    /// Names, units, files, values and functions: where they begin.
    pub parts: [u64; 5],
}

impl Header {
    /// None for what is none of amd64.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let (format, from) = match bytes.get(..8)? {
            [0xfa, 0xff, 0xff, 0xff, 0, 0, 1, 8] => (Format::V1_16, 24),
            [0xf0, 0xff, 0xff, 0xff, 0, 0, 1, 8] => (Format::V1_18, 32),
            [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8] => (Format::V1_20, 32),
            _ => return None,
        };
        let mut parts = [0; 5];
        for (number, part) in parts.iter_mut().enumerate() {
            *part = u64_at(bytes, from + 8 * number)?;
        }
        let functions = usize::try_from(u64_at(bytes, 8)?).ok()?;
        Some(Header { format, functions, parts }).filter(|_| parts.is_sorted())
    }
}

pub struct Table {
    bytes: Vec<u8>,
    header: Header,
    names: usize,
    units: usize,
    files: usize,
    values: usize,
    table: usize,
    /// What entries are counted from; 0 where they are addresses.
    text: u64,
}

/// A function of the program.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    entry: u64,
    /// Of what the table says of it.
    at: usize,
}

impl Table {
    pub fn new(bytes: Vec<u8>, text: u64) -> Option<Table> {
        let header = Header::parse(&bytes)?;
        let part = |number: usize| usize::try_from(header.parts[number]).ok();
        let (names, units, files, values, table) =
            (part(0)?, part(1)?, part(2)?, part(3)?, part(4)?);
        let text = if header.format == Format::V1_16 { 0 } else { text };
        Some(Table { bytes, header, names, units, files, values, table, text })
    }

    /// The entry of a function, and where it is told.
    fn row(&self, number: usize) -> Option<(u64, usize)> {
        let size = if self.header.format == Format::V1_16 { 16 } else { 8 };
        let at = self.table.checked_add(number.checked_mul(size)?)?;
        let (entry, offset) = if size == 16 {
            (u64_at(&self.bytes, at)?, u64_at(&self.bytes, at.checked_add(8)?)?)
        } else {
            let short = |at| Some(u64::from(u32_at(&self.bytes, at)?));
            (short(at)?.checked_add(self.text)?, short(at.checked_add(4)?)?)
        };
        Some((entry, self.table.checked_add(offset.try_into().ok()?)?))
    }

    pub fn find(&self, address: u64) -> Option<Function> {
        // The row behind the last one has the end of it.
        let (mut from, mut to) = (0, self.header.functions);
        if address < self.row(0)?.0 || address >= self.row(to)?.0 {
            return None;
        }
        while to - from > 1 {
            let middle = from + (to - from) / 2;
            if self.row(middle)?.0 <= address {
                from = middle;
            } else {
                to = middle;
            }
        }
        let (entry, at) = self.row(from)?;
        (entry <= address).then_some(Function { entry, at })
    }

    /// The field of a function: those of 1.16 begin with 8 bytes of an address, later with 4.
    fn field(&self, function: Function, number: usize) -> Option<u32> {
        let first = if self.header.format == Format::V1_16 { 8 } else { 4 };
        u32_at(&self.bytes, function.at.checked_add(first + 4 * number)?)
    }

    /// Where its flags are, and behind them what is told for each kind of value.
    fn flags_at(&self, function: Function) -> Option<usize> {
        let behind = if self.header.format == Format::V1_18 { 36 } else { 40 };
        function.at.checked_add(behind)
    }

    /// Bytes between the stack pointer and the return address; None where nobody knows.
    pub fn frame_size(&self, function: Function, address: u64) -> Option<u64> {
        let flags = *self.bytes.get(self.flags_at(function)?.checked_add(1)?)?;
        if flags & (TOP_OF_STACK | WRITES_STACK_POINTER) != 0 {
            return None;
        }
        self.value(function, self.field(function, 3)?, address)?.try_into().ok()
    }

    pub fn name(&self, function: Function) -> Option<String> {
        self.name_at(self.field(function, 0)? as i32)
    }

    pub fn name_at(&self, offset: i32) -> Option<String> {
        let at = self.names.checked_add(offset.try_into().ok()?)?;
        // A name stands behind the end of another one.
        let is_begin = offset == 0 || *self.bytes.get(at.checked_sub(1)?)? == 0;
        self.text_at(at).filter(|name| is_begin && !name.is_empty())
    }

    pub fn place(&self, function: Function, address: u64) -> Option<(String, u32)> {
        let file = self.value(function, self.field(function, 4)?, address)?;
        let line = self.value(function, self.field(function, 5)?, address)?;
        let unit = (self.field(function, 7)? as usize).checked_add(file.try_into().ok()?)?;
        let offset = u32_at(&self.bytes, self.units.checked_add(unit.checked_mul(4)?)?)?;
        let path = self.text_at(self.files.checked_add(offset as usize)?)?;
        Some((path, line.try_into().ok()?))
    }

    /// Which of the functions that were inlined into one an address is in.
    pub fn inline_index(&self, function: Function, address: u64) -> Option<u32> {
        if self.field(function, 6)? <= INLINE_INDEX {
            return None;
        }
        let at = self.flags_at(function)?.checked_add(4 + 4 * INLINE_INDEX as usize)?;
        self.value(function, u32_at(&self.bytes, at)?, address)?.try_into().ok()
    }

    /// Where the tree of these is in memory. `base` is what later formats count from.
    pub fn inline_tree(&self, function: Function, base: u64) -> Option<u64> {
        let flags = self.flags_at(function)?;
        if usize::from(*self.bytes.get(flags.checked_add(3)?)?) <= INLINE_TREE {
            return None;
        }
        let values = usize::try_from(self.field(function, 6)?).ok()?;
        let at = flags.checked_add(4)?.checked_add(values.checked_mul(4)?)?;
        if self.header.format == Format::V1_16 {
            return u64_at(
                &self.bytes,
                at.checked_next_multiple_of(8)?.checked_add(8 * INLINE_TREE)?,
            );
        }
        let offset = u32_at(&self.bytes, at.checked_add(4 * INLINE_TREE)?)?;
        (offset != u32::MAX).then(|| base.checked_add(offset.into()))?
    }

    pub fn format(&self) -> Format {
        self.header.format
    }

    /// The address that stands so many bytes behind a function's begin.
    pub fn behind_entry(&self, function: Function, offset: u32) -> Option<u64> {
        function.entry.checked_add(offset.into())
    }

    /// The value of an address in a sequence of steps: how much another it is, for how many bytes.
    fn value(&self, function: Function, offset: u32, address: u64) -> Option<i32> {
        let at = self.values.checked_add(usize::try_from(offset).ok().filter(|&at| at > 0)?)?;
        let mut rest = self.bytes.get(at..)?.iter().copied();
        let (mut value, mut end) = (-1i32, function.entry);
        for number in 0..MOST_STEPS {
            let step = number_of(&mut rest)?;
            if step == 0 && number > 0 {
                return None;
            }
            value = value.wrapping_add((step >> 1) as i32 ^ -((step & 1) as i32));
            end = end.checked_add(number_of(&mut rest)?.into())?;
            if address < end {
                return Some(value);
            }
        }
        None
    }

    fn text_at(&self, at: usize) -> Option<String> {
        let bytes = self.bytes.get(at..)?;
        let bytes = bytes.get(..MOST_NAME).unwrap_or(bytes);
        let end = bytes.iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// Seven bits a byte, the lowest first.
fn number_of(rest: &mut impl Iterator<Item = u8>) -> Option<u32> {
    let mut value = 0;
    for shift in (0..35).step_by(7) {
        let byte = rest.next()?;
        value |= u32::from(byte & 127).checked_shl(shift).unwrap_or(0);
        if byte & 128 == 0 {
            return Some(value);
        }
    }
    None
}

pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAGICS: [u8; 3] = [0xfa, 0xf0, 0xf1];

    fn made(magic: u8, functions: u64, bytes: &[u8]) -> Vec<u8> {
        let mut table = vec![magic, 0xff, 0xff, 0xff, 0, 0, 1, 8];
        table.extend(functions.to_le_bytes());
        table.resize(if magic == 0xfa { 24 } else { 32 }, 0);
        for part in [72u64, 76, 80, 84, 88] {
            table.extend(part.to_le_bytes());
        }
        table.extend(bytes);
        table
    }

    #[test]
    fn any_table_is_read() {
        bolero::check!().for_each(|bytes: &[u8]| {
            for magic in MAGICS {
                for functions in [0, 1, 2, u64::from(u32::MAX)] {
                    let Some(table) = Table::new(made(magic, functions, bytes), 16) else {
                        continue;
                    };
                    for address in [0, 16, 17, 300, u64::MAX] {
                        let Some(function) = table.find(address) else { continue };
                        let _ = (table.frame_size(function, address), table.name(function));
                        let _ = (table.place(function, address), table.inline_tree(function, 7));
                        let _ = table.inline_index(function, address);
                    }
                }
            }
        });
    }

    #[test]
    fn other_headers_are_refused() {
        for magic in [0xfb, 0xf2, 0] {
            assert_eq!(Header::parse(&made(magic, 1, &[])), None);
        }
        let mut table = made(0xf1, 1, &[]);
        table[32] = 255;
        assert_eq!(Header::parse(&table), None);
        assert_eq!(Header::parse(&[0xf1]), None);
    }
}
