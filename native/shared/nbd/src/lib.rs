//! A small NBD client over a Unix socket: fixed newstyle handshake, then READ, WRITE, FLUSH and FUA
//! with simple replies.
//!
//! Source: the protocol's `doc/proto.md`. The server is not trusted: lengths, counts and waits are
//! bounded.

#![forbid(unsafe_code)]

mod handshake;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diskproof_wire::ledger::ReadAt;

pub use handshake::Export;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
const FLAG_FUA: u16 = 1;
/// The largest READ: what every server must take.
const MAX_READ: usize = 256 << 10;

#[derive(Clone, Copy, PartialEq)]
#[repr(u16)]
enum Command {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
}

/// Who waits for a reply, and how many bytes come with it.
struct Waiting {
    answer: SyncSender<io::Result<Vec<u8>>>,
    length: usize,
}

/// By cookie; or why the connection is no more.
type Pending = Arc<Mutex<Result<HashMap<u64, Waiting>, Broken>>>;

/// An error that everybody who waits is told.
#[derive(Clone)]
struct Broken {
    kind: io::ErrorKind,
    why: String,
}

impl Broken {
    fn error(&self) -> io::Error {
        io::Error::new(self.kind, self.why.clone())
    }
}

pub struct Nbd {
    stream: Mutex<UnixStream>,
    pending: Pending,
    cookie: AtomicU64,
    pub export: Export,
    patience: Duration,
}

impl Nbd {
    /// Connects; `patience` bounds the handshake and, later, the answer to each request.
    pub fn connect(socket: &Path, name: &str, patience: Duration) -> io::Result<Nbd> {
        Nbd::open(socket, name, patience)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", socket.display())))
    }

    fn open(socket: &Path, name: &str, patience: Duration) -> io::Result<Nbd> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_write_timeout(Some(patience))?;
        let export = handshake::negotiate(&mut stream, name, patience)?;
        stream.set_read_timeout(None)?;
        let pending: Pending = Arc::new(Mutex::new(Ok(HashMap::new())));
        let (reader, waiting) = (stream.try_clone()?, pending.clone());
        std::thread::Builder::new().name("nbd".into()).spawn(move || {
            let broken = read_replies(reader, &waiting);
            tell_all(&waiting, broken);
        })?;
        let cookie = AtomicU64::new(1);
        Ok(Nbd { stream: Mutex::new(stream), pending, cookie, export, patience })
    }

    /// Writes; with `durable` the data is on stable storage when this returns (FUA).
    pub fn write(&self, offset: u64, data: &[u8], durable: bool) -> io::Result<()> {
        let flags = if durable { FLAG_FUA } else { 0 };
        self.request(Command::Write, flags, offset, data, data.len()).map(drop)
    }

    /// Brings to stable storage what was written before.
    pub fn flush(&self) -> io::Result<()> {
        self.request(Command::Flush, 0, 0, &[], 0).map(drop)
    }

    /// Asks the server. An error with a number of the system is the server's answer to this
    /// request; what happens to the connection has none.
    fn request(
        &self,
        command: Command,
        flags: u16,
        offset: u64,
        data: &[u8],
        length: usize,
    ) -> io::Result<Vec<u8>> {
        let cookie = self.cookie.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = sync_channel(1);
        let expected = if command == Command::Read { length } else { 0 };
        match self.pending.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Err(broken) => return Err(broken.error()),
            Ok(pending) => pending.insert(cookie, Waiting { answer, length: expected }),
        };
        let mut message = Vec::with_capacity(28 + data.len());
        message.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        message.extend_from_slice(&flags.to_be_bytes());
        message.extend_from_slice(&(command as u16).to_be_bytes());
        message.extend_from_slice(&cookie.to_be_bytes());
        message.extend_from_slice(&offset.to_be_bytes());
        message.extend_from_slice(&(length as u32).to_be_bytes());
        message.extend_from_slice(data);
        let sent = self.stream.lock().unwrap_or_else(PoisonError::into_inner).write_all(&message);
        if let Err(error) = sent {
            let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            return Err(pending.as_ref().err().cloned().unwrap_or_else(|| lost(error)).error());
        }
        // Everybody who waits is answered, also when the connection breaks.
        answered.recv_timeout(self.patience).unwrap_or_else(|_| {
            let why = format!("no answer within {:.0} s", self.patience.as_secs_f64());
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        })
    }
}

