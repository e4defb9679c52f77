//! One finished call into the ring, without ever waiting for anybody.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::page::{Event, Kind, Page, EVENTS, RETIRED};

/// Others may be faster; so often it is tried again.
const TRIES: u32 = 64;

pub struct Call {
    pub caller: u64,
    pub name: u32,
    pub kind: Kind,
    pub argument: u64,
    pub file: u32,
    pub start: u64,
    pub end: u64,
    pub result: i64,
}

#[inline]
pub fn record(page: &Page, call: &Call) {
    let Some((event, turn)) = take_place(page) else {
        page.lost.0.fetch_add(1, Relaxed);
        return;
    };
    event.caller.store(call.caller, Relaxed);
    event.start.store(call.start, Relaxed);
    event.duration.store(call.end.saturating_sub(call.start), Relaxed);
    event.result.store(call.result as u64, Relaxed);
    event.argument.store(call.argument, Relaxed);
    event.kind.store(call.kind as u32, Relaxed);
    event.file.store(call.file, Relaxed);
    event.name.store(call.name, Relaxed);
    // It was retired if we were stopped for long in here.
    if event.turn.compare_exchange(turn, turn + 1, Release, Relaxed).is_err() {
        page.lost.0.fetch_add(1, Relaxed);
    }
}

/// None when the ring is full.
#[inline]
fn take_place(page: &Page) -> Option<(&Event, u64)> {
    for _ in 0..TRIES {
        let position = page.head.0.load(Relaxed);
        let free = position / EVENTS * 2;
        let event = &page.events[(position % EVENTS) as usize];
        let turn = event.turn.load(Acquire);
        if turn < free {
            return None;
        }
        // A position that another one took has a later turn, or loses the exchange.
        if turn != free && turn != RETIRED {
            continue;
        }
        let taken = page.head.0.compare_exchange(position, position + 1, Relaxed, Relaxed);
        if taken.is_ok() && turn == free {
            return Some((event, turn));
        }
    }
    None
}
