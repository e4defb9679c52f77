use std::sync::mpsc;

use proptest::prelude::*;

use super::*;
use crate::event::{Call, Event};
use crate::options::Mechanism;
use crate::samples::event;

const MS: u64 = 1_000_000;

fn session_of(events: &[Event]) -> Session {
    let mut tally = Tally::default();
    events.iter().for_each(|event| tally.add(event));
    Session {
        mechanism: Mechanism::Tracepoints,
        unreached: None,
        writes: false,
        command: vec!["prog".into()],
        pid: 1,
        started: 0,
        ended: 1_000 * MS,
        tally,
        lost: 0,
        exit_code: Some(0),
        messages: mpsc::channel().1,
        live: None,
    }
}

#[test]
fn a_histogram_looks_like_quantize() {
    let events = [1, 1, 3].map(|ms| event(1, Call::Fsync, "/a", 0, ms * MS));
    let session = session_of(&events);
    let text = render_histogram(session.tally.latencies.values().next().expect("one row"));
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0], " at least  ------------- distribution ------------- count");
    assert_eq!(lines[1], "   262 us |                                         0");
    assert_eq!(lines[2], "   524 us |@@@@@@@@@@@@@@@@@@@@@@@@@@@              2");
    assert_eq!(lines[4], "  2.10 ms |@@@@@@@@@@@@@@                           1");
}

proptest! {
    #[test]
    fn every_line_fits_the_screen(
        calls in prop::collection::vec((0usize..11, ".{0,120}", ".{0,20}", 0u64..1 << 50), 0..20)
    ) {
        let calls = calls.iter().enumerate().map(|(index, (call, file, process, length))| {
            let call = crate::event::SYNCS.into_iter().chain(crate::event::WRITES).nth(*call);
            let event = event(index as i32, call.unwrap_or(Call::Sync), file, 0, *length);
            Event { process: process.as_str().into(), ..event }
        });
        let text = render_report(&session_of(&calls.collect::<Vec<_>>()), 10);
        for line in text.lines() {
            prop_assert!(line.chars().count() <= WIDTH, "{}", line);
            prop_assert!(!line.chars().any(char::is_control));
        }
    }
}
