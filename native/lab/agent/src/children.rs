//! Starting and reaping processes: PID 1 inherits every orphan, so all waiting is done in one
//! place.

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::process::{Child, Command};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{waitid, WaitId, WaitIdOptions};

/// How a process ended, from wait4(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub user_us: u64,
    pub system_us: u64,
}

/// The processes somebody waits for.
#[derive(Default)]
pub struct Children {
    table: Mutex<Table>,
    spawned: Condvar,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<i32, Sender<Ended>>,
    spawns: u64,
}

impl Children {
    /// Start a process; the receiver gets its end. Never wait on the [`Child`] itself.
    pub fn spawn(&self, command: &mut Command) -> io::Result<(Child, Receiver<Ended>)> {
        // Held over the whole of spawn: a command that cannot be executed is reaped in there, and
        // the reaper must neither take that one nor see a process before it is in the table.
        let mut table = self.lock();
        let child = command.spawn()?;
        let (sender, receiver) = channel();
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        table.waiting.insert(pid, sender);
        table.spawns += 1;
        self.spawned.notify_one();
        Ok((child, receiver))
    }

    /// Reap for ever.
    pub fn reap(&self) -> ! {
        let mut seen = 0;
        loop {
            match waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
                Err(Errno::CHILD) => seen = self.wait_for_spawn(seen),
                _ => self.reap_ended(),
            }
        }
    }

    fn wait_for_spawn(&self, seen: u64) -> u64 {
        let table = self.lock();
        let waited = self.spawned.wait_while(table, |table| table.spawns == seen);
        waited.unwrap_or_else(PoisonError::into_inner).spawns
    }

    fn reap_ended(&self) {
        let mut table = self.lock();
        while let Some((pid, ended)) = wait_any() {
            if let Some(sender) = table.waiting.remove(&pid) {
                // Whoever no longer waits does not need to know.
                let _ = sender.send(ended);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// wait4(2) for any ended child, without blocking: the only call that also tells what it used.
fn wait_any() -> Option<(i32, Ended)> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are to live values of the types the call fills in.
    let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, usage.as_mut_ptr()) };
    // SAFETY: rusage is plain numbers, for which zeroes are a value even if the call wrote nothing.
    let usage = unsafe { usage.assume_init() };
    (pid > 0).then(|| (pid, read_end(status, &usage)))
}

fn read_end(status: i32, usage: &libc::rusage) -> Ended {
    Ended {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        user_us: microseconds(usage.ru_utime),
        system_us: microseconds(usage.ru_stime),
    }
}

fn microseconds(time: libc::timeval) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(time.tv_usec).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;
    use std::thread;

    use super::*;

    // One for all tests of the program: the reaper takes every child of the process.
    static CHILDREN: LazyLock<&'static Children> = LazyLock::new(|| {
        let children: &'static Children = Box::leak(Box::default());
        thread::spawn(|| children.reap());
        children
    });

    fn run(script: &str) -> Ended {
        let mut command = Command::new("/bin/sh");
        let (_child, ended) = CHILDREN.spawn(command.args(["-c", script])).unwrap();
        ended.recv().unwrap()
    }

    #[test]
    fn every_end_reaches_its_own_waiter() {
        let waiters = (0..8).map(|n| {
            thread::spawn(move || {
                for round in 0..5 {
                    let code = n * 5 + round;
                    assert_eq!(run(&format!("exit {code}")).code, Some(code));
                }
            })
        });
        waiters.collect::<Vec<_>>().into_iter().for_each(|waiter| waiter.join().unwrap());
        let killed = run("kill -KILL $$");
        assert_eq!((killed.code, killed.signal), (None, Some(9)));
    }

    #[test]
    fn what_cannot_start_is_an_error_and_does_not_disturb_the_reaper() {
        for _ in 0..20 {
            let error = CHILDREN.spawn(&mut Command::new("/nonexistent")).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
        assert_eq!(run("exit 3").code, Some(3));
    }
}
