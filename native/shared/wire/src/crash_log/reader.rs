//! A log, record by record.

use std::io::{self, Read};

use super::header::{Header, HEADER_LENGTH};
use super::record::{ReadFrame, Record, FRAME_LENGTH};
use super::{Operation, MAX_PAYLOAD, VERSION};

/// Why a log cannot be read on.
#[derive(Debug)]
pub enum LogError {
    /// The file does not begin as a log does.
    NoLog,
    Version(u32),
    /// The bytes at this offset of the file are not what a recorder writes there.
    Corrupt {
        offset: u64,
        why: &'static str,
    },
    Io(io::Error),
}

impl std::fmt::Display for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LogError::NoLog => write!(f, "this is no crash log"),
            LogError::Version(version) => {
                write!(f, "the crash log has version {version}, this program reads {VERSION}")
            }
            LogError::Corrupt { offset, why } => {
                write!(f, "the crash log is corrupt at byte {offset}: {why}")
            }
            LogError::Io(error) => write!(f, "the crash log cannot be read: {error}"),
        }
    }
}

impl std::error::Error for LogError {}

impl From<io::Error> for LogError {
    fn from(error: io::Error) -> Self {
        LogError::Io(error)
    }
}

/// How a log that could be read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// With its `End` record.
    Complete,
    /// Without one, between two records: the recorder was killed.
    Open,
    /// Within the record that begins at `offset`: the recorder was killed while it wrote it.
    Truncated { offset: u64 },
}

/// Reads the records of a log in order; holds one payload at a time.
pub struct Reader<R> {
    source: R,
    header: Header,
    /// Where the next record begins.
    offset: u64,
    sequence: u64,
    end_ns: u64,
    /// So many callers have been named.
    callers: u32,
    ended: bool,
    ending: Option<Ending>,
    payload: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Reads the header. A buffered source is much faster.
    pub fn new(mut source: R) -> Result<Self, LogError> {
        let mut bytes = [0; HEADER_LENGTH];
        if read_up_to(&mut source, &mut bytes)? < HEADER_LENGTH {
            return Err(LogError::NoLog);
        }
        Ok(Reader {
            source,
            header: Header::decode(&bytes)?,
            offset: HEADER_LENGTH as u64,
            sequence: 0,
            end_ns: 0,
            callers: 0,
            ended: false,
            ending: None,
            payload: Vec::new(),
        })
    }

    pub fn header(&self) -> Header {
        self.header
    }

    /// Where the next record begins, in bytes from the start of the file.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// None until `next_record` has said that there is no further one.
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// The next record, or None at the log's end; [`Reader::ending`] then says which.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, LogError> {
        let mut frame = [0; FRAME_LENGTH];
        let got = read_up_to(&mut self.source, &mut frame)?;
        if got < FRAME_LENGTH {
            return self.end(got);
        }
        let corrupt = |why| LogError::Corrupt { offset: self.offset, why };
        let frame = ReadFrame::decode(&frame).map_err(corrupt)?;
        self.check_order(&frame).map_err(corrupt)?;
        let padded = frame.payload_length.next_multiple_of(8);
        debug_assert!(padded <= MAX_PAYLOAD);
        self.payload.resize(padded, 0);
        if read_up_to(&mut self.source, &mut self.payload)? < padded {
            return self.end(FRAME_LENGTH);
        }
        let (payload, padding) = self.payload.split_at(frame.payload_length);
        if padding.iter().any(|&byte| byte != 0) {
            return Err(corrupt("the padding is not zero"));
        }
        let record = frame.record(payload).map_err(corrupt)?;
        let names = matches!(record.operation, Operation::Caller { .. });
        let is_known = match names {
            true => u64::from(record.caller) == u64::from(self.callers) + 1,
            false => record.caller <= self.callers,
        };
        if !is_known {
            return Err(corrupt("its caller has no name, or a second one"));
        }
        self.callers += u32::from(names);
        self.offset += (FRAME_LENGTH + padded) as u64;
        self.sequence = record.sequence;
        self.end_ns = record.end_ns;
        self.ended = matches!(record.operation, Operation::End { .. });
        Ok(Some(record))
    }

    fn check_order(&self, frame: &ReadFrame) -> Result<(), &'static str> {
        let place = &frame.place;
        if self.ended {
            Err("there is a record after the end")
        } else if place.sequence != self.sequence + 1 {
            Err("the sequence number is not the next")
        } else if place.begin_ns > place.end_ns || place.end_ns < self.end_ns {
            Err("its times run backwards")
        } else {
            Ok(())
        }
    }

    /// `partial` bytes of a record were there.
    fn end<T>(&mut self, partial: usize) -> Result<Option<T>, LogError> {
        self.ending = Some(match (partial, self.ended) {
            (0, true) => Ending::Complete,
            (0, false) => Ending::Open,
            (_, true) => {
                let why = "there is something after the end";
                return Err(LogError::Corrupt { offset: self.offset, why });
            }
            (_, false) => Ending::Truncated { offset: self.offset },
        });
        Ok(None)
    }
}

/// Fills the buffer unless the source ends before; gives the bytes read.
fn read_up_to(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match source.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
