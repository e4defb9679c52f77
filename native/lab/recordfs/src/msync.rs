//! Which part of a file msync(2) asks to be flushed: the kernel tells (FUSE) of an fdatasync of the
//! whole file. While the thread waits for the answer, /proc has its system call with the addresses,
//! and where files are mapped.
//!
//! Whoever may not be looked at so (`/proc/THREAD/syscall` needs what ptrace(2) needs), and whoever
//! has the file mapped twice within these addresses, counts as one that flushes all of it.

use std::ops::Range;

use diskproof_wire::crash_log::Operation;

const PAGE: u64 = 4096;

/// What of the file with this number a waiting thread flushes; None: all of it.
pub fn find_range(thread: u32, inode: u64) -> Option<Operation<'static>> {
    let read = |name| std::fs::read_to_string(format!("/proc/{thread}/{name}")).ok();
    let addresses = parse_call(&read("syscall")?)?;
    let range = find_mapped(&read("maps")?, inode, &addresses)?;
    Some(Operation::Msync { offset: range.start, length: range.end - range.start })
}

/// The addresses of an msync(2): its number, then the arguments in hexadecimal.
fn parse_call(text: &str) -> Option<Range<u64>> {
    let mut words = text.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (start, length) = (argument()?, argument()?);
    let end = start.checked_add(length)?.checked_next_multiple_of(PAGE)?;
    (number == libc::SYS_msync).then_some(start..end)
}

/// The part of a file that is mapped there, if it is one.
fn find_mapped(maps: &str, inode: u64, addresses: &Range<u64>) -> Option<Range<u64>> {
    let mut found = maps.lines().filter_map(|line| parse_mapping(line, inode, addresses));
    let range = found.next()?;
    found.next().is_none().then_some(range)
}

fn parse_mapping(line: &str, inode: u64, addresses: &Range<u64>) -> Option<Range<u64>> {
    let mut words = line.split_whitespace();
    let (first, last) = words.next()?.split_once('-')?;
    let hexadecimal = |word| u64::from_str_radix(word, 16).ok();
    let (first, last) = (hexadecimal(first)?, hexadecimal(last)?);
    let is_shared = words.next()?.ends_with('s');
    let offset = hexadecimal(words.next()?)?;
    let is_ours = words.nth(1)?.parse() == Ok(inode);
    let (start, end) = (first.max(addresses.start), last.min(addresses.end));
    let range = || Some(offset.checked_add(start - first)?..offset.checked_add(end - first)?);
    (is_shared && is_ours && start < end).then(range).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        55d0c0000000-55d0c0004000 r-xp 00000000 08:01 7                          /bin/true\n\
        7f0000000000-7f0000008000 rw-s 00002000 00:31 7                          /mnt/a b\n\
        7f0000008000-7f0000009000 rw-s 00000000 00:31 8                          /mnt/c\n\
        7f0000009000-7f000000a000 rw-p 00000000 00:31 8                          /mnt/c\n\
        7f000000a000-7f000000b000 rw-s 00005000 00:31 8                          /mnt/c (deleted)\n\
        7ffd00000000-7ffd00001000 rw-p 00000000 00:00 0                          [stack]\n";

    #[test]
    fn an_msync_says_which_addresses() {
        let call =
            |number: i64| format!("{number} 0x7f0000001000 0x1001 0x4 0x0 0x0 0x0 0x1 0x2\n");
        assert_eq!(parse_call(&call(libc::SYS_msync)), Some(0x7f0000001000..0x7f0000003000));
        for other in
            [&call(libc::SYS_fdatasync), "running\n", "-1 0x1 0x2\n", "", "26 0x", "26 1 2"]
        {
            assert_eq!(parse_call(other), None, "{other}");
        }
        let endless = format!("{} 0x1000 0xffffffffffffffff", libc::SYS_msync);
        assert_eq!(parse_call(&endless), None);
    }

    #[test]
    fn the_part_of_the_file_is_what_is_mapped_there() {
        let find = |inode, addresses: Range<u64>| find_mapped(MAPS, inode, &addresses);
        assert_eq!(find(7, 0x7f0000001000..0x7f0000003000), Some(0x3000..0x5000));
        assert_eq!(find(7, 0x7f0000000000..0x7f0000009000), Some(0x2000..0xa000));
        assert_eq!(find(8, 0x7f0000008000..0x7f000000a000), Some(0..0x1000));
        // Two parts, of which the kernel asks one after the other.
        assert_eq!(find(8, 0x7f0000008000..0x7f000000b000), None);
        assert_eq!(find(9, 0x7f0000008000..0x7f000000b000), None);
        assert_eq!(find_mapped("nonsense\n\n1-2 rw-s\n", 7, &(0..8)), None);
    }
}
