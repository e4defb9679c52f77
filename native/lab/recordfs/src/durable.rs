//! Writes that are durable when they return (O_DSYNC, O_SYNC, RWF_DSYNC, RWF_SYNC): those of one
//! file that come meanwhile share a flush, as commits do in a database's log.
//!
//! A write is in the backing's page cache before it joins, and a flush takes up only what has
//! joined before it begins.

use std::borrow::Cow;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use diskproof_wire::crash_log::{Flags, Operation};
use fuser::ReplyWrite;
use rustix::io::Errno;

use crate::answers::{answer, code};
use crate::crew::Crew;
use crate::data::{errno, sync};
use crate::handles::OpenFile;
use crate::inodes::Inode;
use crate::log::{Asked, Log};
use crate::ranges::Guard;

/// Bytes that wait for a flush of one file; who comes with more waits for room.
const MAX_WAITING: usize = 16 << 20;

/// A write that has been made, and neither logged nor answered.
pub struct Durable {
    pub file: Arc<OpenFile>,
    pub asked: Asked,
    pub flags: Flags,
    pub offset: u64,
    pub data: Vec<u8>,
    /// Held until it is logged: what overlaps comes after it in the log too.
    pub range: Guard,
    pub reply: ReplyWrite,
}

#[derive(Default)]
pub struct Group {
    state: Mutex<State>,
    taken: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<Durable>,
    bytes: usize,
    committing: bool,
}

impl Group {
    /// True when nobody commits: the caller must see to it.
    pub fn join(&self, write: Durable) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.bytes > MAX_WAITING {
            state = self.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.bytes += write.data.len();
        state.waiting.push(write);
        !std::mem::replace(&mut state.committing, true)
    }

    /// Flushes, logs and answers those who wait. The next flush may begin while these are answered.
    fn commit(&self, log: &Log, hand_over: impl FnOnce()) {
        let writes = self.take();
        let Some(first) = writes.first() else { return };
        let as_fsync = writes.iter().any(|write| write.flags.contains(Flags::SYNC));
        let synced = sync(&first.file.backing, !as_fsync);
        first.file.inode.writeback.flushed();
        if self.goes_on() {
            hand_over();
        }
        for write in writes {
            write.finish(log, synced);
        }
    }

    /// A flush is done: whether there is another one to do.
    fn goes_on(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.committing = !state.waiting.is_empty();
        state.committing
    }

    fn take(&self) -> Vec<Durable> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.bytes = 0;
        self.taken.notify_all();
        std::mem::take(&mut state.waiting)
    }
}

/// Sees to it that the group of this file is committed.
pub fn commit(inode: Arc<Inode>, log: Arc<Log>, crew: &Arc<Crew>) {
    let next = crew.clone();
    inode.clone().durable.commit(&log.clone(), || {
        let crew = next.clone();
        next.hand_over(move || commit(inode, log, &crew));
    });
}

impl Durable {
    fn finish(self, log: &Log, synced: Result<(), Errno>) {
        let data = if synced.is_ok() { &self.data[..] } else { &[] };
        let (flags, offset) = (self.flags, self.offset);
        let done = Operation::Write { flags, offset, data: Cow::Borrowed(data) };
        let logged = log.append_result(self.asked, &done, errno(&synced));
        drop(self.range);
        answer!(self.reply, synced.and(logged), () => self.reply.written(self.data.len() as u32))
    }
}
