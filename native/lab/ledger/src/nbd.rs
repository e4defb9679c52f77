//! A small NBD client over a Unix socket: fixed newstyle handshake, then READ, WRITE, FLUSH and FUA with simple replies.
//!
//! Source: the protocol's `doc/proto.md`. The server is not trusted: lengths, counts and waits are bounded.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diskproof_wire::ledger::{Geometry, ReadAt};

use crate::handshake::{self, Export};
use crate::target::{named, Block, Durable, Target};

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
        let connect = || {
            let mut stream = UnixStream::connect(socket)?;
            stream.set_write_timeout(Some(patience))?;
            let export = handshake::negotiate(&mut stream, name, patience)?;
            stream.set_read_timeout(None)?;
            Ok((stream, export))
        };
        let (stream, export) = connect().map_err(|error| named(socket.display(), error))?;
        let pending: Pending = Arc::new(Mutex::new(Ok(HashMap::new())));
        let (reader, waiting) = (stream.try_clone()?, pending.clone());
        std::thread::Builder::new().name("nbd".into()).spawn(move || {
            let broken = read_replies(reader, &waiting);
            tell_all(&waiting, broken);
        })?;
        let cookie = AtomicU64::new(1);
        Ok(Nbd { stream: Mutex::new(stream), pending, cookie, export, patience })
    }

    fn request(
        &self,
        command: Command,
        fua: bool,
        offset: u64,
        data: &[u8],
        length: usize,
    ) -> io::Result<Vec<u8>> {
        let cookie = self.cookie.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = sync_channel(1);
        let expected = if command == Command::Read { length } else { 0 };
        match self.pending.lock().unwrap().as_mut() {
            Err(broken) => return Err(broken.error()),
            Ok(pending) => pending.insert(cookie, Waiting { answer, length: expected }),
        };
        let mut message = Vec::with_capacity(28 + data.len());
        message.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        message.extend_from_slice(&(if fua { FLAG_FUA } else { 0 }).to_be_bytes());
        message.extend_from_slice(&(command as u16).to_be_bytes());
        message.extend_from_slice(&cookie.to_be_bytes());
        message.extend_from_slice(&offset.to_be_bytes());
        message.extend_from_slice(&(length as u32).to_be_bytes());
        message.extend_from_slice(data);
        let sent = self.stream.lock().unwrap().write_all(&message);
        if let Err(error) = sent {
            return Err(self.pending.lock().unwrap().as_ref().err().map_or(error, Broken::error));
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
        let stream = self.stream.get_mut().unwrap();
        let _ = stream.write_all(&message);
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn broken(why: &str) -> Broken {
    let why = format!("the NBD server breaks the protocol: {why}");
    Broken { kind: io::ErrorKind::InvalidData, why }
}

/// Hands every reply to who waits for it, until the connection ends; gives why it did.
fn read_replies(mut stream: UnixStream, pending: &Pending) -> Broken {
    let lost = |error: io::Error| Broken {
        kind: error.kind(),
        why: format!("the connection to the NBD server was lost: {error}"),
    };
    loop {
        let mut reply = [0; 16];
        if let Err(error) = stream.read_exact(&mut reply) {
            return lost(error);
        }
        if reply[..4] != REPLY_MAGIC.to_be_bytes() {
            return broken("a reply has a wrong magic");
        }
        let code = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        let cookie = u64::from_be_bytes(reply[8..].try_into().unwrap());
        let waiting = pending.lock().unwrap().as_mut().ok().and_then(|all| all.remove(&cookie));
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
    let waiting = std::mem::replace(&mut *pending.lock().unwrap(), Err(broken.clone()));
    for waiting in waiting.into_iter().flat_map(HashMap::into_values) {
        let _ = waiting.answer.send(Err(broken.error()));
    }
}

/// A ledger on an export.
pub struct NbdLedger {
    nbd: Nbd,
    geometry: Geometry,
}

impl NbdLedger {
    /// Refuses an export that cannot do what makes a record durable.
    pub fn new(nbd: Nbd, geometry: Geometry, durable: Durable) -> io::Result<NbdLedger> {
        let Export { read_only, takes_flush, takes_fua, .. } = nbd.export;
        let obstacle = match durable {
            _ if read_only => "is read-only",
            Durable::Flush if !takes_flush => "takes no flushes",
            Durable::Fua if !takes_fua => "takes no durable writes (FUA)",
            _ => return Ok(NbdLedger { nbd, geometry }),
        };
        Err(io::Error::other(format!("the NBD export {obstacle}")))
    }
}

impl Target for NbdLedger {
    fn store(&self, slot: u64, block: &Block, durable: Durable) -> io::Result<()> {
        let fua = durable == Durable::Fua;
        let offset = self.geometry.position(slot);
        self.nbd.request(Command::Write, fua, offset, &block.0, block.0.len()).map(drop)
    }

    fn flush(&self) -> io::Result<()> {
        self.nbd.request(Command::Flush, false, 0, &[], 0).map(drop)
    }
}

impl ReadAt for Nbd {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.fill(0);
        let mut offset = offset;
        for part in buffer.chunks_mut(MAX_READ) {
            let there = self.export.size.saturating_sub(offset).min(part.len() as u64) as usize;
            if there > 0 {
                let data = self.request(Command::Read, false, offset, &[], there)?;
                part[..there].copy_from_slice(&data);
            }
            offset += part.len() as u64;
        }
        Ok(())
    }
}
