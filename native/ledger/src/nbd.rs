//! A small NBD client over a Unix socket: fixed newstyle handshake, then READ, WRITE, FLUSH and FUA with simple replies.
//!
//! Source: the protocol's `doc/proto.md`. The server is not trusted: lengths, counts and waits are bounded.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{sync_channel, RecvTimeoutError, SyncSender};
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

/// None when the connection is no more.
type Pending = Arc<Mutex<Option<HashMap<u64, Waiting>>>>;

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
        let pending: Pending = Arc::new(Mutex::new(Some(HashMap::new())));
        let (reader, waiting) = (stream.try_clone()?, pending.clone());
        std::thread::Builder::new().name("nbd".into()).spawn(move || {
            if let Err(error) = read_replies(reader, &waiting) {
                tell_all(&waiting, &error);
            }
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
            None => return Err(lost()),
            Some(pending) => pending.insert(cookie, Waiting { answer, length: expected }),
        };
        let mut message = Vec::with_capacity(28 + data.len());
        message.extend_from_slice(&REQUEST_MAGIC.to_be_bytes());
        message.extend_from_slice(&(if fua { FLAG_FUA } else { 0 }).to_be_bytes());
        message.extend_from_slice(&(command as u16).to_be_bytes());
        message.extend_from_slice(&cookie.to_be_bytes());
        message.extend_from_slice(&offset.to_be_bytes());
        message.extend_from_slice(&(length as u32).to_be_bytes());
        message.extend_from_slice(data);
        self.stream.lock().unwrap().write_all(&message)?;
        match answered.recv_timeout(self.patience) {
            Ok(result) => result,
            Err(RecvTimeoutError::Disconnected) => Err(lost()),
            Err(RecvTimeoutError::Timeout) => {
                let why = format!("no answer within {:.0} s", self.patience.as_secs_f64());
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
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

fn lost() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the connection to the NBD server was lost")
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the NBD server breaks the protocol: {why}"))
}

/// Hands every reply to who waits for it, until the connection ends.
fn read_replies(mut stream: UnixStream, pending: &Pending) -> io::Result<()> {
    loop {
        let mut reply = [0; 16];
        stream.read_exact(&mut reply)?;
        if reply[..4] != REPLY_MAGIC.to_be_bytes() {
            return Err(broken("a reply has a wrong magic"));
        }
        let error = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        let cookie = u64::from_be_bytes(reply[8..].try_into().unwrap());
        let waiting = pending.lock().unwrap().as_mut().and_then(|all| all.remove(&cookie));
        let Some(Waiting { answer, length }) = waiting else {
            return Err(broken("a reply to no request"));
        };
        let result = if error == 0 {
            let mut data = vec![0; length];
            stream.read_exact(&mut data)?;
            Ok(data)
        } else {
            // NBD's numbers are Linux's.
            Err(io::Error::from_raw_os_error(i32::try_from(error).unwrap_or(5)))
        };
        // Who lost patience is gone.
        let _ = answer.send(result);
    }
}

fn tell_all(pending: &Pending, error: &io::Error) {
    for waiting in pending.lock().unwrap().take().into_iter().flatten() {
        let told = if error.kind() == io::ErrorKind::InvalidData {
            io::Error::new(error.kind(), error.to_string())
        } else {
            lost()
        };
        let _ = waiting.1.answer.send(Err(told));
    }
}

/// A ledger on an export.
pub struct NbdLedger {
    pub nbd: Nbd,
    pub geometry: Geometry,
}

impl Target for NbdLedger {
    fn store(&self, slot: u64, block: &Block, durable: Durable) -> io::Result<()> {
        let fua = durable == Durable::Fua;
        if fua && !self.nbd.export.takes_fua {
            return Err(io::Error::other("the NBD export takes no durable writes (FUA)"));
        }
        let offset = self.geometry.position(slot);
        self.nbd.request(Command::Write, fua, offset, &block.0, block.0.len()).map(drop)
    }

    fn flush(&self) -> io::Result<()> {
        if !self.nbd.export.takes_flush {
            return Err(io::Error::other("the NBD export takes no flushes"));
        }
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
