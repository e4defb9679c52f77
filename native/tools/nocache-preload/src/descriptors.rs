//! What a descriptor is open on, and handing one to another process.

use diskproof_bare::syscall::{call, FSTAT, SENDMSG};

/// struct stat of x86-64, 144 bytes, as words.
pub struct Stat([u64; 18]);

impl Stat {
    /// Number of the inode mixed with its device.
    pub fn inode(&self) -> u64 {
        self.0[1] ^ self.0[0].rotate_left(32)
    }

    /// Tells in how many pages its bytes lie.
    pub fn pages(&self) -> u64 {
        self.0[6].div_ceil(4096)
    }

    pub fn is_regular(&self) -> bool {
        self.kind() == 0o100_000
    }

    pub fn is_block_device(&self) -> bool {
        self.kind() == 0o060_000
    }

    fn kind(&self) -> u64 {
        self.0[3] & 0o170_000 // st_mode is its lower half
    }
}

/// None when it is not open.
pub fn stat(fd: i32) -> Option<Stat> {
    let mut seen = Stat([0; 18]);
    // SAFETY: the structure has the kernel's size.
    let done = unsafe { call(FSTAT, [fd.into(), seen.0.as_mut_ptr() as i64, 0, 0, 0, 0]) };
    (done == 0).then_some(seen)
}

/// struct cmsghdr and one descriptor.
#[repr(C)]
struct Control {
    length: u64,
    level: i32,
    kind: i32,
    descriptor: i32,
    padding: i32,
}

/// struct msghdr.
#[repr(C)]
struct Header {
    name: u64,
    name_length: u64,
    parts: u64,
    count: u64,
    control: u64,
    control_length: u64,
    flags: u64,
}

/// True when the message is under way; never waits.
pub fn send_descriptor(socket: i32, message: &[u8], descriptor: i32) -> bool {
    const SOL_SOCKET: i32 = 1;
    const SCM_RIGHTS: i32 = 1;
    const DONTWAIT_NOSIGNAL: i64 = 0x40 | 0x4000;
    let part = [message.as_ptr() as u64, message.len() as u64];
    let control =
        Control { length: 20, level: SOL_SOCKET, kind: SCM_RIGHTS, descriptor, padding: 0 };
    let header = Header {
        name: 0,
        name_length: 0,
        parts: part.as_ptr() as u64,
        count: 1,
        control: (&raw const control) as u64,
        control_length: 20,
        flags: 0,
    };
    let words = [socket.into(), (&raw const header) as i64, DONTWAIT_NOSIGNAL, 0, 0, 0];
    // SAFETY: laid out as the kernel's structures, all alive.
    unsafe { call(SENDMSG, words) == message.len() as i64 }
}
