//! The lines and symbols of an ELF file.

use std::borrow::Cow;
use std::fs::File;
use std::io::Read;

use addr2line::Context;
use flate2::read::ZlibDecoder;
use gimli::{EndianSlice, LittleEndian};
use object::{CompressionFormat, Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::symbols::{read, Source};

/// Bytes of a section that is compressed; all of a process has four times as many.
const MOST_UNPACKED: u64 = 512 << 20;

type Lines<'a> = Context<EndianSlice<'a, LittleEndian>>;

pub struct Debug<'a> {
    build_id: &'a [u8],
    lines: Option<Lines<'a>>,
    /// From, to and name, by address.
    symbols: Vec<(u64, u64, &'a str)>,
}

impl<'a> Debug<'a> {
    /// None for what is no such file, or another one than it was.
    pub fn load(bytes: &'a [u8], build_id: &'a [u8]) -> Option<Debug<'a>> {
        let file = object::File::parse(bytes).ok()?;
        let is_same = build_id.is_empty() || file.build_id().ok()? == Some(build_id);
        if !is_same || !file.is_64() || !file.is_little_endian() {
            return None;
        }
        Some(Debug { build_id, lines: load_lines(&file), symbols: list_symbols(&file) })
    }

    /// The file of its debug symbols where distributions keep those.
    pub fn read_separate(&self) -> Option<Vec<u8>> {
        let hexadecimal: String = self.build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        let (first, rest) = hexadecimal.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
        let path = format!("/usr/lib/debug/.build-id/{first}/{rest}.debug");
        File::open(path).and_then(read).ok()
    }

    /// What calls the address returns to: functions that were inlined first, then what they are
    /// in; else the symbol.
    pub fn find_lines(&self, offset: u64) -> Vec<Source> {
        let Some(inside) = offset.checked_sub(1) else { return Vec::new() };
        let found = self.lines.as_ref().map_or(Vec::new(), |lines| find_frames(lines, inside));
        if !found.is_empty() {
            return found;
        }
        self.find_symbol(inside).into_iter().collect()
    }

    fn find_symbol(&self, inside: u64) -> Option<Source> {
        let at = self.symbols.partition_point(|(from, ..)| *from <= inside).checked_sub(1)?;
        let (from, to, name) = *self.symbols.get(at)?;
        let name = addr2line::demangle_auto(Cow::Borrowed(name), None);
        let function = format!("{name}+{:#x}", inside + 1 - from);
        (inside < to).then_some(Source { function, ..Source::default() })
    }
}

fn load_lines<'a>(file: &object::File<'a>) -> Option<Lines<'a>> {
    let section = |id: gimli::SectionId| -> Result<_, gimli::Error> {
        let bytes = read_section(file, id.name()).unwrap_or_default();
        Ok(EndianSlice::new(bytes, LittleEndian))
    };
    Context::from_dwarf(gimli::Dwarf::load(section).ok()?).ok()
}

/// None where it is not there, or is packed by other means than zlib.
fn read_section<'a>(file: &object::File<'a>, name: &str) -> Option<&'a [u8]> {
    let found = file.section_by_name(name)?.compressed_data().ok()?;
    match found.format {
        CompressionFormat::None => Some(found.data),
        CompressionFormat::Zlib => {
            let mut bytes = Vec::new();
            ZlibDecoder::new(found.data).take(MOST_UNPACKED).read_to_end(&mut bytes).ok()?;
            // It lives as long as this process, which looks at few files.
            Some(bytes.leak())
        }
        _ => None,
    }
}

/// Those that have a place in a source.
fn find_frames(lines: &Lines<'_>, address: u64) -> Vec<Source> {
    let mut found = Vec::new();
    let Ok(mut frames) = lines.find_frames(address).skip_all_loads() else { return found };
    while let Ok(Some(frame)) = frames.next() {
        let function = frame.function.as_ref().and_then(|name| name.demangle().ok());
        let function = function.map(Cow::into_owned).unwrap_or_default();
        let place = frame.location.and_then(|at| Some((at.file?.to_owned(), at.line?)));
        let Some((file, line)) = place else { continue };
        found.push(Source { function, file, line });
    }
    found
}

fn list_symbols<'a>(file: &object::File<'a>) -> Vec<(u64, u64, &'a str)> {
    let named = |symbol: object::Symbol<'a, '_>| {
        let is_code = symbol.kind() == SymbolKind::Text && symbol.is_definition();
        let to = symbol.address().checked_add(symbol.size())?;
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        (is_code && symbol.size() > 0).then_some((symbol.address(), to, name))
    };
    let mut symbols: Vec<_> = file.symbols().filter_map(named).collect();
    symbols.extend(file.dynamic_symbols().filter_map(named));
    symbols.sort_unstable();
    symbols.dedup_by_key(|(from, ..)| *from);
    symbols
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn an_address_of_this_program_has_its_line() {
        let bytes = own();
        let debug = Debug::load(&bytes, b"").unwrap();
        let (from, _, _) = debug
            .symbols
            .iter()
            .find(|(.., name)| name.contains("an_address_of_this_program_has_its_line"))
            .unwrap();
        let found = debug.find_lines(from + 5);
        assert!(found[0].file.ends_with("debug_file.rs") && found[0].line > 0, "{found:?}");
        let symbol = debug.find_symbol(from + 4).unwrap();
        assert!(symbol.function.ends_with("+0x5"), "{symbol:?}");
        assert_eq!((symbol.file.as_str(), symbol.line), ("", 0));
    }

    #[test]
    fn a_damaged_file_is_read_or_refused() {
        let bytes = own();
        let sections = object::File::parse(&*bytes).unwrap();
        let ranges: Vec<_> = sections
            .sections()
            .filter(|one| {
                one.name().is_ok_and(|name| name.contains("tab") || name.contains("debug_"))
            })
            .filter_map(|one| one.file_range())
            .filter(|(_, length)| *length > 0)
            .collect();
        for round in 0..24u64 {
            let mut damaged = bytes.clone();
            let (from, length) = ranges[round as usize % ranges.len()];
            for number in 0..length.min(64) {
                let at = from + (number * 7919 + round * 104_729) % length;
                damaged[at as usize] ^= (round as u8).wrapping_mul(37) | 1;
            }
            damaged[(round as usize * 5) % 64] ^= u8::from(round % 3 == 0);
            if let Some(debug) = Debug::load(&damaged, b"") {
                let some: Vec<_> = debug.symbols.iter().step_by(97).take(50).collect();
                for (from, ..) in some {
                    let _ = debug.find_lines(from.wrapping_add(3));
                }
            }
        }
    }

    #[test]
    fn a_file_with_another_build_id_is_none() {
        let bytes = own();
        assert!(Debug::load(&bytes, &[1, 2, 3]).is_none());
        assert!(Debug::load(&bytes[..100], b"").is_none());
    }
}
