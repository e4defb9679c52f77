//! Each call of the family as the kernel would answer it, less the sync. Answers are the kernel's:
//! negative for errors.

use core::sync::atomic::Ordering::Relaxed;

use diskproof_bare::syscall;

use crate::page::{Kind, LOOKED_THROUGH};
use crate::state::{count, find_known, is_ours, is_ours_to_read, page, set_examined, Known};
use crate::target::{examine, is_syncable, Verdict};

/// fsync, fdatasync, syncfs.
#[inline(always)]
pub fn sync_descriptor(number: i64, kind: Kind, fd: i32) -> i64 {
    let page = page();
    // SAFETY: no pointers.
    let real = || unsafe { syscall::call(number, [fd.into(), 0, 0, 0, 0, 0]) };
    if !is_ours(page) {
        return real();
    }
    let known = find_known(fd);
    if known != Known::Open && !is_syncable(fd) {
        return real();
    }
    if known == Known::Nothing {
        match examine(fd) {
            Verdict::Drop => set_examined(fd),
            Verdict::Real => return real(),
            Verdict::Error(error) => return -i64::from(error),
        }
    }
    count(page, kind);
    0
}

pub fn sync_all() {
    let page = page();
    if is_ours(page) {
        count(page, Kind::Sync);
    } else {
        // SAFETY: no arguments.
        unsafe { syscall::call(syscall::SYNC, [0; 6]) };
    }
}

/// MS_ASYNC makes the kernel check the same things and write nothing. Both flags together are an
/// error of the caller's.
pub fn sync_memory(start: i64, length: i64, flags: i32) -> i64 {
    let page = page();
    let drops = flags & (syscall::MS_SYNC | syscall::MS_ASYNC) == syscall::MS_SYNC && is_ours(page);
    let lazy = if drops { flags & !syscall::MS_SYNC | syscall::MS_ASYNC } else { flags };
    // SAFETY: writes no memory.
    let value = unsafe { syscall::call(syscall::MSYNC, [start, length, lazy.into(), 0, 0, 0]) };
    if drops && value == 0 {
        count(page, Kind::Msync);
    }
    value
}

/// Without its valid flags the kernel makes all checks and writes nothing.
pub fn sync_range(fd: i32, offset: i64, length: i64, flags: u32) -> i64 {
    let page = page();
    let drops = flags & 7 != 0 && flags & !7 == 0 && is_ours(page);
    let kept = if drops { 0 } else { flags };
    // SAFETY: no pointers.
    let value = unsafe {
        syscall::call(syscall::SYNC_FILE_RANGE, [fd.into(), offset, length, kept.into(), 0, 0])
    };
    if drops && value == 0 {
        count(page, Kind::SyncFileRange);
    }
    value
}

const O_PATH: i32 = 0o10_000_000;

/// Flags without their sync, and whether they had one that is ours to drop.
fn relieve_flags(flags: i32, bits: i32, other_use: i32) -> (i32, bool) {
    let drops = flags & bits != 0 && flags & other_use == 0 && is_ours(page());
    (if drops { flags & !bits } else { flags }, drops)
}

/// The call with the flags to open with, counted when it succeeds.
#[inline(always)]
pub fn open_with(flags: i32, open: impl FnOnce(i32) -> i64) -> i64 {
    let (flags, drops) = relieve_flags(flags, syscall::O_SYNCS, O_PATH);
    let value = open(flags);
    if drops && value >= 0 {
        count(page(), Kind::Open);
    }
    value
}

pub fn write_with(flags: i32, write: impl FnOnce(i32) -> i64) -> i64 {
    let (flags, drops) = relieve_flags(flags, syscall::RWF_SYNCS, 0);
    let value = write(flags);
    if drops && value >= 0 {
        count(page(), Kind::Write);
    }
    value
}

/// `struct open_how`, whose flags are changed in a copy.
///
/// # Safety
/// As openat2(2).
pub unsafe fn open_how(fd: i32, path: i64, how: i64, size: i64) -> i64 {
    const SIZE: usize = 24;
    let mut copy = [0; SIZE];
    let (mut place, mut drops) = (how, false);
    if size == SIZE as i64 && syscall::read_own(how as u64, &mut copy) {
        let (flags, rest) = copy.split_at_mut(4);
        let asked = i32::from_le_bytes([flags[0], flags[1], flags[2], flags[3]]);
        if asked & syscall::O_SYNCS != 0 && asked & O_PATH == 0 && rest[..4] == [0; 4] {
            drops = is_ours_to_read(page());
            if drops {
                flags.copy_from_slice(&(asked & !syscall::O_SYNCS).to_le_bytes());
                place = copy.as_ptr() as i64;
            }
        }
    }
    // SAFETY: the caller's, or our copy.
    let value = unsafe { syscall::call(syscall::OPENAT2, [fd.into(), path, place, size, 0, 0]) };
    if drops && value >= 0 {
        count(page(), Kind::Open);
    }
    value
}

