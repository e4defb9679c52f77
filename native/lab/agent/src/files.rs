//! Files of the root, read and written for the host.

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use diskproof_wire::{Bytes, Event, Read, Stream, Write, MAX_CHUNK};
use rustix::fs::{fchmod, open, openat2, Mode, OFlags, ResolveFlags};

use crate::channel::Outbox;
use crate::failure::{Doing, Failure, Outcome};
use crate::mounts::ROOT;

/// Send a file in chunks; it is an error when it is larger than asked for.
pub fn send_file(request: &Read, outbox: &Outbox) -> Outcome<()> {
    let what = || format!("cannot read {}", request.path);
    // Without O_NONBLOCK a FIFO would hold us for ever.
    let file = open_in_root(&request.path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty());
    let mut file = file.doing(what)?;
    let mut left = request.max_bytes;
    let mut buffer = [0u8; MAX_CHUNK];
    loop {
        let count = match file.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other.doing(what)?,
        };
        if count == 0 {
            return Ok(());
        }
        left = left.checked_sub(count as u64).ok_or_else(|| {
            Failure::new(what(), format!("it is larger than {} bytes", request.max_bytes))
        })?;
        let data = Bytes(buffer[..count].to_vec());
        outbox.send(&Event::Output { id: request.id, stream: Stream::File, data })?;
    }
}

/// Create or truncate a file.
pub fn write_file(request: &Write) -> Outcome<()> {
    let what = || format!("cannot write {}", request.path);
    let mode = Mode::from_raw_mode(request.mode);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NONBLOCK;
    let mut file = open_in_root(&request.path, flags, Mode::RUSR | Mode::WUSR).doing(what)?;
    file.write_all(&request.data.0).doing(what)?;
    fchmod(&file, mode).doing(what)
}

/// The path as a program inside the root would see it: links cannot lead out.
fn open_in_root(path: &str, flags: OFlags, mode: Mode) -> io::Result<File> {
    let root = open(ROOT, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let file = openat2(&root, path, flags | OFlags::CLOEXEC, mode, ResolveFlags::IN_ROOT)?;
    Ok(file.into())
}
