//! One exec: a program inside the root, from its start to its `exit` event.

use std::ffi::CString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use diskproof_wire::{Event, Exec, Exit};
use rustix::process::{kill_process_group, Pid, Signal};

use crate::channel::Outbox;
use crate::children::{Children, Ended};
use crate::clocks::monotonic_ns;
use crate::failure::{Doing, Failure, Outcome};
use crate::jobs::Job;
use crate::mounts::ROOT;
use crate::power::fatal;
use crate::streams::Streams;

const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// How long after SIGKILL a group's pipes are still read.
const DRAIN: Duration = Duration::from_secs(1);
/// How long a killed process may take to end: longer, and it hangs in the kernel.
const DYING: Duration = Duration::from_secs(10);

/// A started program.
struct Running {
    job: Job,
    group: Pid,
    streams: Streams,
    ended: Receiver<Ended>,
    deadline: Instant,
    started_ns: u64,
}

/// Start the program, leave the rest to a thread of its own.
pub fn run(exec: Exec, job: Job, children: &Arc<Children>, outbox: &Outbox) -> Outcome<()> {
    let what = format!("cannot run {:?}", exec.argv[0]);
    let running = start(exec, job, children).map_err(|error| Failure::new(what, error))?;
    let outbox = outbox.clone();
    let thread = thread::Builder::new().spawn(move || finish(running, &outbox));
    thread.doing(|| "cannot start a thread".to_owned())?;
    Ok(())
}

fn start(exec: Exec, job: Job, children: &Children) -> io::Result<Running> {
    let deadline = Instant::now() + Duration::from_millis(exec.timeout_ms);
    let mut command = command_of(&exec)?;
    let started_ns = monotonic_ns();
    let (mut child, ended) = children.spawn(&mut command)?;
    let group = group_of(&child)?;
    job.set_group(group);
    let streams = Streams::of(&mut child, exec.stdin.map(|bytes| bytes.0))?;
    Ok(Running { job, group, streams, ended, deadline, started_ns })
}

fn command_of(exec: &Exec) -> io::Result<Command> {
    let mut command = Command::new(&exec.argv[0]);
    command.args(&exec.argv[1..]).env_clear().env("PATH", PATH).envs(&exec.env);
    command.stdin(if exec.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let cwd = CString::new(exec.cwd.as_str())?;
    let enter = move || {
        rustix::process::chroot(ROOT)?;
        rustix::process::chdir(cwd.as_c_str())?;
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
    unsafe { command.pre_exec(enter) };
    Ok(command)
}

fn group_of(child: &Child) -> io::Result<Pid> {
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::other("a child without a number"))
}

/// Stream until everything is closed and the process has ended, then say how.
fn finish(mut running: Running, outbox: &Outbox) {
    let id = running.job.id;
    let end = wait(&mut running, outbox).unwrap_or_else(|failure| fatal(&failure));
    let elapsed_ns = monotonic_ns().saturating_sub(running.started_ns);
    // The host may use the id again as soon as it sees the last event.
    drop(running);
    let event = match end {
        Some((Ended { code, signal, user_us, system_us }, timed_out)) => {
            Event::Exit(Exit { id, code, signal, timed_out, user_us, system_us, elapsed_ns })
        }
        None => {
            let why = format!("it has not ended {} s after SIGKILL", DYING.as_secs());
            Event::error(Some(id), "a process hangs in the kernel", why)
        }
    };
    outbox.send(&event).unwrap_or_else(|failure| fatal(&failure));
}

/// How the process ended and whether that was late; None when it could not even be killed.
fn wait(running: &mut Running, outbox: &Outbox) -> Outcome<Option<(Ended, bool)>> {
    let id = running.job.id;
    if running.streams.pump(id, running.deadline, outbox)? {
        let left = running.deadline.saturating_duration_since(Instant::now());
        if let Ok(ended) = running.ended.recv_timeout(left) {
            return Ok(Some((ended, false)));
        }
    }
    // An empty group is fine: its last process has just ended.
    let _ = kill_process_group(running.group, Signal::KILL);
    running.streams.pump(id, Instant::now() + DRAIN, outbox)?;
    Ok(running.ended.recv_timeout(DYING).ok().map(|ended| (ended, true)))
}
