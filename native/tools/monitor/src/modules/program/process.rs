//! A program that runs beside the monitor: its lines are taken as they come, it is never waited
//! for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_setfl, OFlags};
use rustix::io::{read, Errno};
use rustix::process::{
    kill_process_group, set_parent_process_death_signal, waitid, Pid, Signal, WaitId, WaitIdOptions,
};

/// A line with 256 columns has 8 KiB; who writes more without an end writes no lines.
const LONGEST_LINE: usize = 64 << 10;
/// Read at one tick: a program that floods us is held up by its full pipe.
const MOST_PER_TICK: usize = 1 << 20;
const LAST_WORDS: usize = 300;
/// From the request to end until it is killed.
const GRACE: Duration = Duration::from_millis(200);

pub struct Program {
    child: Child,
    group: Pid,
    output: OwnedFd,
    errors: OwnedFd,
    text: Vec<u8>,
    last_words: Vec<u8>,
    over: bool,
}

impl Program {
    /// `interval` (seconds) is told in the environment.
    pub fn start(words: &[String], interval: f64) -> io::Result<Self> {
        let (program, arguments) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).env("DISKPROOF_INTERVAL", interval.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own: Ctrl-C is for the monitor, and all that the program starts ends with
        // it.
        command.process_group(0);
        // SAFETY: between fork and exec only calls that are safe there (signal-safety(7)) are made.
        unsafe { command.pre_exec(prepare_child) };
        let mut child = command.spawn()?;
        let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let (output, errors) = (OwnedFd::from(output), OwnedFd::from(errors));
        fcntl_setfl(&output, OFlags::NONBLOCK)?;
        fcntl_setfl(&errors, OFlags::NONBLOCK)?;
        let group = Pid::from_child(&child);
        let (text, last_words) = (Vec::new(), Vec::new());
        Ok(Program { child, group, output, errors, text, last_words, over: false })
    }

    /// The first line, or why there is none. What floods us after it waits in its pipe.
    pub fn wait_line(&mut self, patience: Duration) -> Result<Vec<u8>, String> {
        let deadline = Instant::now() + patience;
        loop {
            self.take_complaints();
            let (room, text) = (LONGEST_LINE.saturating_sub(self.text.len()), &mut self.text);
            let at_end =
                read_some(self.output.as_fd(), room, |bytes| text.extend_from_slice(bytes));
            if let Some(end) = self.text.iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.text.drain(..=end).collect();
                line.pop();
                return Ok(line);
            }
            if self.text.len() >= LONGEST_LINE {
                return Err(format!("its first line has more than {} KiB", LONGEST_LINE >> 10));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if at_end || left.is_zero() {
                let silence = format!("no header came within {} s", patience.as_secs());
                return Err(self.wait_end().unwrap_or(silence));
            }
            let left = Timespec::try_from(left).map_err(|error| error.to_string())?;
            let _ = poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&left));
        }
    }

    /// The newest whole line that has come since the last call.
    pub fn take_last_line(&mut self) -> Option<Vec<u8>> {
        self.take_in();
        let end = self.text.iter().rposition(|&byte| byte == b'\n')?;
        let begin = self.text[..end].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let line = self.text[begin..end].to_vec();
        self.text.drain(..=end);
        Some(line)
    }

    /// Why it is over, told once. What it started ends as well.
    pub fn take_end(&mut self) -> Option<String> {
        if self.over || !self.has_ended() {
            return None;
        }
        let status = self.end();
        self.take_complaints();
        Some(format!("it ended ({status}){}", shown_words(&self.last_words)))
    }

    /// The same for one whose output is at its end already.
    fn wait_end(&mut self) -> Option<String> {
        self.wait_until_ended(Duration::from_secs(2));
        self.take_end()
    }

    fn wait_until_ended(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline && !self.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Without taking its number back, which is its group's as well.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.group), options), Ok(None))
    }

    /// End the whole group and take the number back.
    fn end(&mut self) -> String {
        let _ = kill_process_group(self.group, Signal::KILL);
        self.over = true;
        self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
    }

    /// Read what there is.
    fn take_in(&mut self) {
        self.take_complaints();
        let text = &mut self.text;
        read_some(self.output.as_fd(), MOST_PER_TICK, |bytes| {
            text.extend_from_slice(bytes);
            // Of lines that were overtaken only the last is of use.
            if text.len() > LONGEST_LINE {
                match text.iter().rposition(|&byte| byte == b'\n') {
                    Some(end) if text.len() - end <= LONGEST_LINE => {
                        let begin = text[..end].iter().rposition(|&byte| byte == b'\n');
                        text.drain(..begin.map_or(0, |at| at + 1));
                    }
                    _ => text.clear(),
                }
            }
        });
    }

    /// Only the end of its standard error is kept.
    fn take_complaints(&mut self) {
        let words = &mut self.last_words;
        read_some(self.errors.as_fd(), MOST_PER_TICK, |bytes| keep_end(words, bytes, LAST_WORDS));
    }
}

impl Drop for Program {
    /// The program and all that it has started.
    fn drop(&mut self) {
        if !self.over {
            let _ = kill_process_group(self.group, Signal::TERM);
            self.wait_until_ended(GRACE);
            self.end();
        }
    }
}

/// In the child: die with the monitor, and take signals that the monitor waits for in its own way.
fn prepare_child() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // SAFETY: the set is initialised by sigemptyset before its use, and outlives the calls.
    unsafe {
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
    Ok(())
}

/// Up to about `most` bytes of what can be read now; true at the end.
fn read_some(from: std::os::fd::BorrowedFd<'_>, most: usize, mut take: impl FnMut(&[u8])) -> bool {
    let (mut taken, mut chunk) = (0, [0; 16 << 10]);
    while taken < most {
        match read(from, &mut chunk) {
            Ok(0) => return true,
            Ok(count) => {
                taken += count;
                take(&chunk[..count]);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return false,
            Err(_) => return true,
        }
    }
    false
}

fn keep_end(words: &mut Vec<u8>, bytes: &[u8], most: usize) {
    words.extend_from_slice(bytes);
    let surplus = words.len().saturating_sub(most);
    words.drain(..surplus);
}

/// The last line of what it complained about, without what a terminal would obey.
fn shown_words(words: &[u8]) -> String {
    let text = String::from_utf8_lossy(words);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let plain: String = last.chars().filter(|character| !character.is_control()).collect();
    if plain.is_empty() {
        plain
    } else {
        format!(": {plain}")
    }
}
