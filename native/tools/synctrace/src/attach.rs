//! Finds a running process and follows it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::Sender;

use diskproof_supervise::Signals;
use rustix::process::{pidfd_open, Pid, PidfdFlags};

use crate::launch::{open_tracepoints, Running, Subject, Trace};
use crate::message::Message;
use crate::options::{Mechanism, Options};
use crate::perf::Watched;
use crate::places;
use crate::ptrace::Tracing;
use crate::refusal::{Refusal, HOST, USAGE};

pub fn attach(
    options: &Options,
    pid: i32,
    signals: Signals,
    out: Sender<Message>,
) -> Result<Trace, Refusal> {
    let pidfd = require_process(pid)?;
    let points = match options.by {
        Some(Mechanism::Preload) => {
            let why = "a library is loaded when a program starts";
            let what = "this mechanism watches commands, not running processes";
            return Err(Refusal::new(USAGE, what, why, "--by ptrace or --by tracepoints"));
        }
        Some(Mechanism::Ptrace) => None,
        Some(Mechanism::Tracepoints) => Some(open_tracepoints(Watched::Process, options)?),
        None => open_tracepoints(Watched::Process, options).ok(),
    };
    let family = places::find_family(pid);
    let written = family.iter().filter_map(|pid| Some((*pid, places::find_written(*pid)?)));
    let written = written.collect();
    let (mechanism, running) = match points {
        Some(points) => {
            let reading = points.start(family, out).map_err(Refusal::system("no thread"))?;
            (Mechanism::Tracepoints, Running::Tracepoints(reading))
        }
        None => {
            let tracing = Tracing::attach(family, options.writes, out);
            let tracing = tracing.map_err(|error| not_followed(pid, &error))?;
            (Mechanism::Ptrace, Running::Ptrace(tracing))
        }
    };
    let (subject, running) = (Subject::Process(pidfd), vec![running]);
    Ok(Trace { mechanism, unreached: None, pid, signals, subject, running, written })
}

fn not_followed(pid: i32, error: &io::Error) -> Refusal {
    let tracer = places::find_status(pid, "TracerPid").unwrap_or(0);
    let what = format!("process {pid} cannot be watched");
    match error.raw_os_error() {
        Some(libc::EPERM) if tracer > 0 => {
            let why = format!("process {tracer} traces it already");
            Refusal::new(HOST, what, why, "end that debugger or strace")
        }
        Some(libc::EPERM) => {
            let why = "it belongs to somebody else, or this system restricts ptrace";
            Refusal::new(HOST, what, why, "as root, or see kernel.yama.ptrace_scope")
        }
        Some(libc::ESRCH) => {
            let why = "it ended just now";
            Refusal::new(USAGE, what, why, "look for its number with pgrep or ps")
        }
        _ => Refusal::new(HOST, what, error, "as root"),
    }
}

fn require_process(pid: i32) -> Result<OwnedFd, Refusal> {
    let gone = |why: &str| {
        let what = format!("process {pid} cannot be watched");
        Refusal::new(USAGE, what, why, "look for its number with pgrep or ps")
    };
    let number = Pid::from_raw(pid).ok_or_else(|| gone("not the number of a process"))?;
    if places::find_status(pid, "Tgid").is_some_and(|process| process != pid) {
        return Err(gone("this is the number of a thread"));
    }
    pidfd_open(number, PidfdFlags::empty()).map_err(|error| match error {
        rustix::io::Errno::SRCH => gone("there is no such process"),
        error => gone(&error.to_string()),
    })
}
