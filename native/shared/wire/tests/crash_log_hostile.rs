//! Logs that are cut, changed or made up.

#![cfg(test)]

mod sealed_log;

use std::borrow::Cow;

use diskproof_wire::crash_log::*;
use sealed_log::sealed;

fn golden() -> Vec<u8> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../tests/golden/crash-log.bin");
    std::fs::read(path).unwrap()
}

/// Reads to the end: how many records, then how it ended.
fn read_all(bytes: &[u8]) -> (usize, Result<Ending, LogError>) {
    let mut count = 0;
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => return (0, Err(error)),
    };
    loop {
        match reader.next_record() {
            Ok(Some(_)) => count += 1,
            Ok(None) => return (count, Ok(reader.ending().unwrap())),
            Err(error) => return (count, Err(error)),
        }
    }
}

fn boundaries(bytes: &[u8]) -> Vec<usize> {
    let mut reader = Reader::new(bytes).unwrap();
    let mut found = vec![HEADER_LENGTH];
    while reader.next_record().unwrap().is_some() {
        found.push(reader.offset() as usize);
    }
    found
}

fn render(record: u64, operation: &Operation<'_>) -> Vec<u8> {
    let place = Place { sequence: record, begin_ns: 1, end_ns: 1, file: 1, caller: 0, error: 0 };
    Frame::new(operation).pieces(&place, &mut Vec::new()).concat()
}

fn log_of(records: &[Vec<u8>]) -> Vec<u8> {
    [golden()[..HEADER_LENGTH].to_vec(), records.concat()].concat()
}

#[test]
fn every_cut_is_told_from_a_whole_log() {
    let bytes = golden();
    let ends = boundaries(&bytes);
    for cut in 0..bytes.len() {
        let (count, ending) = read_all(&bytes[..cut]);
        if cut < HEADER_LENGTH {
            assert!(matches!(ending, Err(LogError::NoLog)), "{cut}: {ending:?}");
            continue;
        }
        let whole = ends.iter().rposition(|&end| end <= cut).unwrap();
        assert_eq!(count, whole);
        let offset = ends[whole] as u64;
        let expected = if ends[whole] == cut { Ending::Open } else { Ending::Truncated { offset } };
        assert_eq!(ending.unwrap(), expected, "cut at {cut}");
    }
}

#[test]
fn every_flipped_bit_is_found_where_it_is() {
    let bytes = golden();
    let ends = boundaries(&bytes);
    for at in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[at / 8] ^= 1 << (at % 8);
        let (count, ending) = read_all(&changed);
        let within = ends.iter().rposition(|&end| end <= at / 8);
        match ending {
            Err(LogError::NoLog | LogError::Version(_)) => assert!(at / 8 < 12),
            Err(LogError::Corrupt { offset, .. }) => {
                assert_eq!(offset, within.map_or(0, |record| ends[record] as u64));
                assert_eq!(count, within.unwrap_or(0));
            }
            other => panic!("bit {at}: {other:?}"),
        }
    }
}

#[test]
fn records_out_of_their_order_are_refused() {
    let note = |number| render(number, &Operation::Note { text: Cow::Borrowed(b"x") });
    let end = |number| render(number, &Operation::End { text: Cow::Borrowed(b"") });
    for (records, word) in [
        (vec![note(2)], "sequence"),
        (vec![note(1), note(1)], "sequence"),
        (vec![note(1), note(3)], "sequence"),
        (vec![end(1), note(2)], "after the end"),
        (vec![note(1), vec![0; 56]], "checksum"),
    ] {
        let error = read_all(&log_of(&records)).1.unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let (count, ending) = read_all(&log_of(&[note(1), end(2), vec![0; 3]]));
    assert_eq!(count, 2);
    assert!(matches!(ending, Err(LogError::Corrupt { .. })));
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    for name in [&b"../x"[..], b"..", b".", b"a/b", b"a\0b", b"", &[b'x'; 256]] {
        let name = Cow::Borrowed(name);
        let unlink = render(1, &Operation::Unlink { parent: 1, name: name.clone() });
        let rename = Operation::Rename {
            flags: 0,
            parent: 1,
            new_parent: 1,
            replaced: 0,
            name: Cow::Borrowed(b"a"),
            new_name: name.clone(),
        };
        for record in [unlink, render(1, &rename)] {
            let error = read_all(&log_of(&[record])).1.unwrap_err().to_string();
            assert!(error.contains("malformed"), "{name:?}: {error}");
        }
    }
}

#[test]
fn bounds_hold() {
    let text = |length| render(1, &Operation::Acknowledge { text: vec![b'a'; length].into() });
    assert!(read_all(&log_of(&[text(MAX_TEXT)])).1.is_ok());
    assert!(read_all(&log_of(&[text(MAX_TEXT + 1)])).1.is_err());
    let write = |length| {
        let data = vec![1; length].into();
        render(1, &Operation::Write { flags: Flags::NONE, offset: 0, data })
    };
    assert!(read_all(&log_of(&[write(MAX_DATA)])).1.is_ok());
    assert!(read_all(&log_of(&[write(MAX_DATA + 1)])).1.is_err());
}

/// Reads a log to where it ends; what was read must be written again to the same bytes.
fn read_and_write(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    let mut from = reader.offset() as usize;
    while let Ok(Some(record)) = reader.next_record() {
        let Record { sequence, begin_ns, end_ns, file, caller, error, operation } = record;
        let place = Place { sequence, begin_ns, end_ns, file, caller, error };
        let again = Frame::new(&operation).pieces(&place, &mut Vec::new()).concat();
        assert_eq!(bytes[from..from + again.len()], again);
        from += again.len();
        assert_eq!(from as u64, reader.offset());
    }
}

#[test]
fn any_bytes_are_read_and_what_is_read_is_written_again() {
    bolero::check!(name = "crash-log").for_each(|bytes: &[u8]| {
        read_and_write(bytes);
        read_and_write(&sealed(bytes));
    });
}
