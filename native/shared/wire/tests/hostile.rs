//! Lines that are no messages, and any bytes at all.

#![cfg(test)]

use diskproof_wire::*;
use proptest::prelude::*;

fn refusal(line: &str) -> Refusal {
    parse_request(line.as_bytes()).expect_err(line)
}

#[test]
fn a_refusal_carries_the_id_it_could_read() {
    assert_eq!(refusal(r#"{"op":"dance","id":7}"#).id, Some(7));
    assert_eq!(refusal(r#"{"op":"clock","id":7,"extra":1}"#).id, Some(7));
    assert_eq!(refusal(r#"{"op":"kill","id":7,"target":1}"#).id, Some(7));
    assert_eq!(refusal(r#"{"op":"clock","id":-7}"#).id, None);
    assert_eq!(refusal(r#"{"op":"clock","id":1,"id":2}"#).id, None);
    assert_eq!(refusal(r#"{"op":"clock"}"#).id, None);
    assert_eq!(refusal(r#"[1]"#).id, None);
    assert_eq!(refusal(r#"["clock",1]"#).id, None);
    assert_eq!(refusal("nonsense").id, None);
    assert_eq!(refusal("").id, None);
}

#[test]
fn bad_values_are_refused_by_name() {
    for (line, word) in [
        (r#"{"op":"exec","id":1,"argv":[],"timeout_ms":1}"#, "argv"),
        (r#"{"op":"exec","id":1,"argv":["a\u0000"],"timeout_ms":1}"#, "NUL"),
        (r#"{"op":"exec","id":1,"argv":["a"],"timeout_ms":0}"#, "timeout_ms"),
        (r#"{"op":"exec","id":1,"argv":["a"],"timeout_ms":604800001}"#, "timeout_ms"),
        (r#"{"op":"exec","id":1,"argv":["a"],"cwd":"x","timeout_ms":1}"#, "cwd"),
        (r#"{"op":"exec","id":1,"argv":["a"],"env":{"a=b":""},"timeout_ms":1}"#, "env"),
        (r#"{"op":"exec","id":1,"argv":["a"],"stdin_base64":"?","timeout_ms":1}"#, "Invalid"),
        (r#"{"op":"kill","id":1,"target":1,"signal":65}"#, "signal"),
        (r#"{"op":"kill","id":1,"target":1,"signal":0}"#, "signal"),
        (r#"{"op":"read","id":1,"path":"tmp/x","max_bytes":1}"#, "path"),
        (r#"{"op":"read","id":1,"path":"/x","max_bytes":0}"#, "max_bytes"),
        (r#"{"op":"write","id":1,"path":"/x","data_base64":"","mode":4096}"#, "mode"),
    ] {
        let why = refusal(line).why;
        assert!(why.contains(word), "{line}: {why}");
    }
}

#[test]
fn left_out_fields_have_their_defaults() {
    let line = br#"{"op":"exec","id":1,"argv":["true"],"timeout_ms":5}"#;
    let Ok(Request::Exec(exec)) = parse_request(line) else {
        panic!("no exec");
    };
    assert_eq!((exec.cwd.as_str(), exec.stdin), ("/", None));
    assert!(exec.env.is_empty());
}

#[test]
fn events_ignore_what_they_do_not_know() {
    let event = parse_event(br#"{"type":"done","id":3,"mood":"good"}"#).unwrap();
    assert_eq!(event, Event::Done { id: 3 });
}

#[test]
fn the_longest_events_fit_their_line() {
    for event in [
        Event::Output { id: u64::MAX, stream: Stream::Stdout, data: Bytes(vec![255; MAX_CHUNK]) },
        Event::error(Some(u64::MAX), "\u{1}".repeat(99_999), "☃".repeat(99_999)),
    ] {
        assert!(render_line(&event).unwrap().len() <= MAX_EVENT_LINE);
    }
}

fn any_request() -> impl Strategy<Value = Request> {
    let word = "[^\0=]{1,12}";
    let exec = (
        any::<u64>(),
        prop::collection::vec(word, 1..5),
        prop::collection::btree_map(word, "[^\0]{0,12}", 0..4),
        "/[^\0]{0,12}",
        prop::option::of(prop::collection::vec(any::<u8>(), 0..99)),
        1..=MAX_TIMEOUT_MS,
    )
        .prop_map(|(id, argv, env, cwd, stdin, timeout_ms)| {
            Request::Exec(Exec { id, argv, env, cwd, stdin: stdin.map(Bytes), timeout_ms })
        });
    let write = (any::<u64>(), "/[^\0]{0,12}", prop::collection::vec(any::<u8>(), 0..99)).prop_map(
        |(id, path, data)| Request::Write(Write { id, path, data: Bytes(data), mode: 0o644 }),
    );
    let start =
        (any::<u64>(), prop::collection::vec(".{0,9}", 0..4), ".{0,9}", prop::option::of(".{0,9}"))
            .prop_map(|(id, modules, root_serial, disk_serial)| {
                Request::Start(Start { id, modules, root_serial, disk_serial, timeout_ms: 1 })
            });
    prop_oneof![exec, write, start]
}

#[test]
fn any_bytes_are_a_message_or_an_error() {
    bolero::check!(name = "messages").for_each(|line: &[u8]| {
        if let Ok(request) = parse_request(line) {
            let again = render_line(&request).unwrap();
            assert_eq!(parse_request(&again), Ok(request));
        }
        if let Ok(event) = parse_event(line) {
            let again = render_line(&event).unwrap();
            assert_eq!(parse_event(&again).unwrap(), event);
        }
    });
}

proptest! {
    #[test]
    fn requests_round_trip(request in any_request()) {
        let line = render_line(&request).unwrap();
        prop_assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1);
        prop_assert_eq!(parse_request(&line), Ok(request));
    }

    #[test]
    fn texts_of_errors_round_trip(id: u64, what in ".{0,99}", why in ".{0,99}") {
        let event = Event::error(Some(id), what, why);
        prop_assert_eq!(parse_event(&render_line(&event).unwrap()).unwrap(), event);
    }

    #[test]
    fn lines_do_not_depend_on_how_the_stream_was_cut(
        stream in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..9),
        max in 1usize..20,
    ) {
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
        ends.push(stream.len());
        ends.sort_unstable();
        let mut splitter = LineSplitter::new(max);
        let (mut got, mut from) = (Vec::new(), 0);
        for end in ends {
            got.extend(splitter.push(&stream[from..end]));
            from = end;
        }
        let wanted: Vec<SplitLine> = stream
            .split_inclusive(|&byte| byte == b'\n')
            .filter_map(|line| line.strip_suffix(b"\n"))
            .map(|line| if line.len() < max { SplitLine::Whole(line.to_vec()) } else { SplitLine::Overlong })
            .collect();
        prop_assert_eq!(got, wanted);
    }
}
