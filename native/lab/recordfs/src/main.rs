//! `diskproof-recordfs BACKING MOUNTPOINT --log FILE`: a FUSE file system over a directory that
//! logs every change, in order, with its data and its times. `docs/recordfs.md` says what it
//! records, `docs/crash-log.md` how.

/// A line on stderr. Unlike `eprintln!` it goes on when that is closed, or on the disk that is
/// full.
macro_rules! complain {
    ($($word:tt)*) => {{
        let line = format!("diskproof-recordfs: {}\n", format_args!($($word)*));
        let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    }};
}

mod acks;
mod answers;
mod attributes;
mod background;
mod base;
mod buffer;
mod callers;
mod clock;
mod crew;
mod data;
mod directories;
mod durable;
mod effects;
mod filesystem;
mod handles;
mod inodes;
mod log;
mod mounting;
mod msync;
mod names;
mod opening;
mod places;
mod ranges;
mod recorder;
mod stacks;
mod tree;
mod writeback;

use std::fs::File;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;

use clap::Parser;
use diskproof_rights::CapabilitySet;
use diskproof_session::Signals;
use diskproof_wire::crash_log::ACK_NAME;
use fuser::{Config, MountOption, Session, SessionACL};
use rustix::process::{geteuid, set_parent_process_death_signal, Signal};

use crate::acks::Acks;
use crate::background::Starter;
use crate::crew::Crew;
use crate::inodes::Inodes;
use crate::log::Log;
use crate::mounting::MountGuard;
use crate::recorder::Recorder;
use crate::stacks::symbols;

/// Shows BACKING at MOUNTPOINT and logs every change made there until it is unmounted.
#[derive(Parser)]
#[command(name = "diskproof-recordfs", version)]
struct Options {
    /// The directory that holds the files; nobody else may change it meanwhile
    backing: PathBuf,
    /// An empty directory
    mountpoint: PathBuf,
    /// The log; must not exist yet, nor be inside either directory
    #[arg(long, value_name = "FILE")]
    log: PathBuf,
    /// Take acknowledgements, one a line, from an open descriptor (a number) or from a Unix socket
    /// that is made here
    #[arg(long, value_name = "FD|SOCKET")]
    acks: Option<String>,
    /// Stay in the foreground; without it the command returns when the mount is there
    #[arg(long)]
    foreground: bool,
    /// Requests that wait for the disk at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    threads: u16,
    /// Let the kernel cache files opened without O_DIRECT, as kernels before 6.6 do in any case
    #[arg(long)]
    page_cache: bool,
    /// Note which thread of which process asked for each change, and of which part msync was
    #[arg(long)]
    callers: bool,
    /// Note where in its program each caller was
    #[arg(long, requires = "callers")]
    stacks: bool,
}

/// Threads that take requests from the kernel: one may wait for the disk, the other goes on.
const READERS: usize = 2;

/// What root needs to do in the backing as others asked: change owners, modes and the files of
/// everybody, and keep their bits. Device nodes and attributes of the kernel's own are not made.
const FOR_FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETFCAP);

/// What root needs to see in which system call another root waits, and where it has files mapped.
const FOR_CALLERS: CapabilitySet = CapabilitySet::SYS_PTRACE;

/// Far above a million files and every request that the kernel may have under way.
const MOST_MEMORY: u64 = 4 << 30;

/// Descriptors that are of use.
const MOST_OPEN: u64 = 1 << 20;

/// They end the recording in order.
const ENDING: [Signal; 3] = [Signal::TERM, Signal::INT, Signal::HUP];

/// Why the recording ended.
enum Ended {
    Signal,
    Unmounted,
}

fn main() -> ExitCode {
    let done = match std::env::args_os().nth(1) {
        Some(word) if word == symbols::WORD => symbols::serve(),
        _ => record(&Options::parse()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn record(options: &Options) -> io::Result<()> {
    let (backing, mountpoint) = check_places(options)?;
    let starter = Starter::begin(options.foreground)?;
    if options.foreground {
        set_parent_process_death_signal(Some(Signal::TERM))?;
    }
    diskproof_rights::limit(MOST_MEMORY)?;
    let mut guardian = MountGuard::start(&mountpoint)?;
    let signals = Signals::block(&ENDING)?;
    let most_open = raise_open_files()?;
    rustix::process::umask(rustix::fs::Mode::empty());
    let log = begin_log(options, &backing)?;
    let inodes = Inodes::new(rustix::io::fcntl_dupfd_cloexec(&backing, 0)?, most_open)?;
    let parts = (backing, inodes);
    let recorded = serve(options, parts, &mountpoint, &log, &mut guardian, starter, signals);
    match &recorded {
        Ok(()) => guardian.dismiss()?,
        Err(error) => {
            log.end(&format!("failed: {error}"));
            let _ = guardian.take_away();
        }
    }
    recorded
}

/// Mounts, answers until the end, unmounts, completes the log.
fn serve(
    options: &Options,
    (backing, inodes): (OwnedFd, Inodes),
    mountpoint: &Path,
    log: &Arc<Log>,
    guardian: &mut MountGuard,
    starter: Starter,
    signals: Signals,
) -> io::Result<()> {
    base::log_base(log, &inodes, &backing)?;
    let (tell, told) = channel();
    let (crew, workers) = Crew::new(READERS);
    let recorder = Recorder::new(log.clone(), inodes, crew, !options.page_cache, tell.clone());
    let session =
        Session::new(recorder, mountpoint, &session_config()).map_err(mounting::explain)?;
    guardian.watch(mountpoint)?;
    if options.stacks {
        log.note_stacks(mounting::find_device(mountpoint));
    }
    // Threads that are started after this have no more either.
    let for_callers = if options.callers { FOR_CALLERS } else { CapabilitySet::empty() };
    diskproof_rights::keep(FOR_FILES.union(for_callers))?;
    let acks = start_acks(options.acks.as_deref(), log)?;
    tell_of_signals(signals, tell)?;
    workers.start(options.threads.into())?;
    // Dropped, it would unmount by path, even when its own mount is gone and another is there. The
    // recorder tells of its end.
    std::mem::forget(session.spawn()?);
    starter.ready()?;
    let why = wait_for_end(&told, guardian)?;
    if let Some(acks) = acks {
        acks.finish();
    }
    if let Err(error) = log.tell_lines() {
        complain!("no source lines were looked up: {error}");
    }
    log.end(why);
    Ok(())
}

fn tell_of_signals(signals: Signals, tell: Sender<Ended>) -> io::Result<()> {
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if signals.wait().is_ok() {
            let _ = tell.send(Ended::Signal);
        }
    })?;
    Ok(())
}

/// After a signal the mount goes, and the requests under way are answered if nobody keeps files
/// open.
fn wait_for_end(told: &Receiver<Ended>, guardian: &mut MountGuard) -> io::Result<&'static str> {
    match told.recv().map_err(io::Error::other)? {
        Ended::Unmounted => Ok("unmounted"),
        Ended::Signal => guardian.take_away().map(|()| "ended by a signal"),
    }
}

