//! Lets a waiting call run with other arguments: exactly the caller's call, less its sync flag.
//!
//! The caller waits for its answer. It is seized with ptrace(2), told that its call was
//! interrupted, and so stops on its way out of the kernel. There the call is put back in front of
//! it with the changed argument, runs, and the register gets its old value before the caller goes
//! on. Nobody is traced before or after; the price is some 30 us.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use diskproof_supervise::target::write_memory;
use diskproof_supervise::{Answer, Listener, Notification};

use crate::page::{Kind, Page};

/// What to change, and what to count when the call then succeeds.
pub struct Job {
    pub call: Notification,
    pub kind: Kind,
    pub count: u64,
    pub change: Change,
}

pub enum Change {
    /// An argument gets another value.
    Value { argument: usize, value: u64 },
    /// An argument points to this copy instead, below the caller's stack.
    Pointed { argument: usize, bytes: Vec<u8> },
    /// Bytes of the caller's memory are others during the call.
    Memory(Vec<Patch>),
}

pub struct Patch {
    pub address: u64,
    pub before: Vec<u8>,
    pub during: Vec<u8>,
}

/// The kernel's word for a call that starts again after a signal.
const ERESTARTSYS: i32 = 512;
/// Bytes below the stack pointer that a function may use without moving it.
const RED_ZONE: u64 = 128;
const INSTRUCTION: u64 = 2;
/// A caller that makes so many other calls first has left this one by way of a signal handler.
const PATIENCE: usize = 1000;

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewritten {
    Done,
    /// Nothing was done: the call still waits for its answer.
    NotBegun,
    /// The call starts again by itself, and is asked about again.
    NotDone,
}

/// Do it. Blocks as long as the call does.
pub fn rewrite(listener: &Listener, job: &Job, page: &Page) -> Rewritten {
    let Ok(tracee) = Tracee::seize(job.call.thread) else { return Rewritten::NotBegun };
    if !listener.answer(job.call.id, Answer::Error(ERESTARTSYS)) && listener.is_waiting(job.call.id)
    {
        return Rewritten::NotBegun;
    }
    match run_changed(&tracee, job) {
        Ok(Some(succeeded)) => {
            let count = if succeeded { job.count } else { 0 };
            page.dropped[job.kind as usize].fetch_add(count, Relaxed);
            Rewritten::Done
        }
        Ok(None) | Err(_) => Rewritten::NotDone,
    }
}

/// Whether the call succeeded; None when the caller ended or went elsewhere.
fn run_changed(tracee: &Tracee, job: &Job) -> io::Result<Option<bool>> {
    let Some(Stop::Event) = tracee.wait()? else { return Ok(None) };
    let before = tracee.registers()?;
    let interrupted = before.rax == i64::from(-ERESTARTSYS) as u64;
    if !interrupted || before.orig_rax != u64::from(job.call.number) {
        return Ok(None);
    }
    let mut changed = before;
    apply(job, &mut changed)?;
    changed.rip -= INSTRUCTION;
    changed.rax = before.orig_rax;
    changed.orig_rax = u64::MAX;
    tracee.set_registers(&changed)?;
    let result = follow(tracee, before.rip, before.rsp);
    if let Change::Memory(patches) = &job.change {
        for patch in patches {
            write_memory(job.call.thread, patch.address, &patch.before)?;
        }
    }
    let Some(mut after) = result? else { return Ok(None) };
    if let Change::Value { argument, .. } | Change::Pointed { argument, .. } = job.change {
        let (wide, mut old) = (job.call.is_64_bit(), before);
        *register(&mut after, argument, wide) = *register(&mut old, argument, wide);
        tracee.set_registers(&after)?;
    }
    Ok(Some((after.rax as i64) >= 0))
}

fn apply(job: &Job, registers: &mut libc::user_regs_struct) -> io::Result<()> {
    let wide = job.call.is_64_bit();
    match &job.change {
        Change::Value { argument, value } => *register(registers, *argument, wide) = *value,
        Change::Pointed { argument, bytes } => {
            let place = (registers.rsp - RED_ZONE - bytes.len() as u64) & !15;
            write_memory(job.call.thread, place, bytes)?;
            *register(registers, *argument, wide) = place;
        }
        Change::Memory(patches) => {
            for patch in patches {
                write_memory(job.call.thread, patch.address, &patch.during)?;
            }
        }
    }
    Ok(())
}

