//! With a filter: the server is started, signals go through it to the command, and its word of the
//! end comes back.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use diskproof_session::share_waiting;
use diskproof_supervise::{Command, Signals};
use rustix::event::{poll, PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{
    recv, send, socketpair, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType,
};
use rustix::process::{getpid, kill_process, Pid, Signal};

use crate::environment::{find_library, preload};
use crate::options::Options;
use crate::replies::{CommandEnd, Reply, LONGEST};
use crate::scope::Scope;
use crate::server::{serve, Orders};
use crate::shared::Shared;
use crate::Refusal;

/// The server may start the command.
const BEGIN: &[u8] = &[0];

pub fn run(
    options: &Options,
    scope: Scope,
    shared: &Shared,
    signals: &Signals,
) -> Result<CommandEnd, Refusal> {
    let mut command = Command::new(&options.command)?;
    if let Some(library) = find_library() {
        let list = preload(library.as_os_str(), std::env::var_os("LD_PRELOAD"));
        command.set_variable("LD_PRELOAD", list);
    }
    let orders = Orders { command, scope, strict: options.strict };
    let server = start_server(orders, shared, signals)?;
    match receive_reply(&server, signals)? {
        Some(Reply::Ended(word)) => Ok(word),
        Some(Reply::Failed { why, forbidden: true }) => Err(Refusal::host(format!(
            "{why}\n--preload drops the syncs of dynamically linked programs without a filter"
        ))),
        Some(Reply::Failed { why, forbidden: false }) => Err(Refusal::host(why)),
        None => {
            complain!(
                "the process that answers for the command was killed, and the command with it"
            );
            Ok(CommandEnd { code: 128 + 9, errno: 0, running: 0 })
        }
    }
}

/// Our end of the way to it.
fn start_server(orders: Orders, shared: &Shared, signals: &Signals) -> Result<OwnedFd, Refusal> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
        .map_err(io::Error::from)?;
    // SAFETY: we have one thread, so the child may go on as any program.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error().into()),
        0 => {
            drop(ours);
            serve(orders, shared, signals, &theirs)
        }
        pid => {
            Pid::from_raw(pid).into_iter().for_each(share_waiting);
            send(&ours, BEGIN, SendFlags::NOSIGNAL).map_err(io::Error::from)?;
            Ok(ours)
        }
    }
}

/// Signals go in, one message comes out. None: the server died.
fn receive_reply(server: &OwnedFd, signals: &Signals) -> io::Result<Option<Reply>> {
    let fd = signals.as_fd();
    loop {
        let mut watched = [PollFd::new(server, PollFlags::IN), PollFd::new(&fd, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut watched, None))?;
        while let Some(arrived) = signals.read() {
            if arrived.signal == Signal::CHILD {
                continue;
            }
            if !arrived.from_terminal {
                let _ = send(server, &arrived.signal.as_raw().to_ne_bytes(), SendFlags::NOSIGNAL);
            }
            if arrived.signal == Signal::TSTP {
                stop_ourselves();
            }
        }
        if !watched[0].revents().is_empty() {
            let mut bytes = [0; LONGEST];
            let mut read =
                || rustix::io::retry_on_intr(|| recv(server, &mut bytes, RecvFlags::empty()));
            // A signal that it had not read when it ended is an error before its last message.
            let (_, length) = match read() {
                Err(Errno::CONNRESET) => read()?,
                other => other?,
            };
            return Ok(Reply::from_bytes(&bytes[..length]));
        }
    }
}

/// As the command does that was told to: the shell sees the job stopped.
fn stop_ourselves() {
    let _ = kill_process(getpid(), Signal::STOP);
}
