//! seccomp user notification: the kernel hands us each sync call, we run it on a copy of the descriptor and answer with its
//! result. Each call in flight has a thread of ours, so that calls that ran side by side still do.

mod serve;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use diskproof_supervise::{build_filter, start, Action, Answer, Child, Command};
use diskproof_supervise::{Listener, Notification, Received, Rule, StartError};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::message::Message;
use crate::preload::let_marked_pass;
use serve::Server;

/// More calls at once wait for each other.
const MOST_THREADS: usize = 4096;
const STACK: usize = 1 << 16;
const EDGE: EventFlags = EventFlags::IN.union(EventFlags::ET);
/// Interrupts a thread of ours that waits.
pub const INTERRUPT: libc::c_int = libc::SIGURG;
const RETRY: Duration = Duration::from_millis(1);

struct Shared {
    listener: Listener,
    /// Wakes the thread that began to wait last, the one whose caches are warm; waiting in the listener's own queue would
    /// take turns, at three times the cost.
    epoll: OwnedFd,
    idle: AtomicUsize,
    leaving: AtomicBool,
    threads: Mutex<Vec<Thread>>,
    out: Sender<Message>,
}

struct Thread {
    handle: JoinHandle<()>,
    /// In the kernel for the next call, or about to be.
    waits: Arc<AtomicBool>,
}

/// The threads that answer.
pub struct Answering {
    shared: Arc<Shared>,
}

/// Start a command whose syncs we run; those that the preloaded library marks run without us.
pub fn launch(command: &Command, out: Sender<Message>) -> Result<(Child, Answering), StartError> {
    let calls = serve::CALLS.iter().map(|(call, _)| *call);
    let rules = calls.flat_map(|call| [let_marked_pass(call), Rule::always(call, Action::Notify)]);
    let program = build_filter(&rules.collect::<Vec<_>>());
    interruptible().map_err(|error| StartError::System("sigaction", error))?;
    let (child, listener) = start(command, &program)?;
    let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(to_error("epoll_create"))?;
    epoll::add(&epoll, &listener, EventData::new_u64(0), EDGE).map_err(to_error("epoll_ctl"))?;
    let shared = Arc::new(Shared {
        listener,
        epoll,
        idle: AtomicUsize::new(0),
        leaving: AtomicBool::new(false),
        threads: Mutex::default(),
        out,
    });
    Shared::add_thread(&shared).map_err(|error| StartError::System("thread", error))?;
    Ok((child, Answering { shared }))
}

fn to_error(call: &'static str) -> impl Fn(rustix::io::Errno) -> StartError {
    move |error| StartError::System(call, error.into())
}

/// Without a handler that restarts nothing, a waiting thread could not be told to end.
pub fn interruptible() -> io::Result<()> {
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

impl Shared {
    fn pop_thread(&self) -> Option<Thread> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn add_thread(shared: &Arc<Shared>) -> io::Result<()> {
        let mut threads = shared.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.len() >= MOST_THREADS {
            return Ok(());
        }
        let waits = Arc::new(AtomicBool::new(true));
        let (own, own_waits) = (shared.clone(), waits.clone());
        let builder = thread::Builder::new().stack_size(STACK);
        let handle = builder.spawn(move || own.work(&own_waits))?;
        shared.idle.fetch_add(1, Ordering::SeqCst);
        threads.push(Thread { handle, waits });
        Ok(())
    }

    /// None when there is nothing to do, as often after a signal.
    fn next(&self) -> Option<Notification> {
        let mut event = [MaybeUninit::uninit()];
        let (events, _) = epoll::wait(&self.epoll, &mut event, None).ok()?;
        events.first().filter(|event| { event.flags }.contains(EventFlags::IN))?;
        let call = self.listener.take().ok()?;
        // Calls that came while all threads were busy make one event.
        if self.has_call() {
            let _ = epoll::modify(&self.epoll, &self.listener, EventData::new_u64(0), EDGE);
        }
        call
    }

    fn has_call(&self) -> bool {
        let mut fds = [PollFd::new(&self.listener, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::IN)
    }

    fn work(self: Arc<Shared>, waits: &AtomicBool) {
        let mut server = Server::default();
        while !self.leaving.load(Ordering::SeqCst) {
            let Some(call) = self.next() else { continue };
            if self.leaving.load(Ordering::SeqCst) {
                self.listener.answer(call.id, Answer::Continue);
                return;
            }
            waits.store(false, Ordering::SeqCst);
            if self.idle.fetch_sub(1, Ordering::SeqCst) == 1 {
                // Without another thread the next call waits for this one; it is not lost.
                let _ = Shared::add_thread(&self);
            }
            server.serve(&self.listener, &call, &self.out);
            self.idle.fetch_add(1, Ordering::SeqCst);
            waits.store(true, Ordering::SeqCst);
        }
    }
}

impl Answering {
    /// The command has ended. What it left behind goes on, unwatched: a process of ours lets its calls pass.
    pub fn finish(self) {
        self.shared.leaving.store(true, Ordering::SeqCst);
        // A thread that is joined starts no other one any more.
        while let Some(thread) = self.shared.pop_thread() {
            while !thread.handle.is_finished() {
                if thread.waits.load(Ordering::SeqCst) {
                    // SAFETY: the thread is not joined yet, so its handle is valid.
                    unsafe { libc::pthread_kill(thread.handle.as_pthread_t(), INTERRUPT) };
                }
                thread::sleep(RETRY);
            }
            let _ = thread.handle.join();
        }
        let listener = &self.shared.listener;
        match listener.receive(None, Some(Duration::ZERO)) {
            Ok(Received::Nobody) | Err(_) => {}
            Ok(Received::Call(call)) => {
                listener.answer(call.id, Answer::Continue);
                leave_behind(listener);
            }
            Ok(_) => leave_behind(listener),
        }
    }
}

/// A process of its own, without our files, for as long as anybody is under the filter.
fn leave_behind(listener: &Listener) {
    // SAFETY: all other threads have ended, so the child may do what it likes.
    if unsafe { libc::fork() } != 0 {
        return;
    }
    let _ = rustix::process::setsid();
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    while let Ok(received) = listener.receive(None, None) {
        match received {
            Received::Call(call) => drop(listener.answer(call.id, Answer::Continue)),
            Received::Nobody => break,
            Received::Woken | Received::Timeout => {}
        }
    }
    // SAFETY: ends this process without running what belongs to the one it was copied from.
    unsafe { libc::_exit(0) };
}
