//! When syncs are dropped: below some folders only, while a file exists, after the first few.

use std::ffi::OsStr;
use std::fs::{canonicalize, read_link};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use diskproof_supervise::target::read_string;
use diskproof_supervise::Notification;

use crate::page::Page;

pub struct Scope {
    /// Empty: everywhere.
    only: Vec<PathBuf>,
    toggle: Option<PathBuf>,
}

impl Scope {
    /// # Errors
    /// A folder of `only` is not there.
    pub fn new(only: &[PathBuf], toggle: Option<&Path>) -> Result<Scope, String> {
        let each = only.iter().map(|path| {
            canonicalize(path).map_err(|error| format!("--only {}: {error}", path.display()))
        });
        let toggle =
            toggle.map(std::path::absolute).transpose().map_err(|error| error.to_string())?;
        Ok(Scope { only: each.collect::<Result<_, _>>()?, toggle })
    }

    pub fn toggle(&self) -> Option<&Path> {
        self.toggle.as_deref()
    }

    pub fn is_everywhere(&self) -> bool {
        self.only.is_empty()
    }

    /// Whether the preloaded library may drop without asking.
    pub fn is_simple(&self, page: &Page) -> bool {
        self.only.is_empty() && self.toggle.is_none() && page.after.load(Relaxed) <= 0
    }

    pub fn is_on(&self) -> bool {
        self.toggle.as_deref().is_none_or(|file| file.symlink_metadata().is_ok())
    }

    /// Whether this sync is one of the first, which are let through.
    pub fn is_early(&self, page: &Page) -> bool {
        page.after.load(Relaxed) > 0 && page.after.fetch_sub(1, Relaxed) > 0
    }

    pub fn holds_file(&self, file: BorrowedFd) -> bool {
        self.is_everywhere()
            || read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
                .is_ok_and(|path| self.holds(&path))
    }

    /// The file that an open names, which need not be there yet.
    pub fn holds_opened(&self, call: &Notification, folder: Option<i32>, path: u64) -> bool {
        self.is_everywhere() || self.opened(call, folder, path).is_ok_and(|path| self.holds(&path))
    }

    /// The file behind an address.
    pub fn holds_mapped(&self, thread: u32, address: u64) -> bool {
        self.is_everywhere()
            || std::fs::read(format!("/proc/{thread}/maps"))
                .is_ok_and(|maps| find_mapped(&maps, address).is_some_and(|path| self.holds(path)))
    }

    fn holds(&self, path: &Path) -> bool {
        self.only.iter().any(|folder| path.starts_with(folder))
    }

    fn opened(&self, call: &Notification, folder: Option<i32>, path: u64) -> io::Result<PathBuf> {
        let thread = call.thread;
        let text = read_string(thread, path, libc::PATH_MAX as usize)?;
        let path = Path::new(OsStr::from_bytes(&text));
        let start = match (path.strip_prefix("/"), folder) {
            (Ok(rest), _) => PathBuf::from(format!("/proc/{thread}/root")).join(rest),
            (Err(_), Some(fd)) if fd != libc::AT_FDCWD => {
                PathBuf::from(format!("/proc/{thread}/fd/{fd}")).join(path)
            }
            _ => PathBuf::from(format!("/proc/{thread}/cwd")).join(path),
        };
        canonicalize(&start).or_else(|error| match (start.parent(), start.file_name()) {
            (Some(parent), Some(name)) => Ok(canonicalize(parent)?.join(name)),
            _ => Err(error),
        })
    }
}

/// The path in the line of /proc/PID/maps whose range holds the address.
fn find_mapped(maps: &[u8], address: u64) -> Option<&Path> {
    let line = maps.split(|byte| *byte == b'\n').find(|line| {
        let range = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        let range = std::str::from_utf8(range).ok().and_then(|range| range.split_once('-'));
        range.is_some_and(|(from, to)| {
            let number = |text| u64::from_str_radix(text, 16).ok();
            number(from).is_some_and(|from| from <= address)
                && number(to).is_some_and(|to| address < to)
        })
    })?;
    let path = line.iter().position(|byte| *byte == b'/')?;
    Some(Path::new(OsStr::from_bytes(&line[path..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &[u8] = b"00400000-00402000 r-xp 00000000 fe:00 123    /usr/bin/x y\n\
        7f0000000000-7f0000001000 rw-s 00000000 fe:00 9  /data/my file (deleted)\n\
        7fff00000000-7fff00021000 rw-p 00000000 00:00 0          [stack]\nnonsense\n";

    #[test]
    fn a_mapped_file_is_found_by_address() {
        let found = |address| find_mapped(MAPS, address).map(|path| path.to_str().expect("text"));
        assert_eq!(found(0x40_1fff), Some("/usr/bin/x y"));
        assert_eq!(found(0x40_2000), None);
        assert_eq!(found(0x7f00_0000_0000), Some("/data/my file (deleted)"));
        assert_eq!(found(0x7fff_0000_0000), None);
        assert_eq!(find_mapped(b"\xff-\xff\n-\n\n", 0), None);
    }

    #[test]
    fn a_folder_holds_what_is_below_it_and_not_its_namesakes() {
        let scope = Scope::new(&["/usr".into()], None).expect("there");
        assert!(scope.holds(Path::new("/usr/bin")) && scope.holds(Path::new("/usr")));
        assert!(!scope.holds(Path::new("/usr2/bin")));
        assert!(Scope::new(&["/not/there".into()], None).is_err());
    }
}
