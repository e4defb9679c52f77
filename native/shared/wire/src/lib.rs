//! The messages between the host and the agent in a guest: JSON, one object a line. And the crash
//! log, in [`crash_log`]; the ledger, in [`ledger`].
//!
//! `docs/guest-protocol.md` is the contract, `tests/golden/wire/` its examples.

#![forbid(unsafe_code)]

mod bytes;
pub mod crash_log;
mod event;
pub mod ledger;
mod line;
mod request;

pub use bytes::Bytes;
pub use event::{Disk, Event, Exit, Stream};
pub use line::{parse_event, parse_request, render_line, LineSplitter, SplitLine};
pub use request::{Clock, Exec, Kill, Poweroff, Read, Refusal, Request, Start, Write};

/// Raised whenever a peer of the old version would misread a message.
pub const PROTOCOL: u32 = 2;
/// Name of the virtio-serial port.
pub const PORT_NAME: &str = "diskproof.agent";
/// A request line, newline included.
pub const MAX_REQUEST_LINE: usize = 1 << 20;
/// An event line, newline included.
pub const MAX_EVENT_LINE: usize = 64 << 10;
/// Raw bytes in one `output` event: its base64 stays below [`MAX_EVENT_LINE`].
pub const MAX_CHUNK: usize = 32 << 10;
/// Bytes of `what` and of `why` in an `error` event.
pub const MAX_ERROR_TEXT: usize = 1 << 10;
/// A week: a longer deadline is a mistake of the sender.
pub const MAX_TIMEOUT_MS: u64 = 7 * 24 * 3600 * 1000;
/// The largest `max_bytes` of a `read`.
pub const MAX_READ_BYTES: u64 = 1 << 30;
