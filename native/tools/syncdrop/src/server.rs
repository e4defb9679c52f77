//! The process between us and the command: it starts the command, answers its calls, and stays
//! until the last process under the filter has ended, while we end with the command.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::exit;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use diskproof_supervise::target::Descriptors;
use diskproof_supervise::{
    build_filter, start, Answer, Child, Command, Ended, Listener, Notification, Received, Signals,
    StartError,
};
use rustix::event::{epoll, eventfd, EventfdFlags};
use rustix::net::{recv, send, RecvFlags, SendFlags};
use rustix::process::{waitpid, Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus};

use crate::judge::{leave, Judge, Ruling};
use crate::page::{Left, Page};
use crate::replies::{CommandEnd, Reply};
use crate::rewrite::{rewrite, Job, Rewritten};
use crate::rules::rules;
use crate::scope::Scope;
use crate::shared::Shared;

/// What the server is to know.
pub struct Orders {
    pub command: Command,
    pub scope: Scope,
    pub strict: bool,
}

/// In the server's process: never returns.
pub fn serve(orders: Orders, shared: &Shared, signals: &Signals, main: &OwnedFd) -> ! {
    // Until what came from the terminal before we were there is ours too.
    if !matches!(recv(main, &mut [0], RecvFlags::empty()), Ok((1, _))) {
        exit(1);
    }
    let mut command = orders.command;
    command.unblock(signals);
    command.end_with_us();
    let program = build_filter(&rules(orders.strict));
    let started = adopt_orphans().map_err(|error| StartError::System("prctl", error));
    let (child, listener) = match started.and_then(|()| start(&command, &program)) {
        Ok(started) => started,
        Err(error) => {
            send_reply(main, &Reply::failed(&error));
            exit(1);
        }
    };
    // Whoever reads our output to its end, or ends our process group, means the command and not
    // what it left.
    diskproof_session::stay_behind();
    let server = Server::new(child, listener, shared, signals, main, orders.strict);
    match server {
        Ok(mut server) => exit(server.run(&orders.scope).is_err().into()),
        Err(_) => exit(1),
    }
}

struct Server<'a> {
    child: Child,
    listener: Arc<Listener>,
    shared: &'a Shared,
    signals: &'a Signals,
    main: &'a OwnedFd,
    strict: bool,
    wake: OwnedFd,
    /// Written by a thread that has let go of its caller.
    let_go: Arc<OwnedFd>,
    /// Callers that could not be changed; their call comes once more.
    given_up: Arc<Mutex<HashSet<u32>>>,
    ended: bool,
}

