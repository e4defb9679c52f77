//! ptrace(2), for those who may not read tracepoints. A command gets a seccomp filter, which stops
//! it at the calls that matter only; a running process stops at every system call: slow, but exact.

mod hold;
mod sys;

use std::collections::HashMap;
use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use diskproof_supervise::target::Descriptors;
use diskproof_supervise::{start_plain, Child, Command};
use rustix::process::{getpid, kill_process, waitpid, Pid, Signal, WaitOptions, WaitStatus};

use crate::callers::Callers;
use crate::clock::now;
use crate::event::{Call, Event, Target};
use crate::message::Message;
use crate::paths::Paths;
use crate::places;
use sys::{Edge, Stop};

/// Interrupts our thread while it waits.
const INTERRUPT: libc::c_int = libc::SIGURG;
const RETRY: Duration = Duration::from_millis(1);
/// Threads may start others while we follow them one by one.
const MOST_ROUNDS: usize = 100;

pub use hold::{hold, Stops, HOLD};

/// No exit code yet.
const RUNNING: i32 = -1;

/// The thread that traces.
pub struct Tracing {
    thread: JoinHandle<()>,
    shared: Arc<Shared>,
}

struct Shared {
    stop: AtomicBool,
    code: AtomicI32,
    ended: AtomicBool,
}

impl Tracing {
    /// Returns when the threads of the processes are followed.
    ///
    /// # Errors
    /// Why the first process cannot be followed.
    pub fn attach(family: Vec<i32>, writes: bool, out: Sender<Message>) -> io::Result<Tracing> {
        let (_, tracing) = Tracing::start(writes, out, false, move |tracer| {
            tracer.follow(&family)?;
            Ok(())
        })?;
        Ok(tracing)
    }

    /// Start a command, found by its words behind our own name.
    pub fn launch(
        command: Command,
        writes: bool,
        out: Sender<Message>,
    ) -> io::Result<(Child, Tracing)> {
        Tracing::start(writes, out, true, move |tracer| {
            let child = start_plain(&command).map_err(io::Error::other)?;
            let followed = tracer.follow_held(child.pid());
            if followed.is_err() {
                let _ = child.signal(Signal::KILL);
                let _ = child.wait();
            }
            followed?;
            Ok(child)
        })
    }

    /// What begins the trace runs in the thread that traces: the kernel lets no other one go on
    /// with it.
    fn start<T: Send + 'static>(
        writes: bool,
        out: Sender<Message>,
        filtered: bool,
        begin: impl FnOnce(&mut Tracer) -> io::Result<T> + Send + 'static,
    ) -> io::Result<(T, Tracing)> {
        interruptible()?;
        hear_of_ends_only();
        let shared = Arc::new(Shared {
            stop: AtomicBool::new(false),
            code: AtomicI32::new(RUNNING),
            ended: AtomicBool::new(false),
        });
        let own = shared.clone();
        let (told, tell) = mpsc::channel();
        let thread = thread::Builder::new().spawn(move || {
            let (threads, lookout) = (HashMap::new(), Lookout::default());
            let mut tracer =
                Tracer { threads, writes, filtered, root: 0, lookout, shared: own, out };
            let begun = begin(&mut tracer);
            let works = begun.is_ok();
            let _ = told.send(begun);
            if works {
                tracer.run();
            }
        })?;
        let begun = tell.recv().map_err(io::Error::other)??;
        Ok((begun, Tracing { thread, shared }))
    }

    /// The exit code of the command, when all that it started has ended.
    pub fn find_code(&self) -> Option<u8> {
        let ended = self.shared.ended.load(Ordering::SeqCst);
        u8::try_from(self.shared.code.load(Ordering::SeqCst)).ok().filter(|_| ended)
    }

    /// Let go of all threads.
    pub fn finish(self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        while !self.thread.is_finished() {
            // SAFETY: the thread is not joined yet, so its handle is valid.
            unsafe { libc::pthread_kill(self.thread.as_pthread_t(), INTERRUPT) };
            thread::sleep(RETRY);
        }
        let _ = self.thread.join();
    }
}

/// Without a handler that restarts nothing, a waiting thread could not be told to end.
fn interruptible() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: an all-zero sigaction is valid; the handler does nothing.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(INTERRUPT, &action, std::ptr::null_mut())
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// No signal for each of the many stops.
fn hear_of_ends_only() {
    // SAFETY: an all-zero sigaction is valid and means the default.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_flags = libc::SA_NOCLDSTOP;
        libc::sigaction(libc::SIGCHLD, &action, std::ptr::null_mut());
    }
}

struct Entry {
    call: Call,
    start: u64,
    file: Option<Arc<str>>,
    written: Option<u64>,
}

/// A thread that we follow.
struct Followed {
    pid: i32,
    entry: Option<Entry>,
    leaving: bool,
}

struct Tracer {
    threads: HashMap<i32, Followed>,
    writes: bool,
    filtered: bool,
    /// The command, or 0.
    root: i32,
    lookout: Lookout,
    shared: Arc<Shared>,
    out: Sender<Message>,
}

impl Tracer {
    /// # Errors
    /// When the first process cannot be followed; its descendants may have gone or belong to
    /// others.
    fn follow(&mut self, family: &[i32]) -> io::Result<()> {
        for (index, pid) in family.iter().enumerate() {
            let followed = self.follow_process(*pid);
            if index == 0 {
                followed?;
            }
        }
        Ok(())
    }

