//! The records of a ring: samples of tracepoints, births, names and losses.

/// One record. Times are CLOCK_MONOTONIC in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub time: u64,
    pub pid: i32,
    pub tid: i32,
    pub body: Body,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A system call's tracepoint: its id and its fields behind the call's number.
    Point {
        id: u16,
        fields: [u64; 6],
    },
    /// `pid` and `tid` were born of `parent`.
    Fork {
        parent: i32,
    },
    Name(String),
    Exit,
    Lost(u64),
}

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;
const HEADER: usize = 8;
/// pid, tid and time behind every record that is not a sample.
const TRAILER: usize = 16;
/// The common fields of a tracepoint and the number of the call.
const FIELDS: usize = 16;

/// All whole records of a ring's bytes; what is not understood is skipped.
pub fn parse_records(mut bytes: &[u8]) -> Vec<Record> {
    let mut records = Vec::with_capacity(bytes.len() / 64);
    while let (Some(kind), Some(size)) = (u32_at(bytes, 0), u16_at(bytes, 6)) {
        let size = usize::from(size);
        if size < HEADER || size > bytes.len() {
            break;
        }
        let (record, rest) = bytes.split_at(size);
        records.extend(parse_record(kind, &record[HEADER..]));
        bytes = rest;
    }
    records
}

fn parse_record(kind: u32, body: &[u8]) -> Option<Record> {
    if kind == SAMPLE {
        return parse_sample(body);
    }
    let trailer = body.get(body.len().checked_sub(TRAILER)?..)?;
    let mut record = Record {
        pid: u32_at(trailer, 0)? as i32,
        tid: u32_at(trailer, 4)? as i32,
        time: u64_at(trailer, 8)?,
        body: Body::Exit,
    };
    record.body = match kind {
        LOST => Body::Lost(u64_at(body, 8)?),
        FORK => {
            (record.pid, record.tid) = (u32_at(body, 0)? as i32, u32_at(body, 8)? as i32);
            Body::Fork { parent: u32_at(body, 4)? as i32 }
        }
        EXIT => {
            (record.pid, record.tid) = (u32_at(body, 0)? as i32, u32_at(body, 8)? as i32);
            Body::Exit
        }
        COMM => {
            (record.pid, record.tid) = (u32_at(body, 0)? as i32, u32_at(body, 4)? as i32);
            let name = body.get(8..body.len() - TRAILER)?;
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            Body::Name(String::from_utf8_lossy(&name[..end]).into_owned())
        }
        _ => return None,
    };
    Some(record)
}

/// tid, time and the raw fields, as our sources ask for them.
fn parse_sample(body: &[u8]) -> Option<Record> {
    let size = u32_at(body, 16)? as usize;
    let raw = body.get(20..20usize.checked_add(size)?)?;
    let mut fields = [0; 6];
    for (index, field) in fields.iter_mut().enumerate() {
        *field = u64_at(raw, FIELDS + 8 * index).unwrap_or(0);
    }
    Some(Record {
        pid: u32_at(body, 0)? as i32,
        tid: u32_at(body, 4)? as i32,
        time: u64_at(body, 8)?,
        body: Body::Point { id: u16_at(raw, 0)?, fields },
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u32, words: &[u32]) -> Vec<u8> {
        let size = HEADER + 4 * words.len();
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend((size as u16).to_ne_bytes());
        bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        bytes
    }

    #[test]
    fn a_sample_has_its_fields() {
        let raw = [1021, 7, 74, 0, 5, 0];
        let mut words = vec![7, 8, 99, 0, 28];
        words.extend(raw);
        words.push(0);
        let mut bytes = record(SAMPLE, &words);
        bytes.extend(record(77, &[1, 2, 3, 4]));
        bytes.extend(record(FORK, &[20, 10, 21, 11, 0, 0, 20, 21, 50, 0]));
        let records = parse_records(&bytes);
        let fields = [5, 0, 0, 0, 0, 0];
        assert_eq!(records[0].body, Body::Point { id: 1021, fields });
        assert_eq!((records[0].pid, records[0].tid, records[0].time), (7, 8, 99));
        assert_eq!(records[1].body, Body::Fork { parent: 10 });
        assert_eq!((records[1].pid, records[1].tid, records[1].time), (20, 21, 50));
    }

    #[test]
    fn a_name_ends_at_its_nul() {
        let name = u32::from_ne_bytes(*b"abc\0");
        let records = parse_records(&record(COMM, &[3, 4, name, 0, 3, 4, 60, 0]));
        assert_eq!(records[0].body, Body::Name("abc".into()));
    }

    #[test]
    fn any_bytes_are_read() {
        bolero::check!(name = "records").for_each(|bytes: &[u8]| {
            assert!(parse_records(bytes).len() <= bytes.len() / HEADER);
        });
    }
}
