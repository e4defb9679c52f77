//! The command's environment: the library to preload, before the user's own.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

pub const LIBRARY: &str = "libdiskproof_sync_drop.so";

/// The library of our own installation, if it is there and its path can stand in LD_PRELOAD.
pub fn find_library() -> Option<PathBuf> {
    let path = diskproof_session::find_part(LIBRARY)?;
    let separates = |byte: &u8| matches!(byte, b':' | b' ' | b'$');
    let usable = !path.as_os_str().as_bytes().iter().any(separates);
    usable.then_some(path)
}

/// LD_PRELOAD with the library first and what was there behind it.
pub fn preload(library: &OsStr, before: Option<OsString>) -> OsString {
    let mut list = library.to_owned();
    if let Some(before) = before.filter(|before| !before.is_empty()) {
        list.push(":");
        list.push(before);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_libraries_stay() {
        let ours = OsStr::new("/x/ours.so");
        assert_eq!(preload(ours, None), "/x/ours.so");
        assert_eq!(preload(ours, Some("".into())), "/x/ours.so");
        assert_eq!(preload(ours, Some("a.so b.so".into())), "/x/ours.so:a.so b.so");
    }
}
