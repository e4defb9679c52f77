//! The crash log: every change of a recorded directory, in order, with its data and its times.
//!
//! `docs/crash-log.md` is the contract, `tests/golden/crash-log/` holds an example of every record.

mod carriers;
mod fields;
mod header;
mod operation;
mod reader;
mod record;

pub use carriers::is_carrier;
pub use fields::MAX_NAME;
pub use header::{Header, HEADER_LENGTH, MAGIC};
pub use operation::{Address, Entry, Flags, Name, Operation};
pub use reader::{Ending, LogError, Reader};
pub use record::{Frame, Place, Record, FRAME_LENGTH};

/// Raised whenever a reader of the old version would misread a log. Logs of version 1 are read too:
/// they know no callers.
pub const VERSION: u32 = 2;
/// Data of one write; longer requests are logged as several.
pub const MAX_DATA: usize = 1 << 20;
/// Bytes of a payload: the data of a write or the value of an extended attribute, and fields.
pub const MAX_PAYLOAD: usize = MAX_DATA + (64 << 10);
/// Bytes of one acknowledgement, note or reason for the end.
pub const MAX_TEXT: usize = 4 << 10;
/// Bytes of a caller's name; the kernel's names of threads are shorter.
pub const MAX_CALLER_NAME: usize = 64;
/// Frames of a stack that are told.
pub const MAX_FRAMES: usize = 32;
/// The file id of the recorded directory itself.
pub const ROOT: u64 = 1;
/// In the root of every mount, and in no backing: each line written to it is an acknowledgement.
pub const ACK_NAME: &str = ".diskproof-ack";
/// ioctl(2) of that file: who has this thread number has called sync(2) or syncfs(2), of which a
/// FUSE file system is not told. `_IOW('d', 25, u32)`.
pub const NOTE_SYNC: u32 = 0x4004_6419;
