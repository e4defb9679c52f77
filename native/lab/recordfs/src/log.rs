//! The log as it is written: one record at a time, straight into its file.
//!
//! A record is handed to the kernel before its request is answered, so nothing waits in our memory:
//! a slow log slows the writer, a killed recorder loses nothing that it has answered, and the order
//! of records is the order of the lock.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use diskproof_wire::crash_log::{Frame, Header, Operation, Place, HEADER_LENGTH, MAX_TEXT};
use rustix::fs::{fallocate, FallocateFlags};
use rustix::io::{pwritev, Errno};

use crate::callers::Callers;
use crate::clock;
use crate::stacks::{Call, Stacks};

/// Kept free behind the last record, for the end record of a log whose disk is full.
const END_ROOM: u64 = 8192;
/// Disk space is asked for in such pieces.
const RESERVE: u64 = 16 << 20;
/// How long a request waits for its caller's name.
const MOST_WAIT: Duration = Duration::from_secs(1);
const SPINS: u32 = 1000;

pub struct Log {
    state: Mutex<State>,
    /// None where nobody wants to know.
    callers: Option<Mutex<Callers>>,
}

struct State {
    file: File,
    position: u64,
    reserved: u64,
    /// The log's file system can reserve space.
    reserves: bool,
    sequence: u64,
    end_ns: u64,
    ended: bool,
    head: Vec<u8>,
}

/// When a request arrived, the file it is about, and the number of who asked (0 when nobody knows).
#[derive(Clone, Copy)]
pub struct Asked {
    pub begin_ns: u64,
    pub file: u64,
    pub caller: u32,
}

impl Asked {
    pub fn now(file: u64) -> Asked {
        Asked { begin_ns: clock::monotonic_ns(), file, caller: 0 }
    }
}

impl Log {
    /// Begins a log in a file that must not be there yet.
    pub fn create(path: &Path, header: &Header, callers: bool) -> io::Result<Log> {
        // It holds what the recorded files hold.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut state = State {
            file,
            position: 0,
            reserved: 0,
            reserves: true,
            sequence: 0,
            end_ns: 0,
            ended: false,
            head: Vec::new(),
        };
        state.reserve(HEADER_LENGTH as u64)?;
        state.write(&mut [IoSlice::new(&header.encode())])?;
        Ok(Log { state: Mutex::new(state), callers: callers.then(Mutex::default) })
    }

    /// Whether anybody wants to know who asks.
    pub fn has_callers(&self) -> bool {
        self.callers.is_some()
    }

    /// A request of a thread that waits for its answer; 0 when it is not known who asks.
    pub fn asked(&self, file: u64, thread: u32, call: Call) -> Asked {
        let asked = Asked::now(file);
        let Some(callers) = self.callers.as_ref().filter(|_| thread != 0) else { return asked };
        // Held until a new caller is in the log: no record may refer to it before.
        let Some(mut callers) = lock_for(callers, MOST_WAIT) else { return asked };
        let caller = callers.find(thread, call, &mut |caller, who| {
            self.append(Asked { caller, ..Asked::now(0) }, who)
        });
        Asked { caller, ..asked }
    }

    /// From now on places are noted too. `own_device` is the mount's.
    pub fn note_stacks(&self, own_device: Option<(u32, u32)>) {
        if let Some(callers) = &self.callers {
            let mut callers = callers.lock().unwrap_or_else(PoisonError::into_inner);
            callers.stacks = Some(Stacks::new(own_device));
        }
    }

    /// Tells the source of the places that were noted.
    pub fn tell_lines(&self) -> io::Result<()> {
        let Some(callers) = &self.callers else { return Ok(()) };
        let mut callers = callers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(stacks) = &mut callers.stacks else { return Ok(()) };
        stacks.tell_lines(|line| {
            let _ = self.append(Asked::now(0), line);
        })
    }

    /// Logs what was done. EIO once the log has ended.
    pub fn append(&self, asked: Asked, operation: &Operation<'_>) -> Result<(), Errno> {
        self.append_result(asked, operation, 0)
    }

    /// As `append`, for what may have failed with `errno`.
    pub fn append_result(
        &self,
        asked: Asked,
        operation: &Operation<'_>,
        error: u16,
    ) -> Result<(), Errno> {
        let frame = Frame::new(operation);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.ended {
            return Err(Errno::IO);
        }
        if let Err(why) = state.append(asked, &frame, error) {
            complain!(
                "the log cannot be written on: {why}; it ends here, and every \
                 further change fails with EIO"
            );
            state.end(&format!("the log cannot be written on: {why}"));
            return Err(Errno::IO);
        }
        Ok(())
    }

    /// EIO once the log has ended: nothing may change unseen.
    pub fn require_open(&self) -> Result<(), Errno> {
        if self.state.lock().unwrap_or_else(PoisonError::into_inner).ended {
            Err(Errno::IO)
        } else {
            Ok(())
        }
    }

    pub fn note(&self, text: &str) -> Result<(), Errno> {
        let text = Cow::Borrowed(&text.as_bytes()[..text.len().min(MAX_TEXT)]);
        self.append(Asked::now(0), &Operation::Note { text })
    }

    /// Completes the log. A second call does nothing.
    pub fn end(&self, why: &str) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).end(why);
    }
}

