//! The golden ledger, which the Python side reads too: its records encode to it, and it is judged
//! as its text says.

#![cfg(test)]

use std::path::PathBuf;

use diskproof_wire::ledger::*;
use serde_json::{json, Value};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../tests/golden").join(name)
}

fn read_golden() -> (Vec<u8>, Value) {
    let bytes = std::fs::read(golden("ledger.bin")).unwrap();
    let text = std::fs::read(golden("ledger.json")).unwrap();
    (bytes, serde_json::from_slice(&text).unwrap())
}

fn number(value: &Value) -> u64 {
    match value {
        Value::String(text) => u64::from_str_radix(text, 16).unwrap(),
        value => value.as_u64().unwrap(),
    }
}

fn geometry(text: &Value) -> Geometry {
    let field = |name| number(&text["geometry"][name]);
    Geometry {
        id: field("id"),
        offset: field("offset"),
        slots: field("slots"),
        seed: field("seed"),
    }
}

/// The record of a sequence number, its times counted up from those in the text.
fn record(text: &Value, sequence: u64) -> [u8; SLOT] {
    let times = |name| number(&text["times"][name]) + sequence * number(&text["times"]["step_ns"]);
    let (monotonic_ns, realtime_ns) = (times("monotonic_ns"), times("realtime_ns"));
    Record::encode(&geometry(text), &Place { sequence, monotonic_ns, realtime_ns })
}

/// The bytes that `places` in the text describes: in the slot of each promised sequence a record,
/// sectors of several, or nothing.
fn build(text: &Value) -> Vec<u8> {
    let geometry = geometry(text);
    let mut bytes = vec![0; geometry.position(geometry.slots) as usize];
    bytes[..17].copy_from_slice(b"not the ledger's\n");
    for (promised, what) in text["places"].as_object().unwrap() {
        let slot = geometry.slot_of(promised.parse().unwrap());
        let start = geometry.position(slot) as usize;
        let into = &mut bytes[start..start + SLOT];
        match what {
            Value::Null => {}
            Value::Array(owners) => {
                for (at, owner) in owners.iter().enumerate() {
                    let sector = at * SECTOR..(at + 1) * SECTOR;
                    let whole = record(text, number(owner));
                    into[sector.clone()].copy_from_slice(&whole[sector]);
                }
            }
            owner => into.copy_from_slice(&record(text, number(owner))),
        }
    }
    bytes
}

#[test]
fn the_golden_ledger_is_what_its_text_describes() {
    let (bytes, text) = read_golden();
    let slots: Vec<u64> = (5..=12).map(|sequence| geometry(&text).slot_of(sequence)).collect();
    assert_eq!(json!(slots), text["slots"], "slots of the sequences 5 to 12");
    assert!(build(&text) == bytes);
}

#[test]
fn the_golden_ledger_is_judged_as_its_text_says() {
    let (bytes, text) = read_golden();
    let lines = text["acknowledgements"].as_array().unwrap();
    let parsed: Vec<Acknowledgement> = lines
        .iter()
        .map(|line| Acknowledgement::parse(line.as_str().unwrap().as_bytes()).unwrap())
        .collect();
    assert_eq!(parsed[0].geometry, Some(geometry(&text)));
    let written: Vec<String> = parsed.iter().map(ToString::to_string).collect();
    assert_eq!(json!(written), text["acknowledgements"]);
    let report = verify(&mut &bytes[..], &geometry(&text), parsed[1].sequence).unwrap();
    assert_eq!(serde_json::to_value(report).unwrap(), text["report"]);
}

#[test]
fn the_ledger_on_a_disk_is_found_by_its_records() {
    let (bytes, text) = read_golden();
    let find = |id| find_geometry(&mut &bytes[..], bytes.len() as u64, id).unwrap();
    // The record in the wrong slot is the second newest: where it says that the ledger begins is
    // wrong.
    assert_eq!(find(None), Some(geometry(&text)));
    assert_eq!(find(Some(geometry(&text).id)), Some(geometry(&text)));
    assert_eq!(find(Some(1)), None);
}
