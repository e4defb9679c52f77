//! Start a probe, bounded in time and output, and read its one line.

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use serde::de::DeserializeOwned;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A real sync(2) on a busy host takes its time.
const PATIENCE: Duration = Duration::from_secs(60);
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
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(errors)
        .spawn()
        .map_err(|error| format!("{} does not start: {error}", program.to_string_lossy()))?;
    let mut child = Ended(child);
    let said = read_all(File::from(reader))?;
    let status = child.0.wait().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&said);
    let answer = text.lines().rev().find_map(|line| serde_json::from_str(line).ok());
    answer.ok_or_else(|| {
        let words = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no word");
        format!("{status}, {}", words.chars().take(120).collect::<String>())
    })
}

/// Killed and waited for, however the asking ends.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read_all(mut from: File) -> Result<Vec<u8>, String> {
    let end = Instant::now() + PATIENCE;
    let (mut said, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let time = Timespec::try_from(left).map_err(|error| error.to_string())?;
        match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&time)) {
            Ok(0) => return Err(format!("no answer within {} s", PATIENCE.as_secs())),
            Ok(_) => (),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.to_string()),
        }
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
    fn what_goes_wrong_is_told() {
        assert!(shell("echo no such thing >&2; exit 7").unwrap_err().contains("no such thing"));
        assert!(shell("kill -SYS $$").unwrap_err().contains("signal: 31"));
        assert!(shell("yes").unwrap_err().contains("more output"));
        let missing = ask::<u64>(&[OsString::from("/nowhere/at/all")]).unwrap_err();
        assert!(missing.contains("/nowhere/at/all does not start"), "{missing}");
    }
}
