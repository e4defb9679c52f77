//! The virtio-serial port to the host.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diskproof_wire::{
    parse_request, render_line, Event, LineSplitter, Refusal, Request, SplitLine, MAX_REQUEST_LINE,
    PORT_NAME,
};

use crate::failure::{Doing, Failure, Outcome};
use crate::uevents;

const PORTS: &str = "/sys/class/virtio-ports";
/// Longer than the slowest emulated boot: past it the guest has no such port.
const PORT_DEADLINE: Duration = Duration::from_secs(60);

/// Wait for the port by name and open it.
pub fn open() -> Outcome<(Inbox, Outbox)> {
    let port =
        uevents::wait_for(Instant::now() + PORT_DEADLINE, || Ok(find_port(Path::new(PORTS))))?
            .ok_or_else(|| {
                Failure::new("no channel to the host", format!("no port {PORT_NAME}"))
            })?;
    let file = File::options()
        .read(true)
        .write(true)
        .open(&port)
        .doing(|| format!("cannot open {}", port.display()))?;
    let reader = file.try_clone().doing(|| "cannot share the port".to_owned())?;
    Ok((Inbox::new(reader), Outbox::new(file)))
}

/// A port gets its name a moment after it appears, with an announcement of its own.
fn find_port(ports: &Path) -> Option<PathBuf> {
    let entry = fs::read_dir(ports).ok()?.flatten().find(|entry| {
        fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == PORT_NAME)
    })?;
    Some(Path::new("/dev").join(entry.file_name()))
}

/// Requests as they come.
pub struct Inbox {
    port: File,
    splitter: LineSplitter,
    lines: VecDeque<SplitLine>,
}

impl Inbox {
    fn new(port: File) -> Self {
        Inbox { port, splitter: LineSplitter::new(MAX_REQUEST_LINE), lines: VecDeque::new() }
    }

    /// The next request or what was wrong with it; None when the host has closed the channel.
    pub fn next(&mut self) -> Outcome<Option<Result<Request, Refusal>>> {
        let mut buffer = [0u8; 32 << 10];
        while self.lines.is_empty() {
            match self.port.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.lines.extend(self.splitter.push(&buffer[..count])),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).doing(|| "cannot read the channel".to_owned()),
            }
        }
        Ok(self.lines.pop_front().map(|line| match line {
            SplitLine::Whole(line) => parse_request(&line),
            SplitLine::Overlong => {
                let why = format!("the line is longer than {MAX_REQUEST_LINE} bytes");
                Err(Refusal { id: None, why })
            }
        }))
    }
}

/// Where every thread puts its events; whole lines never mix.
#[derive(Clone)]
pub struct Outbox(Arc<Mutex<File>>);

impl Outbox {
    pub fn new(port: File) -> Self {
        Outbox(Arc::new(Mutex::new(port)))
    }

    pub fn send(&self, event: &Event) -> Outcome<()> {
        self.send_all(std::slice::from_ref(event))
    }

    /// Several events in one write: each write is an exit to the host.
    pub fn send_all(&self, events: &[Event]) -> Outcome<()> {
        let mut lines = Vec::new();
        for event in events {
            lines.extend(render_line(event).doing(|| "cannot write an event".to_owned())?);
        }
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        port.write_all(&lines).doing(|| "cannot write to the channel".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn requests_refusals_and_the_end_come_in_order() {
        let (mut host, guest) = UnixStream::pair().unwrap();
        let mut inbox = Inbox::new(File::from(OwnedFd::from(guest)));
        let sender = std::thread::spawn(move || {
            host.write_all(b"{\"op\":\"clock\",\"id\":1}\n{\"op\":\"cl").unwrap();
            host.write_all(b"ock\",\"id\":2}\nnonsense\n").unwrap();
            host.write_all(&vec![b'x'; MAX_REQUEST_LINE]).unwrap();
            host.write_all(b"\n{\"op\":\"clock\",\"id\":3}\n{\"cut").unwrap();
        });
        let mut ids = Vec::new();
        while let Some(request) = inbox.next().unwrap() {
            ids.push(request.map(|request| request.id()).map_err(|refusal| refusal.id));
        }
        sender.join().unwrap();
        assert_eq!(ids, [Ok(1), Ok(2), Err(None), Err(None), Ok(3)]);
    }

    #[test]
    fn only_the_port_with_our_name_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        for (port, name) in [("vport0p1", "other\n"), ("vport0p2", "diskproof.agent\n")] {
            fs::create_dir_all(top.join(port)).unwrap();
            fs::write(top.join(port).join("name"), name).unwrap();
        }
        fs::create_dir_all(top.join("vport0p0")).unwrap();
        assert_eq!(find_port(top), Some(PathBuf::from("/dev/vport0p2")));
        fs::remove_dir_all(top.join("vport0p2")).unwrap();
        assert_eq!(find_port(top), None);
    }
}
