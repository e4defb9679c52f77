//! NBD servers that lie, stall and flood: the client ends with an error, soon and without much
//! memory.

#![cfg(test)]

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;
use std::time::{Duration, Instant};

use diskproof_nbd::Nbd;
use diskproof_wire::ledger::ReadAt;
use proptest::prelude::*;

const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03";
const SIZE: u64 = 1 << 24;
const PATIENCE: Duration = Duration::from_secs(1);

type Outcome = (io::Result<()>, Duration);

fn reply(kind: u32, length: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x0003_e889_0455_65a9u64.to_be_bytes().to_vec();
    bytes.extend(7u32.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    bytes
}

fn export(size: u64, flags: u16) -> Vec<u8> {
    let mut data = vec![0, 0];
    data.extend(size.to_be_bytes());
    data.extend(flags.to_be_bytes());
    let mut bytes = reply(3, 12, &data);
    bytes.extend(reply(1, 0, &[]));
    bytes
}

/// Reads the client's flags and its NBD_OPT_GO for the export "d".
fn read_go(stream: &mut UnixStream) {
    stream.read_exact(&mut [0; 4 + 16 + 7]).unwrap();
}

/// Asks a server that behaves so for its export, a write and a read; gives what came of it and
/// after how long.
fn outcome(patience: Duration, serve: impl FnOnce(UnixStream) + Send + 'static) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = thread::spawn(move || serve(listener.accept().unwrap().0));
    let began = Instant::now();
    let use_it = |mut nbd: Nbd| {
        nbd.write(0, &[1; 512], true)?;
        nbd.read_at(&mut [0; 512], 0)
    };
    let outcome = Nbd::connect(&socket, "d", patience).and_then(use_it);
    let took = began.elapsed();
    server.join().unwrap();
    (outcome, took)
}

fn run(serve: impl FnOnce(UnixStream) + Send + 'static) -> (io::Error, Duration) {
    let (outcome, took) = outcome(PATIENCE, serve);
    (outcome.unwrap_err(), took)
}

fn assert_told((error, took): &(io::Error, Duration), why: &str) {
    assert!(error.to_string().contains(why), "{error}");
    assert!(*took < PATIENCE * 10, "{took:?}");
}

/// Waits until the client hangs up.
fn drain(mut stream: UnixStream) {
    let _ = std::io::copy(&mut stream, &mut std::io::sink());
}

#[test]
fn other_protocols() {
    let told = run(|mut stream| stream.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian").unwrap());
    assert_told(&told, "not that of a newstyle server");
    let told = run(|mut stream| stream.write_all(b"NBDMAGICIHAVEOPT\x00\x00").unwrap());
    assert_told(&told, "does not speak fixed newstyle");
    assert_told(&run(drop), "failed to fill whole buffer");
}

#[test]
fn silence() {
    assert_told(&run(drain), "too slow");
    let told = run(|mut stream| {
        stream.write_all(GREETING).unwrap();
        read_go(&mut stream);
        stream.write_all(&export(SIZE, 0b1101)).unwrap();
        drain(stream);
    });
    assert_told(&told, "no answer within 1 s");
}

/// Each byte comes long before a time-out for one read would pass.
fn trickle(stream: &mut UnixStream, bytes: &[u8]) {
    for byte in bytes.iter().cycle() {
        thread::sleep(PATIENCE / 10);
        if stream.write_all(&[*byte]).is_err() {
            break;
        }
    }
}

#[test]
fn a_trickle_of_bytes() {
    assert_told(&run(|mut stream| trickle(&mut stream, GREETING)), "too slow");
    let told = run(|mut stream| {
        stream.write_all(GREETING).unwrap();
        read_go(&mut stream);
        trickle(&mut stream, &reply(3, 3, b"\0\x03x"));
    });
    assert_told(&told, "too slow");
    let told = run(|mut stream| {
        stream.write_all(GREETING).unwrap();
        read_go(&mut stream);
        stream.write_all(&export(SIZE, 0b1101)).unwrap();
        trickle(&mut stream, &[0]);
    });
    assert_told(&told, "no answer within 1 s");
}

#[test]
fn replies_without_end_or_bound() {
    let answer = |bytes: Vec<u8>| {
        run(move |mut stream| {
            stream.write_all(GREETING).unwrap();
            read_go(&mut stream);
            let _ = stream.write_all(&bytes);
            drain(stream);
        })
    };
    assert_told(&answer(reply(3, 3, b"\0\x03x").repeat(1000)), "do not end");
    assert_told(&answer(reply(3, u32::MAX, &[])), "too long");
    assert_told(&answer(reply(3, 1, b"\0")), "too short");
    assert_told(&answer(reply(3, 4, &[0; 4])), "an export's length is wrong");
    assert_told(&answer(reply(1, 0, &[])), "it names no export");
    assert_told(&answer(reply(9, 0, &[])), "a reply of an unknown kind");
    assert_told(&answer(vec![0; 20]), "a reply to something else");
    assert_told(&answer(reply(0x8000_0006, 4, b"none")), "refuses the export (error 6) none");
}

#[test]
fn wrong_answers_to_requests() {
    let answer = |bytes: Vec<u8>| {
        run(move |mut stream| {
            stream.write_all(GREETING).unwrap();
            read_go(&mut stream);
            stream.write_all(&export(u64::MAX, 0b1101)).unwrap();
            stream.read_exact(&mut [0; 28 + 512]).unwrap();
            let _ = stream.write_all(&bytes);
            drain(stream);
        })
    };
    assert_told(&answer(vec![7; 16]), "a reply has a wrong magic");
    let mut unknown = 0x6744_6698u32.to_be_bytes().to_vec();
    unknown.extend([0; 4]);
    unknown.extend(u64::MAX.to_be_bytes());
    assert_told(&answer(unknown), "a reply to no request");
    let mut failed = 0x6744_6698u32.to_be_bytes().to_vec();
    failed.extend(28u32.to_be_bytes());
    failed.extend(1u64.to_be_bytes());
    assert_told(&answer(failed), "No space left on device");
}

/// What a true server says: greeting and export, the answer to a write, that to a read; and how
/// many bytes of the client's come before each.
fn answers() -> [(usize, Vec<u8>); 3] {
    let reply = |cookie: u64| [&b"\x67\x44\x66\x98\0\0\0\0"[..], &cookie.to_be_bytes()].concat();
    let handshake = [GREETING, &export(SIZE, 0x0d)].concat();
    let read = [reply(2), vec![0; 512]].concat();
    [(0, handshake), (4 + 16 + 7 + 28 + 512, reply(1)), (28, read)]
}

/// A client that waits for more than there is gets an end instead, when it has been `quiet`.
fn serve(mut stream: UnixStream, answers: [(usize, Vec<u8>); 3], quiet: Duration) {
    stream.set_read_timeout(Some(quiet)).unwrap();
    for (before, answer) in answers {
        let mut heard = vec![0; before];
        if stream.read_exact(&mut heard).and_then(|()| stream.write_all(&answer)).is_err() {
            break;
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
}

#[test]
fn true_answers_are_taken() {
    outcome(PATIENCE * 30, |stream| serve(stream, answers(), PATIENCE * 30)).0.unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Bytes flipped, cut off, put in and taken out anywhere in what a server says: an end in
    /// time, never a panic. What was not damaged where it matters works.
    #[test]
    fn damaged_answers_end_in_time(
        damage in prop::collection::vec((0..3usize, any::<usize>(), 0..4u8, any::<u8>()), 1..4),
    ) {
        let mut answers = answers();
        for (which, at, kind, byte) in damage {
            let bytes = &mut answers[which].1;
            let at = at % (bytes.len() + 1);
            match kind {
                0 if at < bytes.len() => bytes[at] ^= byte | 1,
                1 => bytes.truncate(at),
                2 => bytes.insert(at, byte),
                _ => drop(bytes.drain(at..(at + usize::from(byte)).min(bytes.len()))),
            }
        }
        let (_, took) = outcome(PATIENCE, move |stream| serve(stream, answers, PATIENCE / 50));
        prop_assert!(took < PATIENCE * 10, "{took:?}");
    }
}