fn session_config() -> Config {
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName(mounting::SOURCE.into()), MountOption::DefaultPermissions];
    // Root records for others too; fusermount lets nobody else do that unless its configuration
    // says so.
    config.acl = if geteuid().is_root() { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(READERS);
    config.clone_fd = true;
    config
}

/// The backing, open before the mount may hide it, and the mountpoint's full path.
fn check_places(options: &Options) -> io::Result<(OwnedFd, PathBuf)> {
    let named = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    let real = |path: &Path| path.canonicalize().map_err(|error| named(path, error));
    let (backing, mountpoint) = (real(&options.backing)?, real(&options.mountpoint)?);
    let log_folder = options.log.parent().filter(|folder| !folder.as_os_str().is_empty());
    let log = real(log_folder.unwrap_or(Path::new(".")))?;
    for (inner, outer, what) in [
        (&log, &backing, "the log is inside the backing"),
        (&log, &mountpoint, "the log is inside the mountpoint"),
        (&mountpoint, &backing, "the mountpoint is inside the backing"),
        (&backing, &mountpoint, "the backing is inside the mountpoint"),
    ] {
        if inner.starts_with(outer) {
            return Err(io::Error::other(what));
        }
    }
    let entries = mountpoint.read_dir().map_err(|error| named(&mountpoint, error))?;
    if entries.count() > 0 {
        return Err(io::Error::other(format!("{} is not empty", mountpoint.display())));
    }
    let open = File::open(&backing).map_err(|error| named(&backing, error))?;
    if !open.metadata()?.is_dir() {
        return Err(io::Error::other(format!("{} is no directory", backing.display())));
    }
    if backing.join(ACK_NAME).symlink_metadata().is_ok() {
        return Err(io::Error::other(format!("the backing holds a {}", ACK_NAME)));
    }
    Ok((open.into(), mountpoint))
}

fn begin_log(options: &Options, backing: &OwnedFd) -> io::Result<Arc<Log>> {
    let header = base::read_header(backing)?;
    let log = Log::create(&options.log, &header, options.callers).map_err(|error| {
        io::Error::new(error.kind(), format!("{}: {error}", options.log.display()))
    })?;
    Ok(Arc::new(log))
}

/// A descriptor is followed, a socket's every connection is.
fn start_acks(acks: Option<&str>, log: &Arc<Log>) -> io::Result<Option<Acks>> {
    match acks.map(|text| (text, text.parse::<RawFd>())) {
        None => Ok(None),
        Some((_, Ok(number))) => {
            if number < 3 {
                return Err(io::Error::other("--acks takes a descriptor from 3 on"));
            }
            rustix::io::fcntl_getfd(
                // SAFETY: only asked whether it is open; the kernel says EBADF if not.
                unsafe { std::os::fd::BorrowedFd::borrow_raw(number) },
            )
            .map_err(|error| io::Error::other(format!("--acks {number}: {error}")))?;
            // SAFETY: the caller has given us this descriptor, and nothing here has used it.
            Acks::follow(log.clone(), unsafe { File::from_raw_fd(number) }).map(Some)
        }
        Some((path, Err(_))) => {
            let listener = UnixListener::bind(path)
                .map_err(|error| io::Error::new(error.kind(), format!("--acks {path}: {error}")))?;
            Acks::serve(log.clone(), listener).map(Some)
        }
    }
}

/// As many files as may be open, of which half are for what programs open: those that the kernel
/// remembers are found by their names when there are more. Only root may raise the hard limit.
fn raise_open_files() -> io::Result<usize> {
    use rustix::process::{getrlimit, setrlimit, Resource, Rlimit};
    let hard = getrlimit(Resource::Nofile).maximum;
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok();
    let most = most.and_then(|text| text.trim().parse().ok()).or(hard);
    let to = |limit| setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit });
    to(most).or_else(|_| to(hard))?;
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(MOST_OPEN);
    Ok((limit.min(MOST_OPEN) / 2) as usize)
}
