//! Requests of an io_submit(2) in another process: which of them sync, and what they become.

use std::io;
use std::os::fd::OwnedFd;

use diskproof_supervise::target::read_memory;
use diskproof_supervise::Notification;

use crate::rewrite::Patch;
use diskproof_bare::syscall::RWF_SYNCS;

/// As many as are looked at in one call; the kernel's own queues are seldom longer.
const MOST: u64 = 4096;
const SIZE: usize = 64;
const FLAGS: usize = 12;
const OPERATION: usize = 16;
const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;

/// Requests with a sync in them, as they are and as they are to be. `find` gives the file if its
/// syncs are dropped.
///
/// # Errors
/// EFAULT as the kernel would say, or no right to look.
pub fn find_syncs(
    call: &Notification,
    mut find: impl FnMut(i32) -> Option<OwnedFd>,
) -> io::Result<Vec<Patch>> {
    let width = if call.is_64_bit() { 8 } else { 4 };
    let count = call.arguments[1].min(MOST) as usize;
    let mut list = vec![0; count * width];
    read_memory(call.thread, call.arguments[2], &mut list)?;
    let mut patches = Vec::new();
    for pointer in list.chunks_exact(width) {
        let mut word = [0; 8];
        word[..width].copy_from_slice(pointer);
        let address = u64::from_le_bytes(word);
        let mut before = vec![0; SIZE];
        // The kernel takes those before the bad one.
        if read_memory(call.thread, address, &mut before).is_err() {
            break;
        }
        if let Some(during) = relieve(&before, &mut find) {
            patches.push(Patch { address, before, during });
        }
    }
    Ok(patches)
}

/// The request without its sync, if it has one. A sync alone becomes a transfer of nothing, which
/// completes with 0 too.
fn relieve(request: &[u8], find: &mut impl FnMut(i32) -> Option<OwnedFd>) -> Option<Vec<u8>> {
    let word =
        |place: usize| u32::from_le_bytes(std::array::from_fn(|index| request[place + index]));
    let operation = u16::from_le_bytes([request[OPERATION], request[OPERATION + 1]]);
    let flags = word(FLAGS);
    let alone = matches!(operation, FSYNC | FDSYNC);
    if !alone && flags & RWF_SYNCS as u32 == 0 {
        return None;
    }
    // A sync with a buffer, a length, an offset or flags is an error of the caller's.
    if alone && (flags != 0 || request[24..48].iter().any(|byte| *byte != 0)) {
        return None;
    }
    let file = find(word(20) as i32)?;
    let mut during = request.to_vec();
    during[FLAGS..FLAGS + 4].copy_from_slice(&(flags & !(RWF_SYNCS as u32)).to_le_bytes());
    if alone {
        let mode = rustix::fs::fcntl_getfl(&file).ok()?;
        let reads = !mode.intersects(rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::RDWR);
        let transfer = if reads { PREAD } else { PWRITE };
        during[OPERATION..OPERATION + 2].copy_from_slice(&transfer.to_le_bytes());
    }
    Some(during)
}
