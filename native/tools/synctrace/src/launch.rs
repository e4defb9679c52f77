//! Chooses the mechanism, starts the command, and follows it or the running process to its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Sender;

use diskproof_supervise::{block_signals, start_plain, Arrived, Child, Command, Signals};
use diskproof_words::plain_reason;
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use crate::attach;
use crate::clock;
use crate::message::Message;
use crate::options::{Mechanism, Options};
use crate::perf::{Reading, Tracepoints, Watched};
use crate::preload::{self, Preload};
use crate::ptrace::{self, Stops, Tracing};
use crate::refusal::{Refusal, HOST};
use crate::session::Session;

const TRACER_HINT: &str = "as root, or outside of the debugger, strace or container that has it";
const PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A running trace.
pub struct Trace {
    pub mechanism: Mechanism,
    /// Why nothing sees the programs that the mechanism does not reach, if so.
    pub unreached: Option<String>,
    pub pid: i32,
    pub signals: Signals,
    pub subject: Subject,
    pub running: Vec<Running>,
    pub written: Vec<(i32, u64)>,
}

/// The process whose end is the end of the trace.
pub enum Subject {
    /// It, and the name it was given by.
    Command(Child, String),
    Process(OwnedFd),
}

pub enum Running {
    Tracepoints(Reading),
    Preload(preload::Reading),
    Ptrace(Tracing),
}

impl Trace {
    pub fn start(options: &Options, out: Sender<Message>) -> Result<Trace, Refusal> {
        let signals = block_signals().map_err(Refusal::system("signals cannot be read"))?;
        match options.pid {
            Some(pid) => attach::attach(options, pid, signals, out),
            None => launch(options, signals, out),
        }
    }

    /// Follow to the end; the exit code of the command, or 0.
    pub fn run(&mut self, session: &mut Session) -> Result<u8, Refusal> {
        for (pid, written) in self.written.drain(..) {
            session.tally.start_at(pid, written);
        }
        let code = loop {
            if let Some(code) = self.wait(session)? {
                break code;
            }
            session.draw();
        };
        session.ended = clock::now();
        self.running.drain(..).for_each(Running::finish);
        session.drain();
        if matches!(self.subject, Subject::Command(..)) {
            session.exit_code = Some(code);
        }
        Ok(code)
    }

    /// A tenth of a second, less when something happens; the code when all has ended.
    fn wait(&self, session: &mut Session) -> Result<Option<u8>, Refusal> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
        if let Subject::Process(pidfd) = &self.subject {
            fds.push(PollFd::new(pidfd, PollFlags::IN));
        }
        let _ = poll(&mut fds, Some(&PERIOD));
        let gone = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        session.drain();
        match &self.subject {
            Subject::Command(child, program) => self.wait_command(child, program),
            Subject::Process(_) => {
                let asked = std::iter::from_fn(|| self.signals.read()).any(ends_watching);
                Ok((gone || asked).then_some(0))
            }
        }
    }

    fn wait_command(&self, child: &Child, program: &str) -> Result<Option<u8>, Refusal> {
        while let Some(arrived) = self.signals.read() {
            if arrived.signal != Signal::CHILD && !arrived.from_terminal {
                // A set-user-ID program may have left our reach; then there is nothing to pass on.
                let _ = child.signal(arrived.signal);
            }
        }
        let tracing = self.running.iter().find_map(|running| match running {
            Running::Ptrace(tracing) => Some(tracing),
            _ => None,
        });
        if let Some(tracing) = tracing {
            return Ok(tracing.find_code());
        }
        let ended =
            child.try_wait().map_err(Refusal::system("the command cannot be waited for"))?;
        match ended {
            None => Ok(None),
            Some(ended) => match ended.exec_error {
                Some(error) => Err(not_executed(ended.code, program, &error)),
                None => Ok(Some(ended.code)),
            },
        }
    }
}

impl Running {
    /// Returns when everything that happened is told.
    fn finish(self) {
        match self {
            Running::Tracepoints(reading) => reading.finish(),
            Running::Preload(reading) => reading.finish(),
            Running::Ptrace(tracing) => tracing.finish(),
        }
    }
}

fn ends_watching(arrived: Arrived) -> bool {
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
    signals.contains(&arrived.signal)
}

fn not_executed(code: u8, program: &str, error: &io::Error) -> Refusal {
    let hint =
        if code == 127 { "look for a typing error, or give its path" } else { "chmod +x it" };
    let why = plain_reason(error);
    Refusal::new(code, format!("{program} cannot be run"), why, hint)
}