/// Requests of one io_submit that are looked at; more than that go in several calls, as the kernel
/// may do itself.
const BATCH: usize = 64;
const IOCB_PREAD: u16 = 0;
const IOCB_PWRITE: u16 = 1;
const IOCB_FSYNC: u16 = 2;
const IOCB_FDSYNC: u16 = 3;

/// The kernel's `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Request {
    data: u64,
    key: u32,
    flags: u32,
    operation: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    spare: u64,
    more_flags: u32,
    event: u32,
}

/// # Safety
/// As io_submit(2).
pub unsafe fn submit(context: i64, asked: i64, list: i64) -> i64 {
    let some = asked.clamp(0, BATCH as i64);
    let mut pointers = [0_u64; BATCH];
    let known = read_requests(list, &mut pointers[..some as usize]);
    let mut before = [(0_u32, 0_u16); BATCH];
    let mut syncs = 0;
    let page = page();
    // SAFETY: requests that could be read, and that the kernel writes to as well; changed back
    // below.
    let request = |place: usize| unsafe { &mut *(pointers[place] as *mut Request) };
    for (place, before) in before[..known].iter_mut().enumerate() {
        *before = (request(place).flags, request(place).operation);
        if is_sync(request(place)) && is_ours(page) {
            syncs += 1;
            relieve(request(place));
        }
    }
    // What was not looked at is the kernel's to refuse, or the filter's to look at.
    let marks = if known as i64 == some { LOOKED_THROUGH.map(i64::from) } else { [0; 2] };
    // SAFETY: the caller's.
    let value = unsafe {
        syscall::call(
            syscall::IO_SUBMIT,
            [context, asked.min(BATCH as i64), list, marks[0], marks[1], 0],
        )
    };
    for (place, (flags, operation)) in before[..known].iter().enumerate() {
        (request(place).flags, request(place).operation) = (*flags, *operation);
    }
    if syncs > 0 && value > 0 {
        page.dropped[Kind::Submit as usize].fetch_add(syncs, Relaxed);
    }
    value
}

/// How many requests of the list can be read.
fn read_requests(list: i64, pointers: &mut [u64]) -> usize {
    // SAFETY: as bytes, the same memory.
    let bytes = unsafe {
        core::slice::from_raw_parts_mut(pointers.as_mut_ptr().cast(), size_of_val(pointers))
    };
    if pointers.is_empty() || !syscall::read_own(list as u64, bytes) {
        return 0;
    }
    let mut request = [0; size_of::<Request>()];
    let readable =
        |pointer: &&u64| **pointer % 8 == 0 && syscall::read_own(**pointer, &mut request);
    pointers.iter().take_while(readable).count()
}

fn is_sync(request: &Request) -> bool {
    match request.operation {
        IOCB_FSYNC | IOCB_FDSYNC => {
            let zero = request.buffer == 0 && request.length == 0 && request.offset == 0;
            zero && request.flags == 0 && examine(request.fd as i32) == Verdict::Drop
        }
        _ => request.flags & syscall::RWF_SYNCS as u32 != 0,
    }
}

/// A sync becomes a transfer of nothing, which completes with 0 as well.
fn relieve(request: &mut Request) {
    const F_GETFL: i64 = 3;
    request.flags &= !(syscall::RWF_SYNCS as u32);
    if matches!(request.operation, IOCB_FSYNC | IOCB_FDSYNC) {
        // SAFETY: no pointers.
        let flags =
            unsafe { syscall::call(syscall::FCNTL, [request.fd.into(), F_GETFL, 0, 0, 0, 0]) };
        request.operation = if flags & 3 == 0 { IOCB_PREAD } else { IOCB_PWRITE };
    }
}

const SET_FLAGS: u64 = 0x4008_6602;
const SET_ATTRIBUTES: u64 = 0x401c_5820;
/// FS_SYNC_FL and FS_DIRSYNC_FL; FS_XFLAG_SYNC.
const FLAG_BITS: u32 = 0x8 | 0x1_0000;
const ATTRIBUTE_BITS: u32 = 0x20;

/// ioctl: `chattr +S` and its like lose that flag.
///
/// # Safety
/// As ioctl(2).
pub unsafe fn control(fd: i32, request: u64, argument: i64) -> i64 {
    let (bits, size) = match request & 0xffff_ffff {
        SET_FLAGS => (FLAG_BITS, 4),
        SET_ATTRIBUTES => (ATTRIBUTE_BITS, 28),
        _ => (0, 0),
    };
    let mut copy = [0; 28];
    let mut place = argument;
    if bits != 0 && syscall::read_own(argument as u64, &mut copy[..size]) {
        let flags = u32::from_le_bytes([copy[0], copy[1], copy[2], copy[3]]);
        if flags & bits != 0 && is_ours_to_read(page()) {
            copy[..4].copy_from_slice(&(flags & !bits).to_le_bytes());
            place = copy.as_ptr() as i64;
        }
    }
    // SAFETY: the caller's, or our copy.
    let value =
        unsafe { syscall::call(syscall::IOCTL, [fd.into(), request as i64, place, 0, 0, 0]) };
    if place != argument && value == 0 {
        count(page(), Kind::Attribute);
    }
    value
}
