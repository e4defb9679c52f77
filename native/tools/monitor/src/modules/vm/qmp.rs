//! One question to a running QEMU: how many flushes its guest has asked for.
//!
//! A QMP socket serves one client at a time, and it is there for whoever manages the guest. So we
//! ask only on a socket that nobody uses, hang up after each answer, and do not wait long. A
//! stranger's socket is not spoken to: who listens must be the QEMU itself, and must greet as one.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{open, Mode, OFlags};
use rustix::net::{
    connect, socket_with, sockopt, AddressFamily, SocketAddrUnix, SocketFlags, SocketType,
};
use serde::Deserialize;

/// QEMU answers within a millisecond unless its main loop stands still.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 3000 } else { 250 });
/// A guest with hundreds of disks has an answer of some 100 KiB.
const LONGEST_ANSWER: usize = 4 << 20;
const QUESTIONS: &[u8] =
    b"{\"execute\":\"qmp_capabilities\"}\n{\"execute\":\"query-blockstats\",\"id\":\"diskproof\"}\n";

/// Over all disks of a guest, since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GuestFlushes {
    pub count: u64,
    /// Nanoseconds from the request to its completion, summed up.
    pub nanoseconds: u64,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Another client is connected, or about to be.
    InUse,
    /// No socket, no right to it, or not this QEMU's.
    NotOurs,
    /// It did not greet or answer in time, or not as a QEMU does.
    NoAnswer,
}

/// The kernel's lists of sockets at one moment, one for each network namespace.
#[derive(Default)]
pub struct SocketLists(HashMap<PathBuf, Vec<u8>>);

impl SocketLists {
    fn of_process(&mut self, process: &Path) -> Result<&[u8], Silence> {
        let namespace = fs::read_link(process.join("ns/net")).map_err(|_| Silence::NotOurs)?;
        match self.0.entry(namespace) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(new) => {
                let list = fs::read(process.join("net/unix")).map_err(|_| Silence::NotOurs)?;
                Ok(new.insert(list))
            }
        }
    }
}

/// Ask the QEMU with this number of process on its socket `path` (as its arguments name it).
pub fn ask(pid: i32, path: &Path, lists: &mut SocketLists) -> Result<GuestFlushes, Silence> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let sockets = lists.of_process(&process)?;
    if is_in_use(sockets, path.as_os_str().as_encoded_bytes()) {
        return Err(Silence::InUse);
    }
    let folder = if path.is_absolute() { "root" } else { "cwd" };
    let place = process.join(folder).join(path.strip_prefix("/").unwrap_or(path));
    let stream = connect_to(&place)?;
    let listener = sockopt::socket_peercred(&stream).map_err(|_| Silence::NotOurs)?;
    if listener.pid.as_raw_nonzero().get() != pid {
        return Err(Silence::NotOurs);
    }
    converse(stream, Instant::now() + PATIENCE)
}

/// Whether `/proc/net/unix` shows a connected socket of this path: the end that QEMU has accepted.
fn is_in_use(sockets: &[u8], path: &[u8]) -> bool {
    const CONNECTED: &[u8] = b"03";
    sockets.split(|&byte| byte == b'\n').any(|line| {
        let Some(before) = line.strip_suffix(path).and_then(|line| line.strip_suffix(b" ")) else {
            return false;
        };
        let fields = before.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
        fields.clone().count() == 7 && fields.clone().nth(5) == Some(CONNECTED)
    })
}

/// A path may be longer than a socket's address: the kernel follows a descriptor of it as well.
fn connect_to(place: &Path) -> Result<UnixStream, Silence> {
    let found =
        open(place, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|_| Silence::NotOurs)?;
    let short = format!("/proc/self/fd/{}", found.as_fd().as_raw_fd());
    let address = SocketAddrUnix::new(short.as_str()).map_err(|_| Silence::NotOurs)?;
    // Not blocking: with another client waiting, connect would wait behind it.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|_| Silence::NotOurs)?;
    match connect(&socket, &address) {
        Ok(()) => {}
        Err(rustix::io::Errno::AGAIN) => return Err(Silence::InUse),
        Err(_) => return Err(Silence::NotOurs),
    }
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false).map_err(|_| Silence::NotOurs)?;
    Ok(stream)
}

fn converse(mut stream: UnixStream, deadline: Instant) -> Result<GuestFlushes, Silence> {
    let mut lines = Lines { text: Vec::new(), begin: 0 };
    if !lines.next(&mut stream, deadline)?.starts_with(b"{\"QMP\":") {
        return Err(Silence::NoAnswer);
    }
    stream.set_write_timeout(Some(PATIENCE)).map_err(|_| Silence::NoAnswer)?;
    stream.write_all(QUESTIONS).map_err(|_| Silence::NoAnswer)?;
    loop {
        // Events of the guest may come before the answers.
        if let Some(flushes) = parse_answer(lines.next(&mut stream, deadline)?)? {
            return Ok(flushes);
        }
    }
}

/// What came so far, of which the lines up to `begin` were taken.
struct Lines {
    text: Vec<u8>,
    begin: usize,
}

impl Lines {
    fn next(&mut self, stream: &mut UnixStream, deadline: Instant) -> Result<&[u8], Silence> {
        let mut searched = self.begin;
        loop {
            if let Some(end) = self.text[searched..].iter().position(|&byte| byte == b'\n') {
                let begin = std::mem::replace(&mut self.begin, searched + end + 1);
                return Ok(&self.text[begin..searched + end]);
            }
            searched = self.text.len();
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || searched > LONGEST_ANSWER {
                return Err(Silence::NoAnswer);
            }
            stream.set_read_timeout(Some(left)).map_err(|_| Silence::NoAnswer)?;
            let mut chunk = [0; 16 << 10];
            match stream.read(&mut chunk) {
                Ok(0) | Err(_) => return Err(Silence::NoAnswer),
                Ok(read) => self.text.extend_from_slice(&chunk[..read]),
            }
        }
    }
}

#[derive(Deserialize)]
struct Answer {
    id: Option<String>,
    #[serde(rename = "return")]
    devices: Option<Vec<Device>>,
}

#[derive(Deserialize)]
struct Device {
    stats: Statistics,
}

/// These are fields of QEMU's BlockDeviceStats.
#[derive(Deserialize)]
struct Statistics {
    #[serde(default)]
    flush_operations: u64,
    #[serde(default)]
    flush_total_time_ns: u64,
}

/// None for a line that is something else: an event, the answer to the greeting.
fn parse_answer(line: &[u8]) -> Result<Option<GuestFlushes>, Silence> {
    if !contains(line, b"\"diskproof\"") {
        return Ok(None);
    }
    let Ok(answer) = serde_json::from_slice::<Answer>(line) else { return Err(Silence::NoAnswer) };
    if answer.id.as_deref() != Some("diskproof") {
        return Ok(None);
    }
    let devices = answer.devices.ok_or(Silence::NoAnswer)?;
    Ok(Some(devices.iter().fold(GuestFlushes::default(), |sum, device| GuestFlushes {
        count: sum.count.saturating_add(device.stats.flush_operations),
        nanoseconds: sum.nanoseconds.saturating_add(device.stats.flush_total_time_ns),
    })))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests;
