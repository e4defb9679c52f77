//! The requests of ptrace(2) that are needed here.

use std::io;

const OPTIONS: libc::c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEEXEC;
const EVENT_STOP: i32 = 128;
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
const ENTRY: u8 = 1;
const EXIT: u8 = 2;
const FILTER: u8 = 3;
const ARCH_X86_64: u32 = 0xc000_003e;

/// What a wait told of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It is gone, with this exit code as a shell shows it.
    Ended(u8),
    /// At the entry or the end of a system call, or at one that the filter stops.
    Syscall,
    /// Another program took its place; its other threads are gone.
    Exec,
    /// By a stop signal, with its whole process.
    Group,
    /// It is about to get this signal.
    Signal(i32),
    /// Newly followed, interrupted by us, or just back from starting another one.
    Other,
}

/// A system call that a thread stopped at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    Entry { number: u64, arguments: [u64; 6], is_64_bit: bool },
    Exit { result: i64 },
}

/// The kernel's struct ptrace_syscall_info, as long as its longest form.
#[repr(C)]
#[derive(Default)]
struct Info {
    op: u8,
    pad: [u8; 3],
    arch: u32,
    instruction: u64,
    stack: u64,
    words: [u64; 8],
}

fn request(kind: libc::c_uint, tid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests sent through here read and write no memory of ours but what `data`
    // points to for its length.
    let done = unsafe { libc::ptrace(kind, tid, address, data) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Follow a thread and what it starts; `filtered` if a seccomp filter says at which calls it stops.
pub fn seize(tid: i32, filtered: bool) -> io::Result<()> {
    let more = if filtered { libc::PTRACE_O_TRACESECCOMP } else { 0 };
    request(libc::PTRACE_SEIZE, tid, 0, (OPTIONS | more) as usize)
}

pub fn interrupt(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_INTERRUPT, tid, 0, 0)
}

/// On to the next entry or end of a system call, with a signal or 0.
pub fn go_on(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SYSCALL, tid, 0, signal as usize)
}

/// On to the next call that the filter stops, or the next signal.
pub fn go_far(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as usize)
}

/// Leave it stopped, as its stop signal wants, and hear of what comes.
pub fn listen(tid: i32) -> io::Result<()> {
    request(libc::PTRACE_LISTEN, tid, 0, 0)
}

pub fn detach(tid: i32, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as usize)
}

/// The system call at which a thread has stopped.
pub fn find_edge(tid: i32) -> Option<Edge> {
    let mut info = Info::default();
    let data = (&raw mut info) as usize;
    request(libc::PTRACE_GET_SYSCALL_INFO, tid, size_of::<Info>(), data).ok()?;
    match info.op {
        ENTRY | FILTER => {
            let mut arguments = [0; 6];
            arguments.copy_from_slice(&info.words[1..7]);
            let is_64_bit = info.arch == ARCH_X86_64;
            Some(Edge::Entry { number: info.words[0], arguments, is_64_bit })
        }
        EXIT => Some(Edge::Exit { result: info.words[0] as i64 }),
        _ => None,
    }
}

/// The next stop of a thread that this thread traces; EINTR when a signal came, ECHILD when there
/// is none.
pub fn wait() -> io::Result<(i32, Stop)> {
    let mut status = 0;
    // SAFETY: the kernel writes one status.
    let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    if tid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((tid, stop_of(status)))
}

fn stop_of(status: i32) -> Stop {
    if libc::WIFEXITED(status) {
        return Stop::Ended(libc::WEXITSTATUS(status) as u8);
    }
    if libc::WIFSIGNALED(status) {
        return Stop::Ended((128 + libc::WTERMSIG(status)) as u8);
    }
    let signal = libc::WSTOPSIG(status);
    match (status >> 16, signal) {
        (EVENT_STOP, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU) => Stop::Group,
        (libc::PTRACE_EVENT_EXEC, _) => Stop::Exec,
        (0, SYSCALL_STOP) | (libc::PTRACE_EVENT_SECCOMP, _) => Stop::Syscall,
        (0, signal) => Stop::Signal(signal),
        _ => Stop::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_are_told_apart() {
        let stopped = |event: i32, signal: i32| event << 16 | signal << 8 | 0x7f;
        assert_eq!(stop_of(3 << 8), Stop::Ended(3));
        assert_eq!(stop_of(libc::SIGKILL), Stop::Ended(137));
        assert_eq!(stop_of(stopped(0, SYSCALL_STOP)), Stop::Syscall);
        assert_eq!(stop_of(stopped(0, libc::SIGALRM)), Stop::Signal(libc::SIGALRM));
        assert_eq!(stop_of(stopped(EVENT_STOP, libc::SIGSTOP)), Stop::Group);
        assert_eq!(stop_of(stopped(EVENT_STOP, libc::SIGTRAP)), Stop::Other);
        assert_eq!(stop_of(stopped(libc::PTRACE_EVENT_EXEC, libc::SIGTRAP)), Stop::Exec);
        assert_eq!(stop_of(stopped(libc::PTRACE_EVENT_FORK, libc::SIGTRAP)), Stop::Other);
    }
}
