//! perf_event_open(2) on tracepoints: the one structure, the filter, and where the kernel says
//! their numbers.

mod tracefs;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub use tracefs::Tracefs;

pub const TYPE_SOFTWARE: u32 = 1;
pub const TYPE_TRACEPOINT: u32 = 2;
pub const FLAG_INHERIT: u64 = 1 << 1;

const OPEN_CLOEXEC: libc::c_ulong = 8;
const IOC_SET_FILTER: libc::c_ulong = 0x4008_2406;

/// What is counted or sampled: the fields of struct perf_event_attr that anybody sets.
#[derive(Default)]
pub struct Event {
    pub kind: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub flags: u64,
    pub clock: i32,
}

/// struct perf_event_attr as of its fifth published size, which every kernel since 4.1 takes.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_to_registers: [u64; 5],
    stack: u32,
    clock: i32,
    rest: [u64; 2],
}
const SIZE: u32 = 112; // PERF_ATTR_SIZE_VER5
const _: () = assert!(size_of::<Attributes>() == SIZE as usize);

impl Event {
    /// Opens it in a thread (0: this one, -1: all) on a CPU (-1: all).
    ///
    /// # Errors
    /// No right to it; ESRCH when the thread is gone.
    pub fn open(self, thread: i32, cpu: i32) -> io::Result<OwnedFd> {
        let Event { kind, config, sample_period, sample_type, flags, clock } = self;
        let attributes = Attributes {
            kind,
            size: SIZE,
            config,
            sample_period,
            sample_type,
            read_format: 0,
            flags,
            wakeup_to_registers: [0; 5],
            stack: 0,
            clock,
            rest: [0; 2],
        };
        // SAFETY: the structure is complete and says its size; the kernel only reads it. There is
        // no group.
        let fd = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &attributes, thread, cpu, -1, OPEN_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
    }
}

/// Only what meets an expression over the tracepoint's fields, such as `flags & 4`.
pub fn set_filter(event: &OwnedFd, expression: &CStr) -> io::Result<()> {
    // SAFETY: the kernel copies the text, which ends with NUL.
    let done = unsafe { libc::ioctl(event.as_raw_fd(), IOC_SET_FILTER, expression.as_ptr()) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
