//! What /proc says about a thread: its files, its bytes, its name.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::event::{Call, Target};

pub const EVERYTHING: &str = "(all file systems)";
pub const UNNAMED: &str = "(closed before it was looked up)";
pub const NO_FILE: &str = "(not an open file)";
const EBADF: i64 = -(libc::EBADF as i64);

/// The file that a call is about, from its first argument; None when /proc no longer knows it.
pub fn find_file(tid: i32, call: Call, argument: u64) -> Option<Arc<str>> {
    match call.target() {
        Target::Everything => Some(EVERYTHING.into()),
        Target::Descriptor => find_descriptor(tid, argument as u32 as i32),
        Target::Address => find_mapping(tid, argument),
    }
}

/// What to call a file that could not be found, knowing how the call ended.
pub fn unnamed(result: i64) -> Arc<str> {
    if result == EBADF { NO_FILE } else { UNNAMED }.into()
}

fn find_descriptor(tid: i32, fd: i32) -> Option<Arc<str>> {
    let path = fs::read_link(format!("/proc/{tid}/fd/{fd}")).ok()?;
    Some(String::from_utf8_lossy(path.as_os_str().as_bytes()).into())
}

fn find_mapping(tid: i32, address: u64) -> Option<Arc<str>> {
    let maps = fs::read(format!("/proc/{tid}/maps")).ok()?;
    parse_mapping(&String::from_utf8_lossy(&maps), address).map(Arc::from)
}

/// The name of the mapping around an address, from the text of /proc/PID/maps.
fn parse_mapping(maps: &str, address: u64) -> Option<&str> {
    let around = |line: &&str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        range.is_some_and(|(from, to)| {
            number(from).is_some_and(|from| from <= address)
                && number(to).is_some_and(|to| address < to)
        })
    };
    let line = maps.lines().find(around)?;
    // Five fields, then the path, which may hold blanks.
    let mut rest = line;
    for _ in 0..5 {
        rest = rest.split_once(' ')?.1.trim_start_matches(' ');
    }
    Some(if rest.is_empty() { "(anonymous memory)" } else { rest })
}

/// Whether each write to a descriptor waits for the disk (O_SYNC, O_DSYNC).
pub fn find_sync_flags(tid: i32, fd: i32) -> Option<bool> {
    let text = fs::read_to_string(format!("/proc/{tid}/fdinfo/{fd}")).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let flags = i32::from_str_radix(flags.trim(), 8).ok()?;
    Some(flags & libc::O_DSYNC != 0)
}

/// Bytes that a process passed to write calls, to files, pipes and sockets alike.
pub fn find_written(pid: i32) -> Option<u64> {
    parse_written(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

/// The same from the first bytes of that file.
pub fn parse_written(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
}

pub fn find_process_name(pid: i32) -> Option<Arc<str>> {
    let name = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(&name).trim_end().into())
}

/// A field of /proc/PID/status, such as `Tgid` or `TracerPid`.
pub fn find_status(pid: i32, field: &str) -> Option<i32> {
    let text = fs::read(format!("/proc/{pid}/status")).ok()?;
    let text = String::from_utf8_lossy(&text);
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')?.trim().parse().ok())
}

/// The threads that a process has now.
pub fn find_threads(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A process and all that it has started and that it still has as children.
pub fn find_family(pid: i32) -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let parents: Vec<_> = pids.filter_map(|pid| Some((pid, find_status(pid, "PPid")?))).collect();
    let mut family = vec![pid];
    let mut done = 0;
    while let Some(parent) = family.get(done).copied() {
        let new = parents.iter().filter(|(child, of)| *of == parent && !family.contains(child));
        let new: Vec<_> = new.map(|(child, _)| *child).collect();
        family.extend(new);
        done += 1;
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/a b\n\
                        7f00-8000 rw-p 00000000 00:00 0 \n";

    #[test]
    fn a_mapping_has_its_path_with_blanks() {
        assert_eq!(parse_mapping(MAPS, 0x400010), Some("/usr/bin/a b"));
        assert_eq!(parse_mapping(MAPS, 0x7f00), Some("(anonymous memory)"));
        assert_eq!(parse_mapping(MAPS, 0x8000), None);
    }

    #[test]
    fn maps_of_any_text_are_read() {
        bolero::check!(name = "places").for_each(|text: &[u8]| {
            let text = String::from_utf8_lossy(text);
            for address in [0, 0x7f00, 0x0040_0010, u64::MAX] {
                parse_mapping(&text, address);
            }
            parse_written(&text);
        });
    }

    #[test]
    fn our_own_bytes_and_files_are_known() {
        let pid = std::process::id() as i32;
        assert!(find_written(pid).is_some());
        assert!(find_threads(pid).contains(&pid));
        assert_eq!(find_status(pid, "Tgid"), Some(pid));
        assert_eq!(find_sync_flags(pid, -1), None);
    }
}
