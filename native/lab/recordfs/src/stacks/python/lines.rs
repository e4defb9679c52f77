//! The line of an instruction, from the table that its code object has. Tables are a stranger's:
//! what is no line is none.

use super::layout::Lines;

/// `at` is the instruction's place in the code, in bytes; negative before the first one ran.
pub fn find(lines: Lines, table: &[u8], first: i32, at: i64) -> Option<u32> {
    let first = i64::from(first);
    let line = if at < 0 {
        Some(first)
    } else {
        match lines {
            Lines::Steps => Some(by_steps(table, first, at)),
            Lines::Ranges => by_ranges(table, first, at),
            Lines::Locations => by_locations(table, first, at),
        }
    };
    line.and_then(|line| line.try_into().ok()).filter(|&line| line > 0)
}

/// Pairs: so many bytes further, so many lines further.
fn by_steps(table: &[u8], mut line: i64, at: i64) -> i64 {
    let mut address = 0;
    for pair in table.chunks_exact(2) {
        address += i64::from(pair[0]);
        if address > at {
            break;
        }
        line += i64::from(pair[1] as i8);
    }
    line
}

/// Pairs: so many bytes are so many lines further than those before, or (-128) of no line.
fn by_ranges(table: &[u8], mut line: i64, at: i64) -> Option<i64> {
    let mut end = 0;
    for pair in table.chunks_exact(2) {
        let further = pair[1] as i8;
        end += i64::from(pair[0]);
        if further != -128 {
            line += i64::from(further);
        }
        if end > at {
            return (further != -128).then_some(line);
        }
    }
    None
}

/// Entries of one byte with the highest bit, its kind and for how many instructions it is, and what
/// that kind has behind it.
fn by_locations(table: &[u8], mut line: i64, at: i64) -> Option<i64> {
    let mut rest = table.iter().copied().peekable();
    let mut end = 0;
    while let Some(head) = rest.next() {
        end += (i64::from(head & 7) + 1) * 2;
        let kind = (head >> 3) & 15;
        let further = match kind {
            13 | 14 => signed(&mut rest)?,
            10..=12 => i64::from(kind) - 10,
            _ => 0,
        };
        line = line.wrapping_add(further);
        if end > at {
            return (kind != 15).then_some(line);
        }
        while rest.next_if(|byte| byte & 0x80 == 0).is_some() {}
    }
    None
}

/// Six bits a byte, the lowest first; the lowest of all is the sign.
fn signed(rest: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let (mut value, mut shift) = (0i64, 0);
    loop {
        let byte = rest.next().filter(|_| shift < 36)?;
        value |= i64::from(byte & 63) << shift;
        shift += 6;
        if byte & 64 == 0 {
            break;
        }
    }
    Some(if value & 1 == 1 { -(value >> 1) } else { value >> 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_each_kind_are_read() {
        // Of a real 3.9: three lines of 8 and 12 bytes.
        let steps = [8, 1, 12, 1];
        let at = |at| find(Lines::Steps, &steps, 10, at);
        assert_eq!(
            [at(-1), at(0), at(7), at(8), at(19), at(20)].map(Option::unwrap),
            [10, 10, 10, 11, 11, 12]
        );
        let ranges = [8, 1, 4, 0x80, 12, 0xff];
        let at = |at| find(Lines::Ranges, &ranges, 10, at);
        assert_eq!([at(0), at(8), at(12), at(24)], [Some(11), None, Some(10), None]);
        // One instruction of the first line, two of the next with columns, three 40 lines back
        // without, one of no line.
        let locations = [0x80, 0x11, 0x80 | 11 << 3 | 1, 3, 9, 0x80 | 13 << 3 | 2, 0x51, 1];
        let locations = [&locations[..], &[0x80 | 15 << 3]].concat();
        let at = |at| find(Lines::Locations, &locations, 100, at);
        assert_eq!([at(0), at(2), at(4)], [Some(100), Some(101), Some(101)]);
        assert_eq!([at(6), at(11), at(12), at(14)], [Some(61), Some(61), None, None]);
    }

    #[test]
    fn any_table_has_a_line_or_none() {
        bolero::check!().for_each(|bytes: &[u8]| {
            for lines in [Lines::Steps, Lines::Ranges, Lines::Locations] {
                for at in [-1, 0, 2, 4094, i64::MAX] {
                    let _ = find(lines, bytes, i32::MAX, at);
                }
            }
        });
    }
}