/// The best mechanism that works here, or the one that was asked for.
fn launch(options: &Options, signals: Signals, out: Sender<Message>) -> Result<Trace, Refusal> {
    let points = match options.by {
        Some(Mechanism::Tracepoints) => Some(open_tracepoints(Watched::Children, options)?),
        Some(_) => None,
        None => open_tracepoints(Watched::Children, options).ok(),
    };
    let launch = Launch { options, signals: &signals, out: &out };
    let started = match points {
        Some(points) => launch.with_tracepoints(points)?,
        None => match launch.find_preload()? {
            Some(preload) => launch.with_preload(preload)?,
            None => launch.with_ptrace(None)?,
        },
    };
    let Started { mechanism, unreached, child, running } = started;
    let program = options
        .command
        .first()
        .map_or_else(String::new, |word| word.to_string_lossy().into_owned());
    let (pid, subject) = (number_of(&child), Subject::Command(child, program));
    Ok(Trace { mechanism, unreached, pid, signals, subject, running, written: Vec::new() })
}

/// A command that runs, and what watches it.
struct Started {
    mechanism: Mechanism,
    unreached: Option<String>,
    child: Child,
    running: Vec<Running>,
}

struct Launch<'a> {
    options: &'a Options,
    signals: &'a Signals,
    out: &'a Sender<Message>,
}

impl Launch<'_> {
    fn with_tracepoints(&self, points: Tracepoints) -> Result<Started, Refusal> {
        let child = start_plain(&self.command_of(&self.options.command, None)?)?;
        let roots = vec![number_of(&child)];
        let reading =
            points.start(roots, self.out.clone()).map_err(Refusal::system("no thread"))?;
        let running = vec![Running::Tracepoints(reading)];
        Ok(Started { mechanism: Mechanism::Tracepoints, unreached: None, child, running })
    }

    /// None when it was not asked for and does not work here.
    fn find_preload(&self) -> Result<Option<Preload>, Refusal> {
        match self.options.by {
            Some(Mechanism::Preload) => {
                let prepared = Preload::prepare().map_err(|error| {
                    Refusal::new(HOST, "no library can be preloaded", error, "--by ptrace")
                })?;
                Ok(Some(prepared))
            }
            Some(_) => Ok(None),
            None => Ok(Preload::prepare().ok()),
        }
    }

    /// With ptrace for the programs that the library does not reach, where that is possible.
    fn with_preload(&self, preload: Preload) -> Result<Started, Refusal> {
        let mut started = match self.with_ptrace(Some(&preload)) {
            Ok(started) => started,
            Err(refusal) if refusal.code != HOST || self.options.writes => return Err(refusal),
            Err(refusal) => {
                let command = self.command_of(&self.options.command, Some(&preload))?;
                let (mechanism, child) = (Mechanism::Preload, start_plain(&command)?);
                Started { mechanism, unreached: Some(refusal.why), child, running: Vec::new() }
            }
        };
        let reading = preload.start(self.out.clone()).map_err(Refusal::system("no thread"))?;
        started.running.push(Running::Preload(reading));
        Ok(Started { mechanism: Mechanism::Preload, ..started })
    }

    fn with_ptrace(&self, preload: Option<&Preload>) -> Result<Started, Refusal> {
        let stops = Stops { writes: self.options.writes, unmarked: preload.is_some() };
        let command = self.command_of(&held_words(&self.options.command, stops), preload)?;
        let launched = Tracing::launch(command, self.options.writes, self.out.clone());
        let (child, tracing) = launched.map_err(|error| {
            let why = format!("ptrace is not possible here ({error})");
            Refusal::new(HOST, "the command cannot be watched", why, TRACER_HINT)
        })?;
        let running = vec![Running::Ptrace(tracing)];
        Ok(Started { mechanism: Mechanism::Ptrace, unreached: None, child, running })
    }

    fn command_of(
        &self,
        words: &[OsString],
        preload: Option<&Preload>,
    ) -> Result<Command, Refusal> {
        let mut command = Command::new(words)?;
        command.unblock(self.signals);
        if let Some(preload) = preload {
            preload.enter(&mut command);
        }
        Ok(command)
    }
}

/// The command behind ourselves: see `ptrace::hold`.
fn held_words(command: &[OsString], stops: Stops) -> Vec<OsString> {
    let ours = ["/proc/self/exe", ptrace::HOLD, stops.word()].map(OsString::from);
    ours.into_iter().chain(command.iter().cloned()).collect()
}

fn number_of(child: &Child) -> i32 {
    child.pid().as_raw_nonzero().get()
}

pub fn open_tracepoints(watched: Watched, options: &Options) -> Result<Tracepoints, Refusal> {
    Tracepoints::open(watched, options.writes).map_err(|error| no_tracepoints(&error))
}

fn no_tracepoints(error: &io::Error) -> Refusal {
    let why = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "that needs root or CAP_PERFMON".to_owned(),
        Some(libc::ENODEV | libc::ENOENT | libc::ENOSYS) => {
            "the kernel has none for system calls (CONFIG_FTRACE_SYSCALLS)".to_owned()
        }
        Some(libc::EMFILE) => "too few descriptors (ulimit -n) for all CPUs".to_owned(),
        _ => error.to_string(),
    };
    Refusal::new(HOST, "tracepoints cannot be read", why, "--by preload, or --by ptrace with -p")
}
