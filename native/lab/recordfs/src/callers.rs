//! Who asks. A request has the number of its thread; process and name are looked up while the
//! thread waits for the answer, and are in the log once.
//!
//! A file of /proc that is open belongs to one thread: once that is gone nothing can be read from
//! it, whoever has the number then. So a name that was read there is the name of who asks now, and
//! is read each time: exec(2) and prctl(2) change it.
//!
//! A thread that asks from another place in its program has another number, too.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use diskproof_wire::crash_log::{Address, Operation, MAX_CALLER_NAME};
use rustix::fs::{openat, Mode, OFlags, CWD};

use crate::stacks::memo::Memos;
use crate::stacks::{Asking, Call, Stacks, Tell, Waiting};

/// Threads whose files are kept open; with more all of them are looked up anew.
const MOST: usize = 128;
/// Stacks that are told of all threads together; what comes later has none.
const MOST_STACKS: u32 = 1 << 16;

#[derive(Default)]
pub struct Callers {
    known: HashMap<u32, Known>,
    count: u32,
    /// None where nobody wants to know the place.
    pub stacks: Option<Stacks>,
    told_stacks: u32,
}

struct Known {
    comm: File,
    syscall: Option<File>,
    name: Name,
    /// None for the kernel's own threads.
    process: Option<u32>,
    /// The thread's number of itself.
    own: u32,
    /// In the log, by stack; that without one is the thread's wherever it is.
    numbers: HashMap<Box<[Address]>, u32>,
    memos: Memos,
}

type Name = ([u8; MAX_CALLER_NAME], usize);

impl Callers {
    /// The number of a thread at its place in the log, 0 when nobody knows it. `tell` logs who a
    /// new number is.
    pub fn find(&mut self, thread: u32, call: Call, tell: Tell<'_>) -> u32 {
        let is_known = |known: &Known| read_name(&known.comm) == Some(known.name);
        if thread == 0 || !self.known.get(&thread).is_some_and(is_known) && !self.learn(thread) {
            return 0;
        }
        self.number(thread, call, tell).unwrap_or(0)
    }

    fn number(&mut self, thread: u32, call: Call, tell: Tell<'_>) -> Option<u32> {
        let known = self.known.get_mut(&thread)?;
        let process = known.process?;
        let (mut frames, mut memo) = (Vec::new(), None);
        if let (Some(stacks), Some(syscall)) = (&mut self.stacks, &known.syscall) {
            if let Some(at) = Waiting::read(syscall, call) {
                if let Some(number) = known.memos.find(at) {
                    return Some(number);
                }
                let asking = Asking { process, thread, own: known.own };
                (frames, memo) = stacks.take(asking, at, tell);
            }
        }
        let number = self.number_of(thread, frames, tell)?;
        if let (Some(known), Some(memo)) = (self.known.get_mut(&thread), memo) {
            known.memos.keep(memo, number);
        }
        Some(number)
    }

    fn number_of(&mut self, thread: u32, mut frames: Vec<Address>, tell: Tell<'_>) -> Option<u32> {
        let known = self.known.get_mut(&thread)?;
        let process = known.process?;
        if let Some(number) = known.numbers.get(&frames[..]) {
            return Some(*number);
        }
        if self.told_stacks >= MOST_STACKS && !frames.is_empty() {
            frames.clear();
            if let Some(number) = known.numbers.get(&frames[..]) {
                return Some(*number);
            }
        }
        let number = self.count.checked_add(1)?;
        let name = Cow::Borrowed(&known.name.0[..known.name.1]);
        tell(number, &Operation::Caller { process, thread, name }).ok()?;
        self.count = number;
        if !frames.is_empty() {
            self.told_stacks += 1;
            tell(number, &Operation::Stack { frames: frames.clone() }).ok()?;
        }
        known.numbers.insert(frames.into(), number);
        Some(number)
    }

    fn learn(&mut self, thread: u32) -> bool {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.known.remove(&thread);
        let learned = Known::read(thread, self.stacks.is_some());
        learned.map(|known| self.known.insert(thread, known)).is_some()
    }
}

impl Known {
    fn read(thread: u32, with_stacks: bool) -> Option<Known> {
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
        let process = find_process(&status)?;
        let own = find_own_number(&status).unwrap_or(thread);
        let syscall = if with_stacks { open("syscall") } else { None };
        Some(Known {
            comm,
            syscall,
            name,
            process,
            own,
            numbers: HashMap::new(),
            memos: Memos::default(),
        })
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

/// A thread's number in the innermost of its namespaces.
fn find_own_number(status: &[u8]) -> Option<u32> {
    let status = String::from_utf8_lossy(status);
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// What was told of a new number.
    fn ask(callers: &mut Callers, thread: u32) -> (u32, Option<(u32, u32, Vec<u8>)>) {
        let mut told = None;
        let number = callers.find(thread, Call::Other, &mut |_, who| {
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
        assert_eq!(find_own_number(b"Pid:\t9\nNSpid:\t9\t4\t2\nNSpgid:\t1\n"), Some(2));
        assert_eq!(find_process(b"Name:\tsh\\nTgid:\t1\nTgid:\t7\nVmSize:\t1 kB\n"), Some(Some(7)));
    }

    #[test]
    fn more_than_are_kept_open_are_looked_up_anew() {
        let mut callers = Callers::default();
        let own = std::process::id();
        for number in 1..=MOST as u32 + 1 {
            let comm = File::open("/proc/self/comm").unwrap();
            let (name, process, syscall) = (([0; 64], 0), None, None);
            let known = Known {
                comm,
                syscall,
                name,
                process,
                own: 0,
                numbers: HashMap::new(),
                memos: Memos::default(),
            };
            callers.known.insert(number << 24, known);
        }
        assert_eq!(ask(&mut callers, own).0, 1);
        assert_eq!(callers.known.len(), 1);
    }
}
