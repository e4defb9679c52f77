//! Files that were opened, each once, on their way to who keeps them in order.

use crate::open_request::{find_in, find_of, open_found, Found, OpenRequest};
use crate::opens::OpenedFiles;
use crate::watched::{Key, Prior, Watched};
use rustix::fs::{access, statfs, Access, FileType};
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// `f_type` of file systems whose files are nothing but cached pages, from linux/magic.h:
/// tmpfs, ramfs, hugetlbfs; and of those whose files have none: proc, sysfs, cgroup, cgroup2.
const NO_DISK: [u64; 7] =
    [0x0102_1994, 0x8584_58f6, 0x958_458f6, 0x9fa0, 0x6265_6572, 0x27_e0eb, 0x6367_7270];

/// A file that was to be made and is not there after this long was not made.
const PATIENCE: Duration = Duration::from_secs(5);

const DEFAULT_AHEAD: u64 = 128 << 10;

/// Shared by the thread that hears of files and the one that keeps them in order.
pub struct Registry {
    opens: OpenedFiles,
    known: Mutex<HashSet<Key>>,
    inbox: Mutex<Vec<Watched>>,
    /// Files about to be made.
    not_yet: Mutex<Vec<NotYet>>,
    looking: Mutex<()>,
    hearing: Mutex<()>,
    devices: Mutex<HashMap<u64, Option<u64>>>,
    closing: Mutex<Option<Closing>>,
    unseen: AtomicU64,
}

struct NotYet {
    folder: OwnedFd,
    name: Vec<u8>,
    thread: u32,
    until: Instant,
}

/// A file system that is about to be unmounted: our descriptors on it would keep it busy.
pub struct Closing {
    pub device: u64,
    pub done: Sender<()>,
}

/// What a file's cached pages are when we first see it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Those of others.
    Theirs,
    /// About to be thrown away with the content.
    Truncated,
    /// The command's own: it just made the file.
    Made,
    /// So many of others, as the library saw.
    Reported(u64),
}

/// A thread that panicked leaves sets and lists that are whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Registry {
    /// # Errors
    /// No descriptors left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            opens: OpenedFiles::new()?,
            known: Mutex::default(),
            inbox: Mutex::default(),
            not_yet: Mutex::default(),
            looking: Mutex::default(),
            hearing: Mutex::default(),
            devices: Mutex::default(),
            closing: Mutex::default(),
            unseen: AtomicU64::new(0),
        })
    }

    pub fn take_new(&self) -> Vec<Watched> {
        std::mem::take(&mut *lock(&self.inbox))
    }

    pub fn take_closing(&self) -> Option<Closing> {
        lock(&self.closing).take()
    }

    pub fn forget(&self, key: Key) {
        lock(&self.known).remove(&key);
    }

    /// Number of files that we may not look at.
    pub fn unseen(&self) -> u64 {
        self.unseen.load(Ordering::Relaxed)
    }

    pub fn add_unseen(&self) {
        self.unseen.fetch_add(1, Ordering::Relaxed);
    }

    /// The socket for a program to tell through.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.opens.theirs()
    }

    /// To be called before the caller goes on: what is cached now is not its doing.
    pub fn add(&self, asked: &OpenRequest) {
        use rustix::io::Errno;
        self.add_told();
        let before = if asked.truncates() { Before::Truncated } else { Before::Theirs };
        match asked.find() {
            Ok(Found::There(found)) => self.add_found(&found, asked.thread, before),
            Ok(Found::NotYet(folder, name)) => {
                let until = Instant::now() + PATIENCE;
                lock(&self.not_yet).push(NotYet { folder, name, thread: asked.thread, until });
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(_) => self.add_unseen(),
        }
    }

    /// As `add`, for a file that is open already.
    pub fn add_open(&self, thread: u32, descriptor: i32) {
        self.add_told();
        match find_of(thread, descriptor) {
            Ok(found) => self.add_found(&found, thread, Before::Theirs),
            Err(_) => self.add_unseen(),
        }
    }

    /// Takes in all that was opened since; to be called often, and before names may change.
    pub fn catch_up(&self) {
        self.add_told();
        self.add_made();
    }

    /// What was told comes before anything that is seen from now on.
    fn add_told(&self) {
        let _hearing = lock(&self.hearing); // who waits here goes on when all was taken in
        while let Some(opened) = self.opens.take() {
            self.add_found(&opened.file, opened.process, Before::Reported(opened.cached));
        }
    }

    /// Looks up what was made since.
    fn add_made(&self) {
        let _looking = lock(&self.looking); // who waits here goes on when all were looked up
        let not_yet = std::mem::take(&mut *lock(&self.not_yet));
        for made in not_yet {
            match find_in(&made.folder, &made.name) {
                Ok(found) => self.add_found(&found, made.thread, Before::Made),
                Err(_) if Instant::now() < made.until => lock(&self.not_yet).push(made),
                Err(_) => {}
            }
        }
    }

    /// Files that the command inherits, such as a redirected standard input.
    pub fn add_inherited(&self) {
        for number in 0..3 {
            // SAFETY: only looked at; a closed number gives EBADF.
            let inherited = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
            self.add_found(&inherited, std::process::id(), Before::Theirs);
        }
    }

    /// Returns when no file on the file system at `asked` is watched any more.
    pub fn close_all(&self, asked: &OpenRequest) {
        self.add_told();
        let Ok(Found::There(found)) = asked.find() else { return };
        let Ok(facts) = rustix::fs::fstat(&found) else { return };
        let (done, closed) = channel();
        *lock(&self.closing) = Some(Closing { device: facts.st_dev, done });
        let _ = closed.recv_timeout(PATIENCE);
    }

    fn add_found(&self, found: &impl AsFd, thread: u32, before: Before) {
        let Ok(facts) = rustix::fs::fstat(found) else { return };
        let key = match FileType::from_raw_mode(facts.st_mode) {
            FileType::RegularFile => (facts.st_dev, facts.st_ino),
            FileType::BlockDevice => (u64::MAX, facts.st_rdev),
            _ => return,
        };
        let Some(ahead) = self.find_ahead(found, facts.st_dev) else { return };
        if before != Before::Made && !lock(&self.known).contains(&key) {
            self.add_made(); // perhaps under this very name
        }
        if !lock(&self.known).insert(key) {
            return;
        }
        let path = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
        let prior = match before {
            Before::Truncated if access(&path, Access::WRITE_OK).is_ok() => Prior::First(0),
            Before::Theirs | Before::Truncated => Prior::AsSeenNow,
            Before::Made => Prior::First(0),
            Before::Reported(pages) => Prior::First(pages),
        };
        match open_found(found).map(|file| Watched::new(file, key, prior, ahead)) {
            Ok(Ok(watched)) => lock(&self.inbox).push(watched.opened_by(thread)),
            _ => {
                self.add_unseen();
                self.forget(key);
            }
        }
    }

    /// Bytes that the kernel reads ahead on a device; None for files without a disk.
    fn find_ahead(&self, found: &impl AsFd, device: u64) -> Option<u64> {
        *lock(&self.devices).entry(device).or_insert_with(|| {
            let path = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
            let kind = statfs(path).ok()?.f_type;
            (!NO_DISK.contains(&u64::try_from(kind).unwrap_or(0))).then(|| read_ahead(device))
        })
    }
}

fn read_ahead(device: u64) -> u64 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string(format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb"));
    let kib: Option<u64> = text.ok().and_then(|text| text.trim().parse().ok());
    kib.map_or(DEFAULT_AHEAD, |kib| kib << 10)
}
