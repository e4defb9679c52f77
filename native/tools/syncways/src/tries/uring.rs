//! io_uring: what is asked for stands in shared memory, where no filter of system calls sees it.

use super::plain::RANGE_FLAGS;
use crate::scratch::{Scratch, CREATE, LENGTH};
use crate::Failure;
use io_uring::{opcode, squeue, types::Fd, IoUring};

pub fn fsync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()?;
    let entry = opcode::Fsync::new(Fd(scratch.fd()?)).build();
    submit(entry).map(drop)
}

pub fn sync_file_range(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()?;
    let range = opcode::SyncFileRange::new(Fd(scratch.fd()?), LENGTH as u32);
    submit(range.flags(RANGE_FLAGS).build()).map(drop)
}

pub fn dsync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create()?;
    let bytes = [b'x'; LENGTH];
    let write = opcode::Write::new(Fd(scratch.fd()?), bytes.as_ptr(), LENGTH as u32);
    match submit(write.rw_flags(libc::RWF_DSYNC).build())? {
        written if written as usize == LENGTH => Ok(()),
        _ => Err(Failure { call: "io_uring", errno: libc::ENOSPC }),
    }
}

pub fn openat_dsync(scratch: &mut Scratch) -> Result<(), Failure> {
    let path = scratch.path().clone();
    let open = opcode::OpenAt::new(Fd(libc::AT_FDCWD), path.as_ptr());
    let opened = submit(open.flags(CREATE | libc::O_DSYNC).mode(0o600).build())?;
    scratch.adopt("io_uring", opened)?;
    scratch.write()
}

/// Submits one request on a ring of its own and waits for its result.
fn submit(entry: squeue::Entry) -> Result<i32, Failure> {
    let failed = |call| move |error: std::io::Error| Failure::of(call, &error);
    let mut ring = IoUring::new(2).map_err(failed("io_uring_setup"))?;
    // SAFETY: the callers keep buffer, path and file alive until this function returns, and the
    // ring, which is dropped here, waits for what is in flight.
    let pushed = unsafe { ring.submission().push(&entry) };
    pushed.map_err(|_| Failure { call: "io_uring", errno: libc::EBUSY })?;
    ring.submit_and_wait(1).map_err(failed("io_uring_enter"))?;
    let ended = ring.completion().next();
    match ended.map(|event| event.result()) {
        Some(result) if result >= 0 => Ok(result),
        Some(error) => Err(Failure { call: "io_uring", errno: -error }),
        None => Err(Failure { call: "io_uring", errno: libc::EIO }),
    }
}
