//! What a module in memory says of itself: its ELF header, its program headers, its notes.

/// Bytes of headers that are looked at; program headers follow the ELF header.
pub const HEADERS: usize = 4096;
/// Bytes of notes that are looked at.
const MOST_NOTES: u64 = 4096;
const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const X86_64: u16 = 62;
const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const NOTE: u32 = 4;
const GNU_EH_FRAME: u32 = 0x6474_e550;
const BUILD_ID: u32 = 3;

/// Addresses are those that the file has.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// Of the segment that begins with the file's first byte.
    pub first: u64,
    /// From and to, of what is loaded.
    pub loaded: Vec<(u64, u64)>,
    pub eh_frame_hdr: Option<(u64, u64)>,
    pub dynamic: Option<(u64, u64)>,
    pub notes: Vec<(u64, u64)>,
}

/// None for what is no 64-bit ELF file for this processor.
pub fn parse_headers(bytes: &[u8]) -> Option<Headers> {
    let u16_at = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if !bytes.starts_with(b"\x7fELF\x02\x01\x01") || u16_at(18)? != X86_64 {
        return None;
    }
    let (table, size, count) = (usize::try_from(u64_at(32)?).ok()?, u16_at(54)?, u16_at(56)?);
    if table < HEADER || usize::from(size) != PROGRAM_HEADER {
        return None;
    }
    let mut found = Headers::default();
    let mut has_first = false;
    for header in bytes.get(table..)?.chunks_exact(PROGRAM_HEADER).take(count.into()) {
        let word = |at: usize| {
            header[at..at + 8].iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte))
        };
        let (kind, offset, from) = (word(0) as u32, word(8), word(16));
        let Some(to) = from.checked_add(word(32)) else { continue };
        match kind {
            LOAD => {
                if offset == 0 && !has_first {
                    (found.first, has_first) = (from, true);
                }
                found.loaded.push((from, to));
            }
            NOTE => found.notes.push((from, to.min(from.saturating_add(MOST_NOTES)))),
            DYNAMIC => found.dynamic = Some((from, to)),
            GNU_EH_FRAME => found.eh_frame_hdr = Some((from, to)),
            _ => {}
        }
    }
    has_first.then_some(found)
}

/// The build id in the bytes of a note segment.
pub fn find_build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    while let Some((head, rest)) = notes.split_first_chunk::<12>() {
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (name, length, kind) = (word(0) as usize, word(4) as usize, word(8));
        let padded = name.checked_next_multiple_of(4)?;
        let (owner, rest) = rest.split_at_checked(padded)?;
        let content = rest.get(..length)?;
        if kind == BUILD_ID && owner.starts_with(b"GNU\0") && (1..=64).contains(&length) {
            return Some(content.to_vec());
        }
        notes = rest.get(length.checked_next_multiple_of(4)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_this_program_are_read() {
        let file = std::fs::read("/proc/self/exe").unwrap();
        let headers = parse_headers(&file[..HEADERS]).unwrap();
        let (from, to) = headers.eh_frame_hdr.unwrap();
        assert!(headers.loaded.iter().any(|&(begin, end)| begin <= from && to <= end));
    }

    #[test]
    fn a_build_id_is_found_behind_other_notes() {
        let note = |kind: u32, content: &[u8]| {
            let mut note = [4, content.len() as u32, kind].map(u32::to_le_bytes).concat();
            note.extend(b"GNU\0");
            note.extend(content);
            note.resize(note.len().next_multiple_of(4), 0);
            note
        };
        let notes = [note(5, &[1; 16]), note(3, &[7; 5])].concat();
        assert_eq!(find_build_id(&notes), Some(vec![7; 5]));
        assert_eq!(find_build_id(&notes[..20]), None);
        assert_eq!(find_build_id(&note(3, &[])), None);
    }

    #[test]
    fn any_bytes_are_read() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = (parse_headers(bytes), find_build_id(bytes));
            let mut whole = b"\x7fELF\x02\x01\x01".to_vec();
            whole.resize(HEADER, 0);
            whole[18] = X86_64 as u8;
            whole[32] = HEADER as u8;
            whole[54] = PROGRAM_HEADER as u8;
            whole[56] = 9;
            whole.extend(bytes);
            let _ = parse_headers(&whole);
        });
    }
}
