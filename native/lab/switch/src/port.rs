//! One guest's cable: frames in, a bounded queue of frames out.

use crate::frames::{Frames, TooLong};
use rustix::io::Errno;
use rustix::net::{recv, send, RecvFlags, SendFlags};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Frames for a guest that does not fetch them are dropped beyond this, as by any switch.
pub const MAX_QUEUE: usize = 1 << 20;

pub struct Port {
    socket: OwnedFd,
    queue: VecDeque<u8>,
    pub count: Count,
}

/// Frames that came from a guest, those that went to it, and those that it did not fetch.
#[derive(Default)]
pub struct Count {
    pub from: u64,
    pub to: u64,
    pub dropped: u64,
}

#[derive(Debug)]
pub enum End {
    HungUp,
    TooLong(usize),
    Io(io::Error),
}

impl From<TooLong> for End {
    fn from(TooLong(length): TooLong) -> Self {
        Self::TooLong(length)
    }
}

impl Port {
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, queue: VecDeque::new(), count: Count::default() }
    }

    /// Take in what has arrived. An error is the end of this port.
    pub fn receive(&self, frames: &mut Frames) -> Result<(), End> {
        let read = frames.fill(|room| Ok(recv(&self.socket, room, RecvFlags::DONTWAIT)?.0));
        match read {
            Ok(0) => Err(End::HungUp),
            Ok(_) => Ok(()),
            Err(error) => or_later(error),
        }
    }

    /// Queue a frame with its prefix, whole or not at all.
    pub fn queue(&mut self, frame: &[u8]) {
        if self.queue.len() + frame.len() > MAX_QUEUE {
            self.count.dropped += 1;
            return;
        }
        self.count.to += 1;
        self.queue.extend(frame);
    }

    pub fn has_queue(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Send what the other end has room for.
    pub fn flush(&mut self) -> Result<(), End> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !self.queue.is_empty() {
            match send(&self.socket, self.queue.as_slices().0, flags) {
                Ok(count) => drop(self.queue.drain(..count)),
                Err(errno) => return or_later(errno.into()),
            }
        }
        Ok(())
    }
}

impl AsFd for Port {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn or_later(error: io::Error) -> Result<(), End> {
    match Errno::from_io_error(&error) {
        Some(Errno::AGAIN | Errno::INTR) => Ok(()),
        Some(Errno::CONNRESET | Errno::PIPE) => Err(End::HungUp),
        _ => Err(End::Io(error)),
    }
}

impl fmt::Display for End {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HungUp => out.write_str("hung up"),
            Self::TooLong(length) => write!(out, "cut off: it announced a frame of {length} bytes"),
            Self::Io(error) => write!(out, "cut off: {error}"),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, dropped } = self;
        write!(out, "{from} frames from it, {to} to it, {dropped} dropped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{socketpair, AddressFamily, SocketFlags, SocketType};

    #[test]
    fn what_is_not_fetched_is_dropped_whole() {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)
                .unwrap();
        let mut port = Port::new(ours);
        let frame = [1; 1518];
        for _ in 0..10_000 {
            port.queue(&frame);
            port.flush().unwrap();
            assert!(port.queue.len() <= MAX_QUEUE);
        }
        assert!(port.count.dropped > 0 && port.has_queue());
        let mut fetched = 0;
        let mut room = vec![0; 1 << 16];
        while port.has_queue() {
            fetched += recv(&theirs, &mut room[..], RecvFlags::empty()).unwrap().0 as u64;
            port.flush().unwrap();
        }
        while fetched < port.count.to * frame.len() as u64 {
            fetched += recv(&theirs, &mut room[..], RecvFlags::empty()).unwrap().0 as u64;
        }
        assert_eq!(fetched, port.count.to * frame.len() as u64);
        assert_eq!(port.count.to + port.count.dropped, 10_000);
        drop(theirs);
        assert!(matches!(port.receive(&mut Frames::default()), Err(End::HungUp)));
        port.queue(&frame);
        assert!(matches!(port.flush(), Err(End::HungUp)));
    }
}