impl Drop for Nbd {
    /// Says good-bye and ends the reader.
    fn drop(&mut self) {
        let mut message = [0; 28];
        message[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        message[6..8].copy_from_slice(&(Command::Disconnect as u16).to_be_bytes());
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = stream.write_all(&message);
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn lost(error: io::Error) -> Broken {
    let why = format!("the connection to the NBD server was lost: {error}");
    Broken { kind: error.kind(), why }
}

fn broken(why: &str) -> Broken {
    let why = format!("the NBD server breaks the protocol: {why}");
    Broken { kind: io::ErrorKind::InvalidData, why }
}

/// Hands every reply to who waits for it, until the connection ends; gives why it did.
fn read_replies(mut stream: impl Read, pending: &Pending) -> Broken {
    loop {
        let mut reply = [0; 16];
        if let Err(error) = stream.read_exact(&mut reply) {
            return lost(error);
        }
        if reply[..4] != REPLY_MAGIC.to_be_bytes() {
            return broken("a reply has a wrong magic");
        }
        let code = u32::from_be_bytes(std::array::from_fn(|index| reply[4 + index]));
        let cookie = u64::from_be_bytes(std::array::from_fn(|index| reply[8 + index]));
        let waiting = pending
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
            .ok()
            .and_then(|all| all.remove(&cookie));
        let Some(Waiting { answer, length }) = waiting else {
            return broken("a reply to no request");
        };
        let mut data = vec![0; if code == 0 { length } else { 0 }];
        let result = match stream.read_exact(&mut data) {
            Err(error) => Err(lost(error).error()),
            Ok(()) if code == 0 => Ok(data),
            // NBD's numbers are Linux's.
            Ok(()) => Err(io::Error::from_raw_os_error(i32::try_from(code).unwrap_or(5))),
        };
        // Who lost patience is gone.
        let _ = answer.send(result);
    }
}

fn tell_all(pending: &Pending, broken: Broken) {
    let waiting = std::mem::replace(
        &mut *pending.lock().unwrap_or_else(PoisonError::into_inner),
        Err(broken.clone()),
    );
    for waiting in waiting.into_iter().flat_map(HashMap::into_values) {
        let _ = waiting.answer.send(Err(broken.error()));
    }
}

impl ReadAt for Nbd {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.fill(0);
        let mut offset = offset;
        for part in buffer.chunks_mut(MAX_READ) {
            let there = self.export.size.saturating_sub(offset).min(part.len() as u64) as usize;
            if there > 0 {
                let data = self.request(Command::Read, 0, offset, &[], there)?;
                part[..there].copy_from_slice(&data);
            }
            offset += part.len() as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests for 0, 1, 2 and 3 times 100 bytes are waiting.
    #[test]
    fn any_replies_answer_who_waits_or_break_the_connection() {
        bolero::check!(name = "replies").for_each(|replies: &[u8]| {
            let (ask, answers): (Vec<_>, Vec<_>) = (0..4).map(|_| sync_channel(1)).unzip();
            let waiting = ask.into_iter().enumerate();
            let waiting =
                waiting.map(|(at, answer)| (at as u64, Waiting { answer, length: at * 100 }));
            let pending: Pending = Arc::new(Mutex::new(Ok(waiting.collect())));
            let broken = read_replies(replies, &pending);
            tell_all(&pending, broken);
            for (at, answer) in answers.iter().enumerate() {
                if let Ok(data) = answer.try_recv().unwrap() {
                    assert_eq!(data.len(), at * 100);
                }
            }
        });
    }
}
