//! As much of an NBD client as reading a disk takes (the NBD protocol's `doc/proto.md`: fixed newstyle, NBD_OPT_GO).

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use diskproof_wire::ledger::ReadAt;

const OPTION_MAGIC: u64 = 0x4948_4156_454F_5054;
const OPTION_REPLY: u64 = 0x0003_E889_0455_65A9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const CMD_DISC: u16 = 2;
/// NBD_FLAG_C_FIXED_NEWSTYLE and NBD_FLAG_C_NO_ZEROES.
const CLIENT_FLAGS: u32 = 3;
const MAX_REPLY: u32 = 64 << 10;
const MAX_READ: usize = 1 << 20;

pub struct Drive {
    stream: UnixStream,
    pub size: u64,
}

impl Drive {
    pub fn connect(socket: &Path, export: &str, limit: Duration) -> io::Result<Drive> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let mut drive = Drive { stream, size: 0 };
        let mut greeting = [0; 18];
        drive.stream.read_exact(&mut greeting)?;
        if greeting[..8] != *b"NBDMAGIC" || greeting[8..16] != OPTION_MAGIC.to_be_bytes() {
            return Err(io::Error::other("no NBD server"));
        }
        drive.go(export)?;
        Ok(drive)
    }

    fn go(&mut self, export: &str) -> io::Result<()> {
        let mut wish = Vec::new();
        wish.extend_from_slice(&CLIENT_FLAGS.to_be_bytes());
        wish.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        wish.extend_from_slice(&OPT_GO.to_be_bytes());
        wish.extend_from_slice(&(export.len() as u32 + 6).to_be_bytes());
        wish.extend_from_slice(&(export.len() as u32).to_be_bytes());
        wish.extend_from_slice(export.as_bytes());
        wish.extend_from_slice(&0u16.to_be_bytes());
        self.stream.write_all(&wish)?;
        loop {
            let mut head = [0; 20];
            self.stream.read_exact(&mut head)?;
            let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            if head[..8] != OPTION_REPLY.to_be_bytes() || word(16) > MAX_REPLY {
                return Err(io::Error::other("an answer that is not NBD"));
            }
            let mut payload = vec![0; word(16) as usize];
            self.stream.read_exact(&mut payload)?;
            match word(12) {
                REP_ACK => return Ok(()),
                REP_INFO if payload.len() >= 10 && payload[..2] == [0, 0] => {
                    self.size = u64::from_be_bytes(payload[2..10].try_into().unwrap());
                }
                REP_INFO => {}
                _ => return Err(io::Error::other("the NBD server refuses the export")),
            }
        }
    }

    /// InvalidData: the server says that it cannot read there.
    fn read_part(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut request = Vec::with_capacity(28);
        request.extend_from_slice(&REQUEST.to_be_bytes());
        request.extend_from_slice(&[0; 4]);
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&offset.to_be_bytes());
        request.extend_from_slice(&(buffer.len() as u32).to_be_bytes());
        self.stream.write_all(&request)?;
        let mut reply = [0; 16];
        self.stream.read_exact(&mut reply)?;
        let error = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        if reply[..4] != SIMPLE_REPLY.to_be_bytes() || reply[8..] != offset.to_be_bytes() {
            return Err(io::Error::other("an answer that is not NBD"));
        }
        if error != 0 {
            let why = format!("reading {} bytes at {offset}: error {error}", buffer.len());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        self.stream.read_exact(buffer)
    }
}

impl ReadAt for Drive {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let there = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (inside, behind) = buffer.split_at_mut(there);
        behind.fill(0);
        for (index, part) in inside.chunks_mut(MAX_READ).enumerate() {
            self.read_part(part, offset + (index * MAX_READ) as u64)?;
        }
        Ok(())
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        let mut request = [0; 28];
        request[..4].copy_from_slice(&REQUEST.to_be_bytes());
        request[6..8].copy_from_slice(&CMD_DISC.to_be_bytes());
        let _ = self.stream.write_all(&request);
    }
}
