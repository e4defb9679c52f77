//! Between messages and lines of text.

use serde::{Deserialize, Serialize};

use crate::{Event, Refusal, Request};

/// Text (without or with its newline) to request; a [`Refusal`] carries the id if it could be read.
pub fn parse_request(line: &[u8]) -> Result<Request, Refusal> {
    require_object(line)
        .and_then(|()| serde_json::from_slice::<Request>(line).map_err(|error| error.to_string()))
        .and_then(|request| request.check().map(|()| request))
        .map_err(|why| Refusal { id: find_id(line), why })
}

/// Text to event.
pub fn parse_event(line: &[u8]) -> Result<Event, serde_json::Error> {
    serde_json::from_slice(line)
}

/// A message as one line, newline included.
pub fn render_line(message: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Serde would also take an array of a message's values in order, which is not in the protocol.
fn require_object(line: &[u8]) -> Result<(), String> {
    match line.trim_ascii_start().first() {
        Some(b'{') => Ok(()),
        _ => Err("the line is no JSON object".to_owned()),
    }
}

fn find_id(line: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct OnlyId {
        id: u64,
    }
    require_object(line).ok()?;
    serde_json::from_slice::<OnlyId>(line).ok().map(|only| only.id)
}

/// Cuts a byte stream into lines without ever holding more than `max` bytes of one.
pub struct LineSplitter {
    max: usize,
    line: Vec<u8>,
    overlong: bool,
}

/// One line of the stream, without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitLine {
    Whole(Vec<u8>),
    /// The line was longer than the bound and is gone.
    Overlong,
}

impl LineSplitter {
    /// `max` counts the newline.
    pub fn new(max: usize) -> Self {
        LineSplitter { max, line: Vec::new(), overlong: false }
    }

    /// Take the next bytes of the stream, give the lines that they end.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<SplitLine> {
        let mut lines = Vec::new();
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            self.take(&bytes[..end]);
            lines.push(self.end_line());
            bytes = &bytes[end + 1..];
        }
        self.take(bytes);
        lines
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.overlong || self.line.len() + bytes.len() >= self.max {
            self.overlong = true;
            self.line.clear();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }

    fn end_line(&mut self) -> SplitLine {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.overlong) {
            SplitLine::Overlong
        } else {
            SplitLine::Whole(line)
        }
    }
}
