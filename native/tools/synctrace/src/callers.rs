//! The threads whose calls we see while they wait: what /proc says of them, asked no more often
//! than is worth it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::clock::now;
use crate::places;

/// So many threads' files are kept open.
const MOST_CALLERS: usize = 64;
/// /proc is asked again after so long, in ns: it costs as much as all else together.
const FRESH: u64 = 50_000;

/// A calling thread, and files of /proc to ask about it.
struct Caller {
    name: Arc<str>,
    written_file: File,
    name_file: File,
    asked: u64,
}

impl Caller {
    fn open(thread: u32) -> io::Result<Caller> {
        Ok(Caller {
            name: "?".into(),
            written_file: File::open(format!("/proc/{thread}/io"))?,
            name_file: File::open(format!("/proc/{thread}/comm"))?,
            asked: 0,
        })
    }

    /// What it has written so far; None when it was asked just now.
    fn ask(&mut self) -> io::Result<Option<u64>> {
        let time = now();
        if time < self.asked + FRESH {
            return Ok(None);
        }
        self.asked = time;
        let mut text = [0; 64];
        let length = self.name_file.read_at(&mut text, 0)?;
        let name = String::from_utf8_lossy(&text[..length]);
        if *name.trim_end() != *self.name {
            self.name = name.trim_end().into();
        }
        let length = self.written_file.read_at(&mut text, 0)?;
        Ok(places::parse_written(&String::from_utf8_lossy(&text[..length])))
    }
}

#[derive(Default)]
pub struct Callers {
    known: HashMap<u32, Caller>,
}

impl Callers {
    /// What a thread's process has written so far, unless it was asked just now. Also learns its
    /// name.
    pub fn ask(&mut self, thread: u32) -> Option<u64> {
        match self.known.get_mut(&thread).map(Caller::ask) {
            Some(Ok(written)) => return written,
            // Its number belongs to another thread now.
            Some(Err(_)) => drop(self.known.remove(&thread)),
            None => {}
        }
        if self.known.len() >= MOST_CALLERS {
            self.known.clear();
        }
        let mut caller = Caller::open(thread).ok()?;
        let written = caller.ask().ok()?;
        self.known.insert(thread, caller);
        written
    }

    pub fn name(&self, thread: u32) -> Arc<str> {
        self.known.get(&thread).map_or_else(|| "?".into(), |caller| caller.name.clone())
    }
}
