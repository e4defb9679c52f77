//! A record: 48 bytes of frame, then the payload, then zeros up to the next multiple of eight.

use super::operation::{decode, Flags, Operation};
use super::{MAX_CALLER_NAME, MAX_DATA, MAX_PAYLOAD, MAX_TEXT};
use crate::bytes;

pub const FRAME_LENGTH: usize = 48;

/// One line of the log's story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// 1 for the first record, then one more each.
    pub sequence: u64,
    /// CLOCK_MONOTONIC when the request arrived, and when its effect on the backing was complete.
    pub begin_ns: u64,
    pub end_ns: u64,
    /// The file it is about, 0 for none. Ids are never used again.
    pub file: u64,
    /// The number of who asked for it, 0 when nobody knows.
    pub caller: u32,
    /// 0, or the errno it failed with; what failed changed nothing.
    pub error: u16,
    pub operation: Operation<'a>,
}

/// A record's payload with its checksum, made before the record has its place in the log.
pub struct Frame<'a> {
    kind: u8,
    flags: Flags,
    fields: Vec<u8>,
    rest: &'a [u8],
    checksum: u32,
}

impl<'a> Frame<'a> {
    /// Panics when a payload is longer than the format allows: the caller splits or refuses.
    pub fn new(operation: &'a Operation<'_>) -> Frame<'a> {
        let (fields, rest) = operation.payload();
        assert!(fields.len() + rest.len() <= MAX_PAYLOAD, "payload too long");
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&fields);
        hasher.update(rest);
        let checksum = hasher.finalize();
        Frame { kind: operation.kind(), flags: operation.flags(), fields, rest, checksum }
    }

    /// Bytes of the whole record.
    pub fn length(&self) -> usize {
        FRAME_LENGTH + (self.fields.len() + self.rest.len()).next_multiple_of(8)
    }

    /// The pieces that, one after the other, are the record: `head` takes frame and fields.
    pub fn pieces<'b>(&'b self, place: &Place, head: &'b mut Vec<u8>) -> [&'b [u8]; 3] {
        let payload = self.fields.len() + self.rest.len();
        head.clear();
        head.extend_from_slice(&[0; 4]);
        head.extend_from_slice(&self.checksum.to_le_bytes());
        head.extend_from_slice(&(payload as u32).to_le_bytes());
        head.extend_from_slice(&[self.kind, self.flags.0]);
        head.extend_from_slice(&place.error.to_le_bytes());
        let whose = place.file | u64::from(place.caller) << 32;
        for number in [place.sequence, place.begin_ns, place.end_ns, whose] {
            head.extend_from_slice(&number.to_le_bytes());
        }
        let checksum = crc32fast::hash(&head[4..]);
        head[..4].copy_from_slice(&checksum.to_le_bytes());
        head.extend_from_slice(&self.fields);
        [head, self.rest, &[0; 8][..self.length() - FRAME_LENGTH - payload]]
    }
}

/// What a record's frame says besides its payload.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub sequence: u64,
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Less than 2^32.
    pub file: u64,
    pub caller: u32,
    pub error: u16,
}

/// A frame as read: what the payload must be, and the record without it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadFrame {
    pub place: Place,
    pub payload_length: usize,
    kind: u8,
    flags: Flags,
    checksum: u32,
}

impl ReadFrame {
    /// Err says what is wrong with it.
    pub fn decode(bytes: &[u8; FRAME_LENGTH]) -> Result<ReadFrame, &'static str> {
        let u32_at = |at| bytes::u32_at(bytes, at);
        let u64_at = |at| bytes::u64_at(bytes, at);
        if crc32fast::hash(&bytes[4..]) != u32_at(0) {
            return Err("the frame's checksum is wrong");
        }
        let payload_length = u32_at(8) as usize;
        if payload_length > MAX_PAYLOAD {
            return Err("the payload is longer than allowed");
        }
        let place = Place {
            sequence: u64_at(16),
            begin_ns: u64_at(24),
            end_ns: u64_at(32),
            file: u32_at(40).into(),
            caller: u32_at(44),
            error: u16::from_le_bytes([bytes[14], bytes[15]]),
        };
        let checksum = u32_at(4);
        Ok(ReadFrame { place, payload_length, kind: bytes[12], flags: Flags(bytes[13]), checksum })
    }

    /// The record of this frame and its payload.
    pub fn record(self, payload: &[u8]) -> Result<Record<'_>, &'static str> {
        if crc32fast::hash(payload) != self.checksum {
            return Err("the payload's checksum is wrong");
        }
        let operation = decode(self.kind, self.flags, payload).ok_or("the payload is malformed")?;
        let long = match &operation {
            Operation::Write { data, .. } => data.len() > MAX_DATA,
            Operation::Acknowledge { text }
            | Operation::Note { text }
            | Operation::End { text } => text.len() > MAX_TEXT,
            Operation::Caller { name, .. } => name.len() > MAX_CALLER_NAME,
            Operation::Module { path, .. } => path.len() > MAX_TEXT,
            Operation::Line { file, .. } => file.len() > MAX_TEXT,
            _ => false,
        };
        if long {
            return Err("the payload is longer than allowed");
        }
        let Place { sequence, begin_ns, end_ns, file, caller, error } = self.place;
        Ok(Record { sequence, begin_ns, end_ns, file, caller, error, operation })
    }
}
