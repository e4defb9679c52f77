//! The pipes of a running program: its input fed, its output turned into events.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::Instant;

use diskproof_wire::{Bytes, Event, Stream, MAX_CHUNK};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_setfl, OFlags};
use rustix::io::{read, write, Errno};

use crate::channel::Outbox;
use crate::failure::{Doing, Outcome};

/// Our ends of a program's pipes; a closed one is gone.
pub struct Streams {
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    stdin: Option<(OwnedFd, Vec<u8>)>,
}

impl Streams {
    pub fn of(child: &mut Child, input: Option<Vec<u8>>) -> io::Result<Self> {
        let stdin = child.stdin.take().map(OwnedFd::from);
        if let Some(stdin) = &stdin {
            // A program that does not read must not stop us from reading it.
            fcntl_setfl(stdin, OFlags::NONBLOCK)?;
        }
        Ok(Streams {
            stdout: child.stdout.take().map(OwnedFd::from),
            stderr: child.stderr.take().map(OwnedFd::from),
            stdin: stdin.zip(input),
        })
    }

    /// Move bytes until all outputs are closed (true) or the deadline has passed (false).
    pub fn pump(&mut self, id: u64, deadline: Instant, outbox: &Outbox) -> Outcome<bool> {
        while self.stdout.is_some() || self.stderr.is_some() {
            let Some(ready) = self.wait(deadline).doing(|| "cannot wait for pipes".to_owned())?
            else {
                return Ok(false);
            };
            if ready.stdout {
                read_output(&mut self.stdout, id, Stream::Stdout, outbox)?;
            }
            if ready.stderr {
                read_output(&mut self.stderr, id, Stream::Stderr, outbox)?;
            }
            if ready.stdin {
                self.feed();
            }
        }
        Ok(true)
    }

    /// Which pipes have something to do; None at the deadline.
    fn wait(&self, deadline: Instant) -> io::Result<Option<Ready>> {
        let pipes = [
            self.stdout.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)),
            self.stderr.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)),
            self.stdin.as_ref().map(|(fd, _)| PollFd::new(fd, PollFlags::OUT)),
        ];
        let mut polled: Vec<PollFd<'_>> = pipes.iter().flatten().cloned().collect();
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut polled, Some(&left)) {
            Ok(0) => return Ok(None),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut events = polled.iter().map(|pipe| !pipe.revents().is_empty());
        let mut is_ready =
            |pipe: &Option<PollFd<'_>>| pipe.is_some() && events.next() == Some(true);
        let [stdout, stderr, stdin] = &pipes;
        Ok(Some(Ready {
            stdout: is_ready(stdout),
            stderr: is_ready(stderr),
            stdin: is_ready(stdin),
        }))
    }

    fn feed(&mut self) {
        let Some((fd, left)) = &mut self.stdin else { return };
        match write(fd.as_fd(), left) {
            Ok(count) => drop(left.drain(..count)),
            Err(Errno::AGAIN | Errno::INTR) => {}
            // It does not want the rest.
            Err(_) => left.clear(),
        }
        if left.is_empty() {
            self.stdin = None;
        }
    }
}

struct Ready {
    stdout: bool,
    stderr: bool,
    stdin: bool,
}

fn read_output(
    pipe: &mut Option<OwnedFd>,
    id: u64,
    stream: Stream,
    outbox: &Outbox,
) -> Outcome<()> {
    let Some(fd) = pipe else { return Ok(()) };
    let mut buffer = [0u8; MAX_CHUNK];
    let count = read_some(fd, &mut buffer)?;
    if count == 0 {
        *pipe = None;
        return Ok(());
    }
    outbox.send(&Event::Output { id, stream, data: Bytes(buffer[..count].to_vec()) })
}

fn read_some(fd: &OwnedFd, buffer: &mut [u8]) -> Outcome<usize> {
    loop {
        match read(fd, &mut *buffer) {
            Err(Errno::INTR) => continue,
            other => return other.doing(|| "cannot read a pipe".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::Duration;

    use diskproof_wire::parse_event;

    use super::*;

    /// The events of a shell script, and whether it closed its pipes within the limit.
    fn pump(script: &str, input: Vec<u8>, limit: Duration) -> (bool, Vec<Event>) {
        let mut child = Command::new("/bin/sh")
            .args(["-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut streams = Streams::of(&mut child, Some(input)).unwrap();
        let (mut host, guest) = UnixStream::pair().unwrap();
        let outbox = Outbox::new(File::from(OwnedFd::from(guest)));
        let reader = thread::spawn(move || {
            let mut text = Vec::new();
            host.read_to_end(&mut text).unwrap();
            text
        });
        let closed = streams.pump(7, Instant::now() + limit, &outbox).unwrap();
        let _ = child.kill(); // other tests' reaper may have taken it
        drop(outbox);
        let text = reader.join().unwrap();
        let lines = text.split_inclusive(|&byte| byte == b'\n');
        (closed, lines.map(|line| parse_event(line).unwrap()).collect())
    }

    #[test]
    fn input_comes_back_whole_beside_what_goes_to_stderr() {
        let input: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        let script = "echo one >&2; cat; printf tail >&2";
        let (closed, events) = pump(script, input.clone(), Duration::from_secs(60));
        assert!(closed);
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        for event in events {
            match event {
                Event::Output { id: 7, stream: Stream::Stdout, data } => output.extend(data.0),
                Event::Output { id: 7, stream: Stream::Stderr, data } => errors.extend(data.0),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(output, input);
        assert_eq!(errors, b"one\ntail");
    }

    #[test]
    fn a_program_that_does_not_read_or_end_is_left_at_the_deadline() {
        let (closed, events) = pump("exec sleep 600", vec![0; 300_000], Duration::from_millis(30));
        assert!(!closed);
        assert!(events.is_empty());
    }

    #[test]
    fn input_that_nobody_wants_is_dropped() {
        let (closed, _) = pump("exec <&-; echo done", vec![0; 300_000], Duration::from_secs(60));
        assert!(closed);
    }
}
