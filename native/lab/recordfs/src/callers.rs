//! Who asks. A request has the number of its thread; process and name are looked up while the
//! thread waits for the answer, and are in the log once.
//!
//! A file of /proc that is open belongs to one thread: once that is gone nothing can be read from
//! it, whoever has the number then. So a name that was read there is the name of who asks now, and
//! is read each time: exec(2) and prctl(2) change it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use diskproof_wire::crash_log::{Operation, MAX_CALLER_NAME};
use rustix::fs::{openat, Mode, OFlags, CWD};
use rustix::io::Errno;

/// Threads whose files are kept open; with more all of them are looked up anew.
const MOST: usize = 128;

#[derive(Default)]
pub struct Callers {
    known: HashMap<u32, Known>,
    count: u32,
}

struct Known {
    comm: File,
    name: Name,
    /// In the log; 0 for the kernel's own threads.
    number: u32,
}

type Name = ([u8; MAX_CALLER_NAME], usize);

impl Callers {
    /// The number of a thread in the log, 0 when nobody knows it. `tell` logs who a new number is.
    pub fn find(
        &mut self,
        thread: u32,
        tell: impl FnOnce(u32, &Operation<'_>) -> Result<(), Errno>,
    ) -> u32 {
        match self.known.get(&thread) {
            _ if thread == 0 => 0,
            Some(known) if read_name(&known.comm) == Some(known.name) => known.number,
            _ => self.learn(thread, tell).unwrap_or(0),
        }
    }

    fn learn(
        &mut self,
        thread: u32,
        tell: impl FnOnce(u32, &Operation<'_>) -> Result<(), Errno>,
    ) -> Option<u32> {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.remove(&thread);
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, format!("/proc/{thread}"), folder, Mode::empty()).ok()?;
        let open = |name| {
            let file = openat(&folder, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
            file.map(File::from).ok()
        };
        let mut status = Vec::new();
        open("status")?.read_to_end(&mut status).ok()?;
        let comm = open("comm")?;
        let name = read_name(&comm)?;
        let number = match find_process(&status)? {
            None => 0,
            Some(process) => {
                let number = self.count.checked_add(1)?;
                let text = Cow::Borrowed(&name.0[..name.1]);
                tell(number, &Operation::Caller { process, thread, name: text }).ok()?;
                self.count = number;
                number
            }
        };
        self.known.insert(thread, Known { comm, name, number });
        Some(number)
    }
}

fn read_name(comm: &File) -> Option<Name> {
    let mut name = [0; MAX_CALLER_NAME];
    let length = comm.read_at(&mut name, 0).ok()?;
    let ended = length - usize::from(name[..length].ends_with(b"\n"));
    name[ended..].fill(0);
    Some((name, ended))
}

/// The process of a thread; Some(None) for the kernel's own, which have no memory. A name in there
/// ends no line: the kernel escapes it.
fn find_process(status: &[u8]) -> Option<Option<u32>> {
    let status = String::from_utf8_lossy(status);
    let value = |key| status.lines().find_map(|line| line.strip_prefix(key));
    let process = value("Tgid:")?.trim().parse().ok()?;
    Some(value("VmSize:").map(|_| process))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// What was told of a new number.
    fn ask(callers: &mut Callers, thread: u32) -> (u32, Option<(u32, u32, Vec<u8>)>) {
        let mut told = None;
        let number = callers.find(thread, |_, who| {
            if let Operation::Caller { process, thread, name } = who {
                told = Some((*process, *thread, name.to_vec()));
            }
            Ok(())
        });
        (number, told)
    }

    fn gettid() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get() as u32
    }

    #[test]
    fn a_thread_is_told_once_for_each_of_its_names() {
        let mut callers = Callers::default();
        let (name, named) = channel();
        let (go, wait) = channel::<()>();
        let thread = std::thread::Builder::new().name("first".into()).spawn(move || {
            name.send(gettid()).unwrap();
            wait.recv().unwrap();
            rustix::thread::set_name(c"second").unwrap();
            name.send(0).unwrap();
            wait.recv().unwrap();
        });
        let other = named.recv().unwrap();
        let process = std::process::id();
        assert_eq!(ask(&mut callers, other), (1, Some((process, other, b"first".to_vec()))));
        assert_eq!(ask(&mut callers, other), (1, None));
        go.send(()).unwrap();
        named.recv().unwrap();
        assert_eq!(ask(&mut callers, other), (2, Some((process, other, b"second".to_vec()))));
        let (own, told) = ask(&mut callers, gettid());
        assert_eq!((own, told.unwrap().1), (3, gettid()));
        go.send(()).unwrap();
        thread.unwrap().join().unwrap();
        // The kernel takes the thread away a little after it has been joined.
        let known = &callers.known[&other].comm;
        while read_name(known).is_some() {
            std::thread::yield_now();
        }
        assert_eq!(ask(&mut callers, other), (0, None));
    }

    #[test]
    fn nobody_and_the_kernel_are_not_named() {
        let mut callers = Callers::default();
        assert_eq!(ask(&mut callers, 0), (0, None));
        assert_eq!(find_process(b"Name:\tkworker/0:1\nTgid:\t7\nPid:\t7\n"), Some(None));
        assert_eq!(find_process(b"Name:\tsh\\nTgid:\t1\nTgid:\t7\nVmSize:\t1 kB\n"), Some(Some(7)));
    }

    #[test]
    fn more_than_are_kept_open_are_looked_up_anew() {
        let mut callers = Callers::default();
        let own = std::process::id();
        for number in 1..=MOST as u32 + 1 {
            let comm = File::open("/proc/self/comm").unwrap();
            callers.known.insert(number << 24, Known { comm, name: ([0; 64], 0), number: 0 });
        }
        assert_eq!(ask(&mut callers, own).0, 1);
        assert_eq!(callers.known.len(), 1);
    }
}
