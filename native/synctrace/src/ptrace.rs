//! ptrace(2) of a running process, for those who may not read tracepoints. It stops at every system call: slow, but exact.

mod sys;

use std::collections::HashMap;
use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::now;
use crate::event::{Call, Event};
use crate::message::Message;
use crate::notify::{interruptible, INTERRUPT};
use crate::places;
use sys::{Edge, Stop};

const RETRY: Duration = Duration::from_millis(1);
/// Threads may start others while we follow them one by one.
const MOST_ROUNDS: usize = 100;

/// The thread that traces.
pub struct Tracing {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Tracing {
    /// Returns the processes' threads followed, or why the first process cannot be.
    pub fn start(family: Vec<i32>, writes: bool, out: Sender<Message>) -> io::Result<Tracing> {
        interruptible()?;
        let stop = Arc::new(AtomicBool::new(false));
        let own_stop = stop.clone();
        let (told, tell) = mpsc::channel();
        let thread = thread::Builder::new().spawn(move || {
            let mut tracer = Tracer { threads: HashMap::new(), writes, stop: own_stop, out };
            let followed = tracer.follow(&family);
            let works = followed.is_ok();
            let _ = told.send(followed);
            if works {
                tracer.run();
            }
        })?;
        tell.recv().map_err(io::Error::other)??;
        Ok(Tracing { thread, stop })
    }

    /// Let go of all threads.
    pub fn finish(self) {
        self.stop.store(true, Ordering::SeqCst);
        while !self.thread.is_finished() {
            // SAFETY: the thread is not joined yet, so its handle is valid.
            unsafe { libc::pthread_kill(self.thread.as_pthread_t(), INTERRUPT) };
            thread::sleep(RETRY);
        }
        let _ = self.thread.join();
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
    stop: Arc<AtomicBool>,
    out: Sender<Message>,
}

impl Tracer {
    /// # Errors
    /// When the first process cannot be followed; its descendants may have gone or belong to others.
    fn follow(&mut self, family: &[i32]) -> io::Result<()> {
        for (index, pid) in family.iter().enumerate() {
            let followed = self.follow_process(*pid);
            if index == 0 {
                followed?;
            }
        }
        Ok(())
    }

    fn follow_process(&mut self, pid: i32) -> io::Result<()> {
        sys::seize(pid)?;
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
                if sys::seize(tid).is_ok() {
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
            if self.stop.load(Ordering::SeqCst) {
                self.leave();
            }
            match sys::wait() {
                Ok((tid, stop)) => self.handle(tid, stop),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
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
        if stop == Stop::Ended {
            self.threads.remove(&tid);
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
        if self.stop.load(Ordering::SeqCst) {
            let _ = sys::detach(tid, signal);
            self.threads.remove(&tid);
            return;
        }
        // One that was killed at this very moment is told of by the next wait.
        let _ = match stop {
            Stop::Group => sys::listen(tid),
            _ => sys::go_on(tid, signal),
        };
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
                    .map(|call| Entry::look(call, tid, arguments[0]));
            }
            Some(Edge::Exit { result }) => {
                let Some(entry) = followed.entry.take() else { return };
                let event = entry.finish(followed.pid, tid, arrived, result);
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

impl Entry {
    fn look(call: Call, tid: i32, argument: u64) -> Entry {
        let file = places::find_file(tid, call, argument);
        let written = places::find_written(tid);
        Entry { call, start: now(), file, written }
    }

    fn finish(self, pid: i32, tid: i32, end: u64, result: i64) -> Event {
        let own = if self.call.is_write() { result.max(0) as u64 } else { 0 };
        Event {
            pid,
            tid,
            process: places::find_process_name(pid).unwrap_or_else(|| "?".into()),
            call: self.call,
            file: self.file.unwrap_or_else(|| places::unnamed(result)),
            start: self.start,
            end,
            result,
            written: self.written.map(|written| written + own),
            in_flight: true,
        }
    }
}
