//! Start a probe, bounded in time and output, and read its one line.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{kill_process_group, pidfd_open, Pid, PidfdFlags, Signal};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A real sync(2) on a busy host takes its time.
pub const PATIENCE: Duration = Duration::from_secs(60);
const MAX_OUTPUT: usize = 1 << 16;

/// Runs a program whose last line of JSON is the answer; otherwise says in words what went wrong.
///
/// Errors go to the same pipe as the answer: what a dropper has to say explains its failure.
pub fn ask<T: DeserializeOwned>(argv: &[OsString]) -> Result<T, String> {
    let (program, arguments) = argv.split_first().ok_or("no program was named")?;
    let flags = rustix::pipe::PipeFlags::CLOEXEC;
    let (reader, writer) = rustix::pipe::pipe_with(flags).map_err(|error| error.to_string())?;
    let errors = writer.try_clone().map_err(|error| error.to_string())?;
    let child = Command::new(program)
        .args(arguments)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("{} does not start: {error}", program.to_string_lossy()))?;
    let end = Instant::now() + PATIENCE;
    let said = read_all(File::from(reader), end);
    let ended = said.and_then(|said| wait_until_ended(&child, end).map(|()| said));
    let status = end_group(child);
    let text = String::from_utf8_lossy(&ended?).into_owned();
    let answer = text.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    answer.ok_or_else(|| {
        let words = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no word");
        format!("{status}, {}", words.chars().take(120).collect::<String>())
    })
}

/// Ends what a program started, and it; how it ended if it had already.
///
/// Nobody has waited for it yet: its number is not another's.
fn end_group(mut child: Child) -> String {
    if let Some(group) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
}

fn wait_until_ended(child: &Child, end: Instant) -> Result<(), String> {
    let pid = Pid::from_raw(child.id() as i32).ok_or("a program without a number")?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(|error| error.to_string())?;
    wait_readable(&handle, end)
}

fn wait_readable(what: impl AsFd, end: Instant) -> Result<(), String> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let time = Timespec::try_from(left).map_err(|error| error.to_string())?;
        match poll(&mut [PollFd::new(&what, PollFlags::IN)], Some(&time)) {
            Ok(0) => return Err(format!("no answer within {} s", PATIENCE.as_secs())),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => (),
            Err(error) => return Err(error.to_string()),
        }
    }
}

fn read_all(mut from: File, end: Instant) -> Result<Vec<u8>, String> {
    let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        wait_readable(&from, end)?;
        match from.read(&mut chunk).map_err(|error| error.to_string())? {
            0 => return Ok(said),
            _ if said.len() > MAX_OUTPUT => return Err("more output than an answer".to_owned()),
            length => said.extend_from_slice(&chunk[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<u64, String> {
        ask(&["sh", "-c", script].map(OsString::from))
    }

    #[test]
    fn the_last_line_that_is_an_answer_counts() {
        assert_eq!(shell("echo 1; echo 2; echo data is at risk >&2"), Ok(2));
    }

    #[test]
    fn what_was_started_is_ended_with_it() {
        let pid = shell("sleep 1000 >/dev/null 2>&1 & echo $!").unwrap();
        // Until its new parent has waited for it, a process that was killed is still a zombie.
        let alive = || std::fs::read_to_string(format!("/proc/{pid}/stat"));
        let end = Instant::now() + Duration::from_secs(60);
        while alive().is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < end, "{pid} still runs");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_goes_wrong_is_told() {
        assert!(shell("echo no such thing >&2; exit 7").unwrap_err().contains("no such thing"));
        assert!(shell("kill -SYS $$").unwrap_err().contains("signal: 31"));
        assert!(shell("yes").unwrap_err().contains("more output"));
        let missing = ask::<u64>(&[OsString::from("/nowhere/at/all")]).unwrap_err();
        assert!(missing.contains("/nowhere/at/all does not start"), "{missing}");
    }
}