/// Whoever has it may be waiting for a program's memory, and that for a request that is yet to be
/// served: None after so long.
fn lock_for<T>(mutex: &Mutex<T>, most: Duration) -> Option<MutexGuard<'_, T>> {
    let begun = Instant::now();
    for turn in 0u32.. {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) if turn < SPINS => std::hint::spin_loop(),
            Err(TryLockError::WouldBlock) if begun.elapsed() < most => {
                std::thread::sleep(Duration::from_micros(50));
            }
            Err(TryLockError::WouldBlock) => break,
        }
    }
    None
}

impl State {
    fn append(&mut self, asked: Asked, frame: &Frame<'_>, error: u16) -> io::Result<()> {
        self.reserve(frame.length() as u64)?;
        self.write_record(asked, frame, error)
    }

    fn write_record(&mut self, asked: Asked, frame: &Frame<'_>, error: u16) -> io::Result<()> {
        let end_ns = clock::monotonic_ns().max(self.end_ns);
        let Asked { begin_ns, file, caller } = asked;
        if u32::try_from(file).is_err() {
            return Err(io::Error::other("there were more files than it can number"));
        }
        let place = Place { sequence: self.sequence + 1, begin_ns, end_ns, file, caller, error };
        let mut head = std::mem::take(&mut self.head);
        let mut slices = frame.pieces(&place, &mut head).map(IoSlice::new);
        let written = self.write(&mut slices);
        self.head = head;
        written?;
        self.sequence += 1;
        self.end_ns = end_ns;
        Ok(())
    }

    /// All of it at the end of the log, or the position stays where it was.
    fn write(&mut self, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut position = self.position;
        while !slices.is_empty() {
            match pwritev(&self.file, slices, position) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    position += count as u64;
                    IoSlice::advance_slices(&mut slices, count);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.position = position;
        Ok(())
    }

    /// Makes sure of the disk space for `length` bytes and for an end record after them.
    fn reserve(&mut self, length: u64) -> io::Result<()> {
        let need = self.position + length + END_ROOM;
        if !self.reserves || need <= self.reserved {
            return Ok(());
        }
        for size in [RESERVE.max(need - self.reserved), need - self.reserved] {
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.reserved, size) {
                Ok(()) => {
                    self.reserved += size;
                    return Ok(());
                }
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                    self.reserves = false;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(error) if size == need - self.reserved => return Err(error.into()),
                Err(_) => {}
            }
        }
        Err(io::ErrorKind::Interrupted.into())
    }

    /// Writes the end record over what was begun, if there is any room, and gives back what was
    /// reserved.
    fn end(&mut self, why: &str) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let text = Cow::Borrowed(&why.as_bytes()[..why.len().min(MAX_TEXT)]);
        let operation = Operation::End { text };
        let written = self.write_record(Asked::now(0), &Frame::new(&operation), 0);
        let cut = self.file.set_len(self.position);
        if let Err(error) = written.and(cut).and_then(|()| self.file.sync_all()) {
            complain!("the log's end could not be written: {error}");
        }
    }
}
