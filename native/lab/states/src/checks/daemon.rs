//! A storage daemon that stays: images are put into it and taken out again by its control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use diskproof_nbd::Nbd;
use serde_json::{json, Value};

use super::child::{Program, Readers};
use crate::request::Format;

/// For an answer of the daemon.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of one answer.
const MAX_LINE: u64 = 1 << 20;
const EXPORT: &str = "disk";

pub struct Daemon {
    program: Program,
    control: BufReader<UnixStream>,
    socket: PathBuf,
}

/// Why an image could not be used.
#[derive(Debug)]
pub enum Unusable {
    /// QEMU says what is wrong with it.
    Refused(String),
    /// The daemon is gone or does not answer.
    Broken(io::Error),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Self {
        Unusable::Broken(error)
    }
}

impl Daemon {
    /// Its NBD server listens at a new socket, which is ours: it may make none.
    pub fn start(readers: &Readers, socket: PathBuf) -> io::Result<Daemon> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(LIMIT))?;
        ours.set_write_timeout(Some(LIMIT))?;
        let theirs = OwnedFd::from(theirs);
        let listener = OwnedFd::from(UnixListener::bind(&socket)?);
        let mut command = readers.command("qemu-storage-daemon");
        command
            .args(["--chardev", "stdio,id=control", "--monitor", "chardev=control,mode=control"])
            .arg("--nbd-server")
            .arg(format!("addr.type=fd,addr.str={}", listener.as_raw_fd()))
            .stdin(theirs.try_clone()?)
            .stdout(theirs)
            .stderr(Stdio::null());
        let program = Program::start_with(&mut command, listener)?;
        let mut daemon = Daemon { program, control: BufReader::new(ours), socket };
        daemon.read_line()?;
        daemon.send(&[json!({"execute": "qmp_capabilities"})])?;
        daemon.answer()?.map_err(io::Error::other)?;
        Ok(daemon)
    }

    pub fn has_ended(&mut self) -> bool {
        self.program.has_ended()
    }

    /// Opens an image as a virtual machine would, does something with its disk, and closes it.
    pub fn with_image<T>(
        &mut self,
        image: &Path,
        format: Format,
        work: impl FnOnce(&mut Nbd) -> io::Result<T>,
    ) -> Result<T, Unusable> {
        let image = image.to_str().ok_or_else(|| io::Error::other("a path that is not text"))?;
        self.send(&[
            json!({"execute": "blockdev-add", "arguments": {
                "driver": format.name(), "node-name": EXPORT,
                "file": {"driver": "file", "filename": image, "locking": "off"}}}),
            json!({"execute": "block-export-add", "arguments": {
                "type": "nbd", "id": EXPORT, "node-name": EXPORT, "name": EXPORT}}),
        ])?;
        let (added, exported) = (self.answer()?, self.answer()?);
        added.map_err(Unusable::Refused)?;
        if let Err(why) = exported {
            self.remove()?;
            return Err(Unusable::Refused(why));
        }
        let done = Nbd::connect(&self.socket, EXPORT, LIMIT).and_then(|mut disk| work(&mut disk));
        self.send(&[json!({"execute": "block-export-del",
            "arguments": {"id": EXPORT, "mode": "hard"}})])?;
        self.answer_after_event("BLOCK_EXPORT_DELETED")?;
        self.remove()?;
        done.map_err(|error| match error.raw_os_error() {
            Some(_) => Unusable::Refused(format!("reading it: {error}")),
            None => Unusable::Broken(error),
        })
    }

    fn remove(&mut self) -> io::Result<()> {
        self.send(&[json!({"execute": "blockdev-del", "arguments": {"node-name": EXPORT}})])?;
        self.answer()?.map_err(io::Error::other)
    }

    fn send(&mut self, commands: &[Value]) -> io::Result<()> {
        let text: String = commands.iter().map(|command| format!("{command}\n")).collect();
        self.control.get_mut().write_all(text.as_bytes())
    }

    /// The next answer; Err inside: what the daemon says is wrong.
    fn answer(&mut self) -> io::Result<Result<(), String>> {
        loop {
            let line = self.read_line()?;
            if line.get("return").is_some() {
                return Ok(Ok(()));
            }
            if let Some(error) = line.get("error") {
                let text = error.get("desc").and_then(Value::as_str).unwrap_or("no reason given");
                return Ok(Err(text.to_owned()));
            }
        }
    }

    /// Both an answer and an event, in any order.
    fn answer_after_event(&mut self, event: &str) -> io::Result<()> {
        let (mut answered, mut happened) = (false, false);
        while !(answered && happened) {
            let line = self.read_line()?;
            if let Some(error) = line.get("error") {
                return Err(io::Error::other(error.to_string()));
            }
            answered |= line.get("return").is_some();
            happened |= line.get("event").and_then(Value::as_str) == Some(event);
        }
        Ok(())
    }

    fn read_line(&mut self) -> io::Result<Value> {
        let mut line = Vec::new();
        self.control.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        serde_json::from_slice(&line).map_err(|_| io::Error::other("qemu-storage-daemon is gone"))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}
