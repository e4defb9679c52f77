//! The golden files, which the Python side reads too: every line parses and renders to itself.

#![cfg(test)]

use std::path::PathBuf;

use diskproof_wire::{parse_event, parse_request, render_line, Event, Request, MAX_EVENT_LINE};

fn read_golden(name: &str) -> Vec<String> {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../tests/golden/wire").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.split_inclusive('\n').map(str::to_owned).collect()
}

#[test]
fn requests_round_trip() {
    let lines = read_golden("requests.jsonl");
    let requests: Vec<Request> = lines
        .iter()
        .map(|line| parse_request(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect();
    for (line, request) in lines.iter().zip(&requests) {
        assert_eq!(&String::from_utf8(render_line(request).unwrap()).unwrap(), line);
    }
    for kind in 0..7 {
        assert!(requests.iter().any(|r| request_kind(r) == kind), "no example of kind {kind}");
    }
}

#[test]
fn events_round_trip() {
    let lines = read_golden("events.jsonl");
    let events: Vec<Event> = lines
        .iter()
        .map(|line| parse_event(line.as_bytes()).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect();
    for (line, event) in lines.iter().zip(&events) {
        assert!(line.len() <= MAX_EVENT_LINE);
        assert_eq!(&String::from_utf8(render_line(event).unwrap()).unwrap(), line);
    }
    for kind in 0..7 {
        assert!(events.iter().any(|e| event_kind(e) == kind), "no example of kind {kind}");
    }
}

// Matches without a wildcard: a new message does not compile until it is numbered here, and fails
// until it has an example.
fn request_kind(request: &Request) -> u8 {
    match request {
        Request::Start(_) => 0,
        Request::Exec(_) => 1,
        Request::Kill(_) => 2,
        Request::Read(_) => 3,
        Request::Write(_) => 4,
        Request::Clock(_) => 5,
        Request::Poweroff(_) => 6,
    }
}

fn event_kind(event: &Event) -> u8 {
    match event {
        Event::Hello { .. } => 0,
        Event::Started { .. } => 1,
        Event::Output { .. } => 2,
        Event::Exit(_) => 3,
        Event::Clock { .. } => 4,
        Event::Done { .. } => 5,
        Event::Error { .. } => 6,
    }
}
