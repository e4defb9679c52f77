//! The pipes of a running program: its input fed, its output and acks turned into events.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::Instant;

use diskproof_wire::{Bytes, Event, Stream, MAX_ACK_LINE, MAX_CHUNK};
use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_setfl, OFlags};
use rustix::io::{read, write, Errno};

use crate::ack_lines::AckLines;
use crate::channel::Outbox;
use crate::clocks::monotonic_ns;
use crate::failure::{Doing, Outcome};

/// Our ends of a program's pipes; a closed one is gone.
pub struct Streams {
    acks: Option<(OwnedFd, AckLines)>,
    stdout: Option<OwnedFd>,
    stderr: Option<OwnedFd>,
    stdin: Option<(OwnedFd, Vec<u8>)>,
}

impl Streams {
    pub fn of(
        child: &mut Child,
        input: Option<Vec<u8>>,
        acks: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let stdin = child.stdin.take().map(OwnedFd::from);
        if let Some(stdin) = &stdin {
            // A program that does not read must not stop us from reading it.
            fcntl_setfl(stdin, OFlags::NONBLOCK)?;
        }
        Ok(Streams {
            acks: acks.map(|acks| (acks, AckLines::new(MAX_ACK_LINE))),
            stdout: child.stdout.take().map(OwnedFd::from),
            stderr: child.stderr.take().map(OwnedFd::from),
            stdin: stdin.zip(input),
        })
    }

    /// Move bytes until all outputs are closed (true) or the deadline has passed (false).
    pub fn pump(&mut self, id: u64, deadline: Instant, outbox: &Outbox) -> Outcome<bool> {
        while self.acks.is_some() || self.stdout.is_some() || self.stderr.is_some() {
            let Some(ready) = self.wait(deadline).doing(|| "cannot wait for pipes".to_owned())?
            else {
                return Ok(false);
            };
            // Acks first: what they are stamped with is the time of this read.
            if ready.acks {
                self.read_acks(id, outbox)?;
            }
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
            self.acks.as_ref().map(|(fd, _)| PollFd::new(fd, PollFlags::IN)),
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
        let [acks, stdout, stderr, stdin] = &pipes;
        Ok(Some(Ready {
            acks: is_ready(acks),
            stdout: is_ready(stdout),
            stderr: is_ready(stderr),
            stdin: is_ready(stdin),
        }))
    }

    fn read_acks(&mut self, id: u64, outbox: &Outbox) -> Outcome<()> {
        let Some((fd, lines)) = &mut self.acks else { return Ok(()) };
        let mut buffer = [0u8; 4096];
        let count = read_some(fd, &mut buffer)?;
        let monotonic_ns = monotonic_ns();
        let texts = if count == 0 { lines.end() } else { lines.push(&buffer[..count]) };
        if count == 0 {
            self.acks = None;
        }
        let event = |line| Event::Ack { id, line, monotonic_ns };
        outbox.send_all(&texts.into_iter().map(event).collect::<Vec<_>>())
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
    acks: bool,
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
