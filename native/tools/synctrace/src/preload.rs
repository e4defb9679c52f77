//! A library inside the command times the calls and leaves them in shared memory: for programs that
//! are linked dynamically and keep their environment. It marks the calls it tells of, so that a
//! filter for the other programs lets them pass.

mod reader;
mod shared;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::{env, process};

use diskproof_supervise::{Action, Call, Command, Condition, Rule, Test};

use crate::message::Message;
use page::{MARK, VARIABLE};
pub use reader::Reading;
use shared::Shared;

#[allow(dead_code, reason = "some of it is for the library")]
#[path = "../../synctrace-preload/src/page.rs"]
mod page;

pub const LIBRARY: &str = "libdiskproof_sync_trace.so";
const LIST: &str = "LD_PRELOAD";

/// The library and the memory to share with it; nothing runs yet.
pub struct Preload {
    library: PathBuf,
    shared: Shared,
}

impl Preload {
    /// # Errors
    /// The library is not where it can be used; no memory.
    pub fn prepare() -> io::Result<Preload> {
        let library = find_library().ok_or_else(|| {
            let why = format!("{LIBRARY} is not beside us, in a path without ':', ' ' and '$'");
            io::Error::new(io::ErrorKind::NotFound, why)
        })?;
        Ok(Preload { library, shared: Shared::new()? })
    }

    /// The command and what it starts will load the library.
    pub fn enter(&self, command: &mut Command) {
        command.set_variable(LIST, append(env::var_os(LIST), self.library.as_os_str()));
        // While we live; nothing has to be removed after us.
        let page = format!("/proc/{}/fd/{}", process::id(), self.shared.fd.as_raw_fd());
        command.set_variable(VARIABLE, OsString::from(page));
    }

    /// Read in a thread of its own.
    pub fn start(self, out: Sender<Message>) -> io::Result<Reading> {
        Reading::start(self.shared, out)
    }
}

fn find_library() -> Option<PathBuf> {
    let path = diskproof_session::find_part(LIBRARY)?;
    let separates = |byte: &u8| matches!(byte, b':' | b' ' | b'$');
    let usable = !path.as_os_str().as_bytes().iter().any(separates);
    usable.then_some(path)
}

/// Behind the user's own libraries, which go on working: what they call in turn is ours.
fn append(before: Option<OsString>, library: &OsStr) -> OsString {
    let mut list = before.filter(|before| !before.is_empty()).unwrap_or_default();
    if !list.is_empty() {
        list.push(":");
    }
    list.push(library);
    list
}

/// Goes before the other rules of a call: what the library tells of passes.
pub fn let_marked_pass(call: Call) -> Rule {
    let halves = [MARK as u32, (MARK >> 32) as u32].map(Test::Equals);
    let when = vec![Condition::low(4, halves[0]), Condition::high(4, halves[1])];
    Rule { call, when, action: Action::Allow }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_libraries_come_first() {
        let ours = OsStr::new("/x/ours.so");
        assert_eq!(append(None, ours), "/x/ours.so");
        assert_eq!(append(Some("".into()), ours), "/x/ours.so");
        assert_eq!(append(Some("a.so b.so".into()), ours), "a.so b.so:/x/ours.so");
    }
}