    /// A command that stops itself until it is followed.
    fn follow_held(&mut self, pid: Pid) -> io::Result<()> {
        self.root = pid.as_raw_nonzero().get();
        let status = waitpid(Some(pid), WaitOptions::UNTRACED)?.map(|(_, status)| status);
        // It was interrupted before it stopped itself: by the signal, or with a word about it.
        let by_signal = |status: WaitStatus| status.terminating_signal().map(|signal| 128 + signal);
        let code = status.and_then(|status| status.exit_status().or(by_signal(status)));
        if let Some(code) = code.filter(|code| *code > 128) {
            self.shared.code.store(code, Ordering::SeqCst);
            return Ok(());
        }
        sys::seize(self.root, true)?;
        self.add(self.root, self.root);
        Ok(kill_process(pid, Signal::CONT)?)
    }

    fn follow_process(&mut self, pid: i32) -> io::Result<()> {
        sys::seize(pid, false)?;
        self.add(pid, pid);
        sys::interrupt(pid)?;
        for _ in 0..MOST_ROUNDS {
            let threads = places::find_threads(pid);
            let new: Vec<_> =
                threads.into_iter().filter(|tid| !self.threads.contains_key(tid)).collect();
            if new.is_empty() {
                break;
            }
            for tid in new {
                // It may have ended, or be followed already as the child of another one.
                if sys::seize(tid, false).is_ok() {
                    let _ = sys::interrupt(tid);
                }
                self.add(tid, pid);
            }
        }
        Ok(())
    }

    fn add(&mut self, tid: i32, pid: i32) {
        self.threads.insert(tid, Followed { pid, entry: None, leaving: false });
    }

    fn run(&mut self) {
        loop {
            if self.shared.stop.load(Ordering::SeqCst) {
                self.leave();
            }
            match sys::wait() {
                Ok((tid, stop)) => self.handle(tid, stop),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.shared.ended.store(true, Ordering::SeqCst);
        // The main thread waits for this signal.
        let _ = kill_process(getpid(), Signal::CHILD);
    }

    /// Interrupt all; each is let go at its next stop.
    fn leave(&mut self) {
        for (tid, followed) in &mut self.threads {
            if !followed.leaving {
                followed.leaving = true;
                let _ = sys::interrupt(*tid);
            }
        }
    }

    fn handle(&mut self, tid: i32, stop: Stop) {
        if let Stop::Ended(code) = stop {
            self.threads.remove(&tid);
            if tid == self.root {
                self.shared.code.store(i32::from(code), Ordering::SeqCst);
            }
            return;
        }
        if !self.threads.contains_key(&tid) {
            let pid = places::find_status(tid, "Tgid").unwrap_or(tid);
            self.add(tid, pid);
        }
        match stop {
            Stop::Syscall => self.handle_edge(tid),
            Stop::Exec => self.threads.retain(|other, of| of.pid != tid || *other == tid),
            _ => {}
        }
        let signal = if let Stop::Signal(signal) = stop { signal } else { 0 };
        if self.shared.stop.load(Ordering::SeqCst) {
            let _ = sys::detach(tid, signal);
            self.threads.remove(&tid);
            return;
        }
        // One that was killed at this very moment is told of by the next wait.
        let _ = match stop {
            Stop::Group => sys::listen(tid),
            _ if self.filtered && !self.is_in_call(tid) => sys::go_far(tid, signal),
            _ => sys::go_on(tid, signal),
        };
    }

    fn is_in_call(&self, tid: i32) -> bool {
        self.threads.get(&tid).is_some_and(|followed| followed.entry.is_some())
    }

    fn handle_edge(&mut self, tid: i32) {
        let arrived = now();
        let edge = sys::find_edge(tid);
        let Some(followed) = self.threads.get_mut(&tid) else { return };
        match edge {
            Some(Edge::Entry { number, arguments, is_64_bit }) => {
                let call = Call::find(number, is_64_bit);
                followed.entry = call
                    .filter(|call| waits(*call, &arguments, tid, self.writes))
                    .map(|call| self.lookout.enter(call, tid, arguments[0]));
            }
            Some(Edge::Exit { result }) => {
                let Some(entry) = followed.entry.take() else { return };
                let event = self.lookout.leave(entry, followed.pid, tid, arrived, result);
                let _ = self.out.send(Message::Events(vec![event]));
            }
            None => {}
        }
    }
}

fn waits(call: Call, arguments: &[u64; 6], tid: i32, writes: bool) -> bool {
    let asked = writes && call.is_write();
    call.waits(arguments)
        || asked && places::find_sync_flags(tid, arguments[0] as i32) == Some(true)
}

/// Looks at what stopped threads are about.
#[derive(Default)]
struct Lookout {
    callers: Callers,
    descriptors: Descriptors,
    paths: Paths,
}

impl Lookout {
    fn enter(&mut self, call: Call, tid: i32, argument: u64) -> Entry {
        let file = match call.target() {
            Target::Descriptor => self.name(tid, argument as u32 as i32),
            _ => places::find_file(tid, call, argument),
        };
        let written = self.callers.ask(tid as u32);
        Entry { call, start: now(), file, written }
    }

    /// Our copy of the descriptor is closed before the thread goes on.
    fn name(&mut self, tid: i32, fd: i32) -> Option<Arc<str>> {
        let descriptor = self.descriptors.fetch(tid as u32, fd).ok()?;
        Some(self.paths.name(&descriptor))
    }

    fn leave(&self, entry: Entry, pid: i32, tid: i32, end: u64, result: i64) -> Event {
        let own = if entry.call.is_write() { result.max(0) as u64 } else { 0 };
        Event {
            pid,
            tid,
            process: self.callers.name(tid as u32),
            call: entry.call,
            file: entry.file.unwrap_or_else(|| places::unnamed(result)),
            start: entry.start,
            end,
            result,
            written: entry.written.map(|written| written + own),
            in_flight: true,
        }
    }
}
