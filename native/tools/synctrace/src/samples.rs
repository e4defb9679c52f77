//! Events for tests.

use crate::event::{Call, Event};

/// A call of process `pid` from `start` on, in ns.
pub fn event(pid: i32, call: Call, file: &str, start: u64, length: u64) -> Event {
    Event {
        pid,
        tid: pid,
        process: "writer".into(),
        call,
        file: file.into(),
        start,
        end: start + length,
        result: 0,
        written: None,
        in_flight: true,
    }
}
