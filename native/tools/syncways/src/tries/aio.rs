//! POSIX AIO of the C library, and the kernel's own AIO.

use crate::scratch::{expect_zero, Scratch, LENGTH};
use crate::Failure;
use libc::{c_int, c_long};
use std::mem::zeroed;
use std::ptr::null;

pub fn posix_fsync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create_dirty()?;
    // SAFETY: a structure of numbers and pointers, for which zeroes mean "none".
    let mut block: libc::aiocb = unsafe { zeroed() };
    block.aio_fildes = scratch.fd()?;
    block.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
    // SAFETY: the block stays where it is until the request has ended.
    expect_zero("aio_fsync", unsafe { libc::aio_fsync(libc::O_SYNC, &mut block) })?;
    // SAFETY: the request was queued above.
    while unsafe { libc::aio_error(&block) } == libc::EINPROGRESS {
        let list = [std::ptr::from_ref(&block)];
        // SAFETY: a list of one live block; a null time means to wait.
        unsafe { libc::aio_suspend(list.as_ptr(), 1, null()) };
    }
    // SAFETY: the request has ended.
    match unsafe { libc::aio_error(&block) } {
        // SAFETY: as above; asked once.
        0 => expect_zero("aio_fsync", unsafe { libc::aio_return(&mut block) } as c_int),
        errno => Err(Failure { call: "aio_fsync", errno }),
    }
}

const IOCB_CMD_PWRITE: u16 = 1;
const IOCB_CMD_FSYNC: u16 = 2;
const IOCB_CMD_FDSYNC: u16 = 3;

/// The kernel's `struct iocb` on a little-endian machine.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: c_int,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

#[repr(C)]
#[derive(Default)]
struct IoEvent {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

pub fn submit_fsync(scratch: &mut Scratch) -> Result<(), Failure> {
    submit_sync(scratch, IOCB_CMD_FSYNC)
}

pub fn submit_fdsync(scratch: &mut Scratch) -> Result<(), Failure> {
    submit_sync(scratch, IOCB_CMD_FDSYNC)
}

fn submit_sync(scratch: &mut Scratch, opcode: u16) -> Result<(), Failure> {
    scratch.create_dirty()?;
    let fd = scratch.fd()? as u32;
    match submit(&Iocb { opcode, fd, ..Iocb::default() })? {
        0 => Ok(()),
        error => Err(Failure { call: "io_submit", errno: -error as c_int }),
    }
}

pub fn submit_dsync(scratch: &mut Scratch) -> Result<(), Failure> {
    scratch.create()?;
    let bytes = [b'x'; LENGTH];
    let request = Iocb {
        opcode: IOCB_CMD_PWRITE,
        rw_flags: libc::RWF_DSYNC,
        fd: scratch.fd()? as u32,
        buffer: bytes.as_ptr() as u64,
        bytes: LENGTH as u64,
        ..Iocb::default()
    };
    match submit(&request)? {
        written if written == LENGTH as i64 => Ok(()),
        error if error < 0 => Err(Failure { call: "io_submit", errno: -error as c_int }),
        _ => Err(Failure { call: "io_submit", errno: libc::ENOSPC }),
    }
}

/// Submits one request and waits for its result.
fn submit(request: &Iocb) -> Result<i64, Failure> {
    let mut context: libc::c_ulong = 0;
    // SAFETY: the kernel writes the context's number.
    let made = unsafe { libc::syscall(libc::SYS_io_setup, 1, &mut context) };
    expect_zero("io_setup", made as c_int)?;
    let result = submit_to(context, request);
    // SAFETY: the context made above; destroying it waits for what is in flight.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
    result
}

fn submit_to(context: libc::c_ulong, request: &Iocb) -> Result<i64, Failure> {
    let list = [std::ptr::from_ref(request)];
    let one: c_long = 1;
    // SAFETY: a list of one live request, whose buffer outlives the context.
    let taken = unsafe { libc::syscall(libc::SYS_io_submit, context, one, list.as_ptr()) };
    if taken != 1 {
        return Err(Failure::last("io_submit"));
    }
    let mut event = IoEvent::default();
    let forever = null::<libc::timespec>();
    // SAFETY: room for one event, of which the kernel fills at most one.
    let ended =
        unsafe { libc::syscall(libc::SYS_io_getevents, context, one, one, &mut event, forever) };
    match ended {
        1 => Ok(event.result),
        _ => Err(Failure::last("io_getevents")),
    }
}
