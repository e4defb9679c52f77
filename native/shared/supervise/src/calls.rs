//! System calls by their number in each of the three tables of an x86-64 kernel.

/// One system call. A number that is `None` does not exist in that table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub name: &'static str,
    pub x86_64: u32,
    pub i386: Option<u32>,
    /// The x32 table shares numbers below 512 with x86-64; the few calls with pointers in
    /// structures have their own.
    pub x32: Option<u32>,
}

/// Bit that marks a number of the x32 table, which has x86-64's architecture.
pub const X32_BIT: u32 = 0x4000_0000;

const fn call(name: &'static str, x86_64: u32, i386: u32) -> Call {
    Call { name, x86_64, i386: Some(i386), x32: Some(x86_64) }
}

impl Call {
    const fn with_x32(self, number: u32) -> Call {
        Call { x32: Some(number), ..self }
    }
}

pub const FSYNC: Call = call("fsync", 74, 118);
pub const FDATASYNC: Call = call("fdatasync", 75, 148);
pub const SYNC: Call = call("sync", 162, 36);
pub const SYNCFS: Call = call("syncfs", 306, 344);
pub const MSYNC: Call = call("msync", 26, 144);
pub const SYNC_FILE_RANGE: Call = call("sync_file_range", 277, 314);
pub const READ: Call = call("read", 0, 3);
pub const WRITE: Call = call("write", 1, 4);
pub const OPEN: Call = call("open", 2, 5);
pub const CLOSE: Call = call("close", 3, 6);
pub const CREAT: Call = call("creat", 85, 8);
pub const OPENAT: Call = call("openat", 257, 295);
pub const OPENAT2: Call = call("openat2", 437, 437);
pub const PWRITEV2: Call = call("pwritev2", 328, 379).with_x32(547);
pub const IOCTL: Call = call("ioctl", 16, 54).with_x32(514);
pub const IO_SUBMIT: Call = call("io_submit", 209, 248).with_x32(544);
pub const IO_URING_SETUP: Call = call("io_uring_setup", 425, 425);
pub const FILE_SETATTR: Call = call("file_setattr", 469, 469);
pub const GETPPID: Call = call("getppid", 110, 64);
pub const EXIT_GROUP: Call = call("exit_group", 231, 252);