impl<'a> Server<'a> {
    fn new(
        child: Child,
        listener: Listener,
        shared: &'a Shared,
        signals: &'a Signals,
        main: &'a OwnedFd,
        strict: bool,
    ) -> io::Result<Server<'a>> {
        let wake = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let let_go = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let data = epoll::EventData::new_u64(0);
        for watched in [signals.as_fd(), main.as_fd(), let_go.as_fd()] {
            epoll::add(&wake, watched, data, epoll::EventFlags::IN)?;
        }
        let listener = Arc::new(listener);
        let (let_go, given_up) = (Arc::new(let_go), Arc::default());
        Ok(Server {
            child,
            listener,
            shared,
            signals,
            main,
            strict,
            wake,
            let_go,
            given_up,
            ended: false,
        })
    }

    fn run(&mut self, scope: &Scope) -> io::Result<()> {
        let page = self.shared.page;
        let mut judge = Judge { scope, page, descriptors: Descriptors::default() };
        loop {
            match self.listener.receive(Some(self.wake.as_fd()), None)? {
                Received::Call(call) => self.rule(&mut judge, &call),
                Received::Woken => self.look_around()?,
                Received::Timeout => {}
                Received::Nobody => break,
            }
        }
        if !self.ended {
            // It has left the filter by ending, and its end is under way.
            let ended = self.child.wait()?;
            self.tell_end(ended, 0);
        }
        Ok(())
    }

    fn rule(&self, judge: &mut Judge, call: &Notification) {
        let page = self.shared.page;
        let ruling = judge.judge(call);
        let answer = match ruling {
            Ruling::Drop(kind) => {
                page.dropped[kind as usize].fetch_add(1, Relaxed);
                Answer::Value(0)
            }
            Ruling::Error(error) => Answer::Error(error),
            Ruling::Real => Answer::Continue,
            Ruling::Passed => {
                page.passed.fetch_add(1, Relaxed);
                Answer::Continue
            }
            Ruling::Ring => {
                page.left[Left::Ring as usize].fetch_add(1, Relaxed);
                Answer::Continue
            }
            Ruling::Unreachable => note_unreachable(page, self.strict),
            Ruling::Rewrite(_) if self.take_given_up(call.thread) => {
                note_unreachable(page, self.strict)
            }
            Ruling::Rewrite(job) => return self.rewrite_apart(job),
            Ruling::GivePage => {
                let given = self.listener.answer_with_descriptor(call.id, self.shared.fd.as_fd());
                if given.is_ok() {
                    return;
                }
                Answer::Error(libc::EBADF)
            }
        };
        self.listener.answer(call.id, answer);
        page.direct.store(u32::from(judge.scope.is_simple(page)), Relaxed);
    }

    fn take_given_up(&self, thread: u32) -> bool {
        self.given_up.lock().is_ok_and(|mut threads| threads.remove(&thread))
    }

    /// In a thread, since the changed call may take its time. It is the caller's tracer until it
    /// ends.
    fn rewrite_apart(&self, job: Job) {
        let (listener, let_go) = (self.listener.clone(), self.let_go.clone());
        let (given_up, page, strict) = (self.given_up.clone(), self.shared.page, self.strict);
        let id = job.call.id;
        let work = move || {
            match rewrite(&listener, &job, page) {
                Rewritten::Done => {}
                Rewritten::NotBegun => {
                    listener.answer(id, note_unreachable(page, strict));
                }
                Rewritten::NotDone => {
                    if let Ok(mut threads) = given_up.lock() {
                        threads.insert(job.call.thread);
                    }
                }
            }
            let _ = rustix::io::write(&*let_go, &1_u64.to_ne_bytes());
        };
        if std::thread::Builder::new().stack_size(128 << 10).spawn(work).is_err() {
            self.listener.answer(id, note_unreachable(page, strict));
        }
    }

    /// Ended children, and words of the main process: signals to pass on, or its death.
    fn look_around(&mut self) -> io::Result<()> {
        let mut word = [0; 8];
        let _ = rustix::io::read(&*self.let_go, &mut word);
        while self.signals.read().is_some() {}
        self.reap();
        let mut number = [0; 4];
        match recv(self.main, &mut number, RecvFlags::DONTWAIT) {
            Ok((_, 4)) => {
                if let Some(signal) = Signal::from_named_raw(i32::from_ne_bytes(number)) {
                    self.child.signal(signal)?;
                }
            }
            Ok(_) => self.lose_main()?,
            Err(_) => {}
        }
        Ok(())
    }

    /// The main process is gone: because the command has ended, or because it was killed. Then the
    /// command ends too.
    fn lose_main(&mut self) -> io::Result<()> {
        epoll::delete(&self.wake, self.main)?;
        if self.ended {
            Ok(())
        } else {
            self.child.signal(Signal::KILL)
        }
    }

    fn reap(&mut self) {
        let command = self.child.pid();
        for pid in children(command) {
            match take_ended(pid) {
                Some(status) if pid == command && !self.ended => {
                    let running = children(command).into_iter().filter(|child| *child != command);
                    self.tell_end(self.child.ended(status), running.count() as u32);
                }
                _ => {}
            }
        }
    }

    fn tell_end(&mut self, ended: Ended, running: u32) {
        self.ended = true;
        let errno = ended.exec_error.and_then(|error| error.raw_os_error()).unwrap_or(0);
        send_reply(
            self.main,
            &Reply::Ended(CommandEnd { code: ended.code.into(), errno, running }),
        );
    }
}

fn note_unreachable(page: &Page, strict: bool) -> Answer {
    let left = if strict { Left::Refused } else { Left::Unreachable };
    page.left[left as usize].fetch_add(1, Relaxed);
    leave(strict)
}

/// A child of ours that has ended. One that stopped under a thread that changes its call is left
/// alone: wait(2) for any child would take that stop away from the thread.
fn take_ended(pid: Pid) -> Option<WaitStatus> {
    let peek = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let seen = rustix::process::waitid(WaitId::Pid(pid), peek).ok().flatten()?;
    if seen.stopped() || seen.trapped() {
        return None;
    }
    waitpid(Some(pid), WaitOptions::NOHANG).ok().flatten().map(|(_, status)| status)
}

/// Our children: the command, and what it left to us. Without a list in /proc only the command.
fn children(command: Pid) -> Vec<Pid> {
    let own = std::process::id();
    let list = std::fs::read_to_string(format!("/proc/self/task/{own}/children"));
    let pids = list.map(|text| {
        text.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
    });
    pids.unwrap_or_else(|_| vec![command])
}

fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

fn send_reply(main: &OwnedFd, reply: &Reply) {
    let _ = send(main, &reply.to_bytes(), SendFlags::NOSIGNAL);
}
