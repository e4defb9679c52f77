//! What the guest reports.

use serde::{Deserialize, Serialize};

use crate::{Bytes, MAX_ERROR_TEXT};

/// One event. Unknown fields are ignored: a newer agent may say more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    Hello {
        protocol: u32,
        agent: String,
        kernel: String,
        monotonic_ns: u64,
    },
    Started {
        id: u64,
        root: String,
        #[serde(flatten)]
        disk: Option<Disk>,
    },
    Output {
        id: u64,
        stream: Stream,
        #[serde(rename = "data_base64")]
        data: Bytes,
    },
    Exit(Exit),
    Clock {
        id: u64,
        monotonic_ns: u64,
        realtime_ns: u64,
    },
    Done {
        id: u64,
    },
    Error {
        id: Option<u64>,
        what: String,
        why: String,
    },
}

/// Where the bytes of an `output` come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    Stdout,
    Stderr,
    File,
}

/// The disk under test as the guest's kernel sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    #[serde(rename = "disk")]
    pub device: String,
    /// Bytes.
    pub size: u64,
    pub logical_block_size: u64,
    pub physical_block_size: u64,
    pub write_cache: String,
    pub fua: bool,
    pub rotational: bool,
    pub scheduler: String,
    pub queue_depth: u64,
    pub nr_requests: u64,
    pub hardware_queues: u64,
    pub max_sectors_kb: u64,
    pub discard_max_bytes: u64,
    pub driver: String,
    /// From the disk up to the bus.
    pub drivers: Vec<String>,
}

/// How an exec ended; exactly one of `code` and `signal` is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub id: u64,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub timed_out: bool,
    pub user_us: u64,
    pub system_us: u64,
    pub elapsed_ns: u64,
}

impl Event {
    /// An `error` whose texts fit the bound of an event line.
    pub fn error(id: Option<u64>, what: impl Into<String>, why: impl Into<String>) -> Event {
        Event::Error { id, what: cut(what.into()), why: cut(why.into()) }
    }
}

fn cut(mut text: String) -> String {
    if text.len() > MAX_ERROR_TEXT {
        let mut end = MAX_ERROR_TEXT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
    text
}
