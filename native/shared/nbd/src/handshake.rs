//! How an NBD connection begins: fixed newstyle, one NBD_OPT_GO.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const OPTION_MAGIC: &[u8; 8] = b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERROR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
/// These bound one reply to an option, and how many of them are read.
const MAX_REPLY: usize = 64 << 10;
const MAX_REPLIES: usize = 64;

/// What is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Export {
    pub size: u64,
    pub read_only: bool,
    pub takes_flush: bool,
    pub takes_fua: bool,
}

/// Reads until a deadline, however slowly the bytes come.
struct Timed<'a> {
    stream: &'a UnixStream,
    deadline: Instant,
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the NBD server is too slow");
        if left.is_zero() {
            return Err(late());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => late(),
            _ => error,
        })
    }
}

fn broken(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the NBD server breaks the protocol: {why}"))
}

/// Agrees on an export within `patience`.
pub fn negotiate(stream: &mut UnixStream, name: &str, patience: Duration) -> io::Result<Export> {
    let source = stream.try_clone()?;
    let mut source = Timed { stream: &source, deadline: Instant::now() + patience };
    greet(&mut source, stream)?;
    let mut request = Vec::new();
    let length = 4 + name.len() + 2;
    request.extend_from_slice(OPTION_MAGIC);
    request.extend_from_slice(&OPT_GO.to_be_bytes());
    request.extend_from_slice(&(length as u32).to_be_bytes());
    request.extend_from_slice(&(name.len() as u32).to_be_bytes());
    request.extend_from_slice(name.as_bytes());
    request.extend_from_slice(&0u16.to_be_bytes());
    stream.write_all(&request)?;
    read_answers(&mut source)
}

fn greet(source: &mut impl Read, stream: &mut impl Write) -> io::Result<()> {
    let mut greeting = [0; 18];
    source.read_exact(&mut greeting)?;
    if &greeting[..8] != b"NBDMAGIC" || &greeting[8..16] != OPTION_MAGIC {
        return Err(broken("its greeting is not that of a newstyle server"));
    }
    let offered = u16::from_be_bytes([greeting[16], greeting[17]]);
    if offered & FIXED_NEWSTYLE == 0 {
        return Err(io::Error::other("the NBD server does not speak fixed newstyle"));
    }
    let taken = u32::from(offered & (FIXED_NEWSTYLE | NO_ZEROES));
    stream.write_all(&taken.to_be_bytes())
}

/// The replies to NBD_OPT_GO, up to its end.
fn read_answers(source: &mut impl Read) -> io::Result<Export> {
    let mut export = None;
    for _ in 0..MAX_REPLIES {
        let (kind, data) = read_answer(source)?;
        match kind {
            REP_ACK => return export.ok_or_else(|| broken("it names no export")),
            REP_INFO => export = read_info(&data)?.or(export),
            kind if kind & REP_ERROR != 0 => {
                let why = String::from_utf8_lossy(&data[..data.len().min(200)]).into_owned();
                let code = kind & !REP_ERROR;
                let what = format!("the NBD server refuses the export (error {code}) {why}");
                return Err(io::Error::other(what.trim_end().to_owned()));
            }
            _ => return Err(broken("a reply of an unknown kind")),
        }
    }
    Err(broken("its replies do not end"))
}

fn read_answer(source: &mut impl Read) -> io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    source.read_exact(&mut head)?;
    let u32_at = |at: usize| u32::from_be_bytes(std::array::from_fn(|index| head[at + index]));
    if head[..8] != OPTION_REPLY_MAGIC.to_be_bytes() || u32_at(8) != OPT_GO {
        return Err(broken("a reply to something else"));
    }
    let length = u32_at(16) as usize;
    if length > MAX_REPLY {
        return Err(broken("a reply is too long"));
    }
    let mut data = vec![0; length];
    source.read_exact(&mut data)?;
    Ok((u32_at(12), data))
}

/// None for information of another kind.
fn read_info(data: &[u8]) -> io::Result<Option<Export>> {
    if data.len() < 2 {
        return Err(broken("an information is too short"));
    }
    if data[..2] != INFO_EXPORT.to_be_bytes() {
        return Ok(None);
    }
    let fields: &[u8; 12] = data.try_into().map_err(|_| broken("an export's length is wrong"))?;
    let size = u64::from_be_bytes(std::array::from_fn(|index| fields[2 + index]));
    let flags = u16::from_be_bytes([fields[10], fields[11]]);
    let has = |flag| flags & flag != 0;
    Ok(Some(Export {
        size,
        read_only: has(READ_ONLY),
        takes_flush: has(SEND_FLUSH),
        takes_fua: has(SEND_FUA),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_handshake_ends_in_an_export_or_an_error() {
        bolero::check!(name = "handshake").for_each(|mut server: &[u8]| {
            let mut said = Vec::new();
            if greet(&mut server, &mut said).is_ok() {
                let _ = read_answers(&mut server);
            }
            assert!(said.len() <= 4);
        });
    }
}