/// Until the call that ends at `end` has run; its registers then.
fn follow(tracee: &Tracee, end: u64, stack: u64) -> io::Result<Option<libc::user_regs_struct>> {
    let (mut inside, mut signal, mut listening) = (false, 0, false);
    for _ in 0..PATIENCE {
        if !listening {
            tracee.resume(signal)?;
        }
        (signal, listening) = (0, false);
        match tracee.wait()? {
            None => return Ok(None),
            Some(Stop::Call) => {
                let registers = tracee.registers()?;
                let ours = registers.rip == end && registers.rsp == stack;
                if inside && ours {
                    return Ok(Some(registers));
                }
                inside = ours;
            }
            Some(Stop::Signal(number)) => signal = number,
            Some(Stop::Event) => {}
            Some(Stop::Group) => {
                tracee.ask(libc::PTRACE_LISTEN, 0)?;
                listening = true;
            }
        }
    }
    Ok(None)
}

/// The register of an argument: the order of x86-64 calls, or of 32-bit ones.
fn register(registers: &mut libc::user_regs_struct, argument: usize, wide: bool) -> &mut u64 {
    match (wide, argument) {
        (true, 0) => &mut registers.rdi,
        (true, 1) | (false, 3) => &mut registers.rsi,
        (true, 2) | (false, 2) => &mut registers.rdx,
        (true, 3) => &mut registers.r10,
        (true, 4) => &mut registers.r8,
        (true, _) => &mut registers.r9,
        (false, 0) => &mut registers.rbx,
        (false, 1) => &mut registers.rcx,
        (false, 4) => &mut registers.rdi,
        (false, _) => &mut registers.rbp,
    }
}

enum Stop {
    Call,
    Event,
    /// Its whole process was stopped, as by Ctrl-Z, and stays so until it is continued.
    Group,
    Signal(i32),
}

/// A seized thread; dropped, it goes on untraced.
struct Tracee {
    thread: libc::pid_t,
}

impl Tracee {
    /// Seize a thread and have it stop as soon as it leaves the kernel.
    fn seize(thread: u32) -> io::Result<Tracee> {
        let tracee = Tracee { thread: thread as libc::pid_t };
        tracee.ask(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACESYSGOOD as usize)?;
        tracee.ask(libc::PTRACE_INTERRUPT, 0)?;
        Ok(tracee)
    }

    fn ask(&self, request: libc::c_uint, data: usize) -> io::Result<()> {
        // SAFETY: for these requests the data is a number, or the address of a register set that
        // outlives the call.
        match unsafe { libc::ptrace(request, self.thread, 0_usize, data) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn registers(&self) -> io::Result<libc::user_regs_struct> {
        // SAFETY: plain numbers; all-zero is valid.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        self.ask(libc::PTRACE_GETREGS, (&raw mut registers) as usize)?;
        Ok(registers)
    }

    fn set_registers(&self, registers: &libc::user_regs_struct) -> io::Result<()> {
        self.ask(libc::PTRACE_SETREGS, std::ptr::from_ref(registers) as usize)
    }

    /// On to the next border of a call.
    fn resume(&self, signal: i32) -> io::Result<()> {
        self.ask(libc::PTRACE_SYSCALL, signal as usize)
    }

    /// The next stop, or None when the thread has ended: its end is left for the parent to see.
    fn wait(&self) -> io::Result<Option<Stop>> {
        let mut status = 0;
        // SAFETY: both fill what they are given.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let options = libc::WEXITED | libc::WSTOPPED | libc::__WALL;
            let id = self.thread as libc::id_t;
            while libc::waitid(libc::P_PID, id, &raw mut info, options | libc::WNOWAIT) != 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            if matches!(info.si_code, libc::CLD_EXITED | libc::CLD_KILLED | libc::CLD_DUMPED) {
                return Ok(None);
            }
            if libc::waitpid(self.thread, &raw mut status, libc::__WALL) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(Some(match libc::WSTOPSIG(status) {
            libc::SIGTRAP if status >> 16 != 0 => Stop::Event,
            _ if status >> 16 != 0 => Stop::Group,
            number if number == libc::SIGTRAP | 0x80 => Stop::Call,
            number => Stop::Signal(number),
        }))
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        let _ = self.ask(libc::PTRACE_DETACH, 0);
    }
}
