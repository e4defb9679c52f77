//! Between the library and the watcher: opens that do not stop, and how they are told.

/// In the unused arguments 4 and 5 of openat: the library tells of this open itself. Nobody's
/// registers hold that by chance.
pub const MARKS: [u64; 2] = [0x5d0b_0bee_d15c_0de1, 0x0d15_c0de_5d0b_09e5];

/// openat in this folder asks for the socket to tell through. It never is one: without a watcher
/// the kernel says EBADF.
pub const ASK_FOR_SOCKET: i32 = -0x5d0b_0001;

/// openat in this folder tells of the descriptor that stands where the path would: the caller waits
/// until it was looked at.
pub const TELL: i32 = -0x5d0b_0002;

/// A message through the socket: pages of the file that were cached before (all that it has, or
/// none), and with it a descriptor of the file (O_PATH).
pub type Message = u64;
