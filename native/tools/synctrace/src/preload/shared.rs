//! The page of finished calls, in memory that the command's processes can map. They may write
//! anything there.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::Arc;

use rustix::fs::{fcntl_add_seals, ftruncate, memfd_create, MemfdFlags, SealFlags};
use rustix::mm::{mmap, MapFlags, ProtFlags};

use super::page::{Event, Page, EVENTS, MOST_TEXT, NO_TEXT, RETIRED, TEXTS, TEXT_HEAD, VERSION};

pub struct Shared {
    pub fd: OwnedFd,
    pub page: &'static Page,
}

/// What the library told of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedCall {
    pub pid: i32,
    pub tid: i32,
    pub start: u64,
    pub duration: u64,
    pub result: i64,
    pub argument: u64,
    pub kind: u32,
    pub file: u32,
    pub name: u32,
}

/// A place of the ring, seen from the reader's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Filled(FinishedCall),
    /// Taken, but not filled yet.
    Taken,
    /// Given up earlier.
    Retired,
}

impl Shared {
    /// # Errors
    /// No memory, no descriptor.
    pub fn new() -> io::Result<Shared> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create(c"diskproof-sync-trace", flags)?;
        ftruncate(&fd, size_of::<Page>() as u64)?;
        // A file that somebody cuts off would kill us at the next touch.
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping as long as its file, never taken away; all-zero is a valid page.
        let page: &Page = unsafe {
            let place = mmap(null_mut(), size_of::<Page>(), access, MapFlags::SHARED, &fd, 0)?;
            &*place.cast()
        };
        let namespace = std::fs::metadata("/proc/self/ns/pid")?.ino();
        page.pid_namespace.store(namespace, Relaxed);
        page.version.store(VERSION, Release);
        Ok(Shared { fd, page })
    }

    fn event(&self, position: u64) -> (&Event, u64) {
        (&self.page.events[(position % EVENTS) as usize], position / EVENTS * 2)
    }

    /// Take what is there; the place is free for the next turn then.
    pub fn take(&self, position: u64) -> Place {
        let (event, free) = self.event(position);
        let turn = event.turn.load(Acquire);
        if turn == RETIRED {
            return Place::Retired;
        }
        if turn != free + 1 {
            return Place::Taken;
        }
        let caller = event.caller.load(Relaxed);
        let told = FinishedCall {
            pid: (caller >> 32) as i32,
            tid: caller as i32,
            start: event.start.load(Relaxed),
            duration: event.duration.load(Relaxed),
            result: event.result.load(Relaxed) as i64,
            argument: event.argument.load(Relaxed),
            kind: event.kind.load(Relaxed),
            file: event.file.load(Relaxed),
            name: event.name.load(Relaxed),
        };
        event.turn.store(free + 2, Release);
        Place::Filled(told)
    }

    /// Use a place no more, which somebody took and never filled. False when it was filled just
    /// now.
    pub fn retire(&self, position: u64) -> bool {
        let (event, free) = self.event(position);
        let turn = event.turn.load(Acquire);
        turn != free + 1 && event.turn.compare_exchange(turn, RETIRED, Acquire, Relaxed).is_ok()
    }

    /// None for a place without a text, and for numbers that make no sense.
    pub fn read_text(&self, place: u32) -> Option<Arc<str>> {
        let place = place as usize;
        if place == NO_TEXT as usize {
            return None;
        }
        let length = self.page.texts.get(place + 1)?.load(Relaxed);
        let length = usize::try_from(length).ok().filter(|length| *length <= MOST_TEXT)?;
        let first = place + TEXT_HEAD;
        let words = self.page.texts.get(first..first + length.div_ceil(8))?;
        let mut bytes: Vec<_> =
            words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        bytes.truncate(length);
        Some(String::from_utf8_lossy(&bytes).into())
    }
}

const _: () = assert!(TEXTS < u32::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_place_is_taken_filled_free_again_and_at_last_retired() {
        let shared = Shared::new().unwrap();
        assert_eq!(shared.take(5), Place::Taken);
        let (event, _) = shared.event(5);
        event.caller.store(7 << 32 | 8, Relaxed);
        event.turn.store(1, Release);
        assert!(!shared.retire(5));
        let Place::Filled(told) = shared.take(5) else { panic!("it is filled") };
        assert_eq!((told.pid, told.tid), (7, 8));
        assert_eq!(shared.take(5 + EVENTS), Place::Taken);
        assert!(shared.retire(5 + EVENTS));
        assert_eq!(shared.take(5 + EVENTS), Place::Retired);
    }

    #[test]
    fn any_place_and_length_of_a_text_are_read() {
        let shared = Shared::new().unwrap();
        proptest!(|(place: u32, length: u64, at in 2u32..100)| {
            shared.page.texts[at as usize + 1].store(length, Relaxed);
            shared.read_text(place);
            let text = shared.read_text(at);
            prop_assert_eq!(text.is_some(), length <= MOST_TEXT as u64);
        });
    }
}
