//! The golden log, which the Python side reads too: it decodes to its text and encodes to itself.

#![cfg(test)]

use std::path::PathBuf;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use diskproof_wire::crash_log::*;
use serde_json::{json, Map, Value};

fn read_golden(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../tests/golden").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn the_golden_log_says_what_its_text_says() {
    let found = check_text("crash-log");
    for kind in 1..=24 {
        assert!(found.iter().any(|r| r["kind"] == kind_name(kind)), "no example of kind {kind}");
    }
}

#[test]
fn a_log_from_before_there_were_callers_is_read() {
    assert_eq!(check_text("crash-log-1")[0]["version"], 1);
}

fn check_text(name: &str) -> Vec<Value> {
    let bytes = read_golden(&format!("{name}.bin"));
    let text = read_golden(&format!("{name}.jsonl"));
    let expected: Vec<Value> = text
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut found = vec![render_header(bytes[8], &reader.header())];
    while let Some(record) = reader.next_record().unwrap() {
        found.push(render(&record));
    }
    assert_eq!(reader.ending(), Some(Ending::Complete));
    assert_eq!(reader.offset(), bytes.len() as u64);
    assert_eq!(found, expected);
    found
}

#[test]
fn the_golden_log_encodes_to_itself() {
    let bytes = read_golden("crash-log.bin");
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut again = reader.header().encode().to_vec();
    let mut head = Vec::new();
    while let Some(record) = reader.next_record().unwrap() {
        let Record { sequence, begin_ns, end_ns, file, caller, error, operation } = record;
        let frame = Frame::new(&operation);
        let place = Place { sequence, begin_ns, end_ns, file, caller, error };
        again.extend(frame.pieces(&place, &mut head).concat());
    }
    assert!(again == bytes);
}

fn kind_name(kind: u8) -> &'static str {
    [
        "base",
        "create",
        "mkdir",
        "symlink",
        "link",
        "unlink",
        "rmdir",
        "rename",
        "write",
        "truncate",
        "fallocate",
        "fsync",
        "setattr",
        "setxattr",
        "removexattr",
        "open",
        "release",
        "acknowledge",
        "note",
        "end",
        "caller",
        "stack",
        "module",
        "line",
        "sync",
    ][usize::from(kind) - 1]
}

fn render_header(version: u8, header: &Header) -> Value {
    let Header { sector, block, file_system, monotonic_ns, realtime_ns } = header;
    json!({"version": version, "sector": sector, "block": block, "file_system": file_system,
           "monotonic_ns": monotonic_ns, "realtime_ns": realtime_ns})
}

fn render(record: &Record<'_>) -> Value {
    let mut line = Map::new();
    line.insert("sequence".into(), record.sequence.into());
    line.insert("begin_ns".into(), record.begin_ns.into());
    line.insert("end_ns".into(), record.end_ns.into());
    line.insert("file".into(), record.file.into());
    if record.caller != 0 {
        line.insert("caller".into(), record.caller.into());
    }
    line.insert("error".into(), record.error.into());
    line.insert("kind".into(), kind_name(record.operation.kind()).into());
    line.insert("flags".into(), record.operation.flags().0.into());
    let Value::Object(fields) = render_fields(&record.operation) else { unreachable!() };
    line.extend(fields);
    line.into()
}

fn render_fields(operation: &Operation<'_>) -> Value {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match operation {
        Operation::Base(entry)
        | Operation::Create(entry)
        | Operation::Mkdir(entry)
        | Operation::Symlink(entry) => {
            let Entry { parent, mode, uid, gid, rdev, size, name, target } = entry;
            json!({"parent": parent, "mode": mode, "uid": uid, "gid": gid, "rdev": rdev,
                   "size": size, "name": text(name), "target": text(target)})
        }
        Operation::Link { parent, name }
        | Operation::Unlink { parent, name }
        | Operation::Rmdir { parent, name } => json!({"parent": parent, "name": text(name)}),
        Operation::Rename { flags, parent, new_parent, replaced, name, new_name } => {
            json!({"rename_flags": flags, "parent": parent, "new_parent": new_parent,
                   "replaced": replaced, "name": text(name), "new_name": text(new_name)})
        }
        Operation::Write { offset, data, .. } => {
            json!({"offset": offset, "data_base64": STANDARD.encode(data)})
        }
        Operation::Truncate { size } => json!({"size": size}),
        Operation::Fallocate { mode, offset, length } => {
            json!({"mode": mode, "offset": offset, "length": length})
        }
        Operation::Fsync { .. } | Operation::Sync => json!({}),
        Operation::Msync { offset, length } => json!({"offset": offset, "length": length}),
        Operation::Setattr { mode, uid, gid } => json!({"mode": mode, "uid": uid, "gid": gid}),
        Operation::Setxattr { name, value } => {
            json!({"name": text(name), "value_base64": STANDARD.encode(value)})
        }
        Operation::Removexattr { name } => json!({"name": text(name)}),
        Operation::Open { handle, flags } => json!({"handle": handle, "open_flags": flags}),
        Operation::Release { handle } => json!({"handle": handle}),
        Operation::Caller { .. }
        | Operation::Stack { .. }
        | Operation::Module { .. }
        | Operation::Line { .. } => render_caller(operation),
        Operation::Acknowledge { text: line }
        | Operation::Note { text: line }
        | Operation::End { text: line } => json!({"text": text(line)}),
    }
}

fn render_caller(operation: &Operation<'_>) -> Value {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    match operation {
        Operation::Caller { process, thread, name } => {
            json!({"process": process, "thread": thread, "name": text(name)})
        }
        Operation::Stack { frames } => {
            let frames = frames.iter().map(|at| json!([at.module, at.offset]));
            json!({"frames": frames.collect::<Vec<_>>()})
        }
        Operation::Module { inode, build_id, path } => {
            json!({"inode": inode, "build_id_base64": STANDARD.encode(build_id),
                   "path": text(path)})
        }
        Operation::Line { address, line, function, file: path } => {
            json!({"module": address.module, "offset": address.offset, "line": line,
                   "function": text(function), "path": text(path)})
        }
        _ => unreachable!(),
    }
}
