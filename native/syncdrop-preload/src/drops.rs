//! Each call of the family as the kernel would answer it, less the sync. Answers are the kernel's: negative for errors.

use core::ffi::c_char;

use crate::page::{Kind, LOOKED_THROUGH};
use crate::raw;
use crate::state::{count, is_ours, page, set_examined, was_examined};
use crate::target::{examine, is_syncable, Verdict};

/// fsync, fdatasync, syncfs.
#[inline(always)]
pub fn sync_descriptor(number: i64, kind: Kind, fd: i32) -> i64 {
    let page = page();
    // SAFETY: no pointers.
    let real = || unsafe { raw::call(number, [fd.into(), 0, 0, 0, 0, 0]) };
    if !is_ours(page) || !is_syncable(fd) {
        return real();
    }
    if !was_examined(fd) {
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
        unsafe { raw::call(raw::SYNC, [0; 6]) };
    }
}

/// MS_ASYNC makes the kernel check the same things and write nothing. Both flags together are an error of the caller's.
pub fn sync_memory(start: i64, length: i64, flags: i32) -> i64 {
    let page = page();
    let drops = flags & (raw::MS_SYNC | raw::MS_ASYNC) == raw::MS_SYNC && is_ours(page);
    let lazy = if drops { flags & !raw::MS_SYNC | raw::MS_ASYNC } else { flags };
    // SAFETY: writes no memory.
    let value = unsafe { raw::call(raw::MSYNC, [start, length, lazy.into(), 0, 0, 0]) };
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
    let value =
        unsafe { raw::call(raw::SYNC_FILE_RANGE, [fd.into(), offset, length, kept.into(), 0, 0]) };
    if drops && value == 0 {
        count(page, Kind::SyncFileRange);
    }
    value
}

/// The flags to open with.
pub fn open_flags(flags: i32) -> i32 {
    const O_PATH: i32 = 0o10_000_000;
    if flags & raw::OPEN_FLAGS == 0 || flags & O_PATH != 0 {
        return flags;
    }
    let page = page();
    if !is_ours(page) {
        return flags;
    }
    count(page, Kind::Open);
    flags & !raw::OPEN_FLAGS
}

pub fn write_flags(flags: i32) -> i32 {
    if flags & raw::PWRITE_FLAGS == 0 {
        return flags;
    }
    let page = page();
    if !is_ours(page) {
        return flags;
    }
    count(page, Kind::Write);
    flags & !raw::PWRITE_FLAGS
}

/// `struct open_how`; only its flags are changed, in a copy.
///
/// # Safety
/// As openat2(2).
pub unsafe fn open_how(fd: i32, path: *const c_char, how: *const [u64; 3], size: usize) -> i64 {
    let place = |how: *const [u64; 3]| [fd.into(), path as i64, how as i64, size as i64, 0, 0];
    if how.is_null() || size != size_of::<[u64; 3]>() {
        // SAFETY: the caller's.
        return unsafe { raw::call(raw::OPENAT2, place(how)) };
    }
    // SAFETY: the caller's structure, of that size.
    let mut copy = unsafe { how.read_unaligned() };
    if let Ok(flags) = i32::try_from(copy[0]) {
        copy[0] = open_flags(flags) as u64;
    }
    // SAFETY: as above.
    unsafe { raw::call(raw::OPENAT2, place(&raw const copy)) }
}

/// Requests of one io_submit that are looked at; more than that go in several calls, as the kernel may do itself.
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
pub unsafe fn submit(context: i64, count_asked: i64, requests: *const *mut Request) -> i64 {
    let some = count_asked.clamp(0, BATCH as i64);
    let mut before = [(0_u32, 0_u16); BATCH];
    let mut kinds = 0;
    let page = page();
    // SAFETY: the caller's array and requests; changed back below, before anyone else can look.
    unsafe {
        for (place, before) in before[..some as usize].iter_mut().enumerate() {
            let request = *requests.add(place);
            *before = ((*request).flags, (*request).operation);
            if is_sync(&*request) && is_ours(page) {
                kinds += 1;
                relieve(&mut *request);
            }
        }
        let marks = LOOKED_THROUGH.map(i64::from);
        let asked = if count_asked > some { some } else { count_asked };
        let list = requests as i64;
        let value = raw::call(raw::IO_SUBMIT, [context, asked, list, marks[0], marks[1], 0]);
        for (place, (flags, operation)) in before[..some as usize].iter().enumerate() {
            let request = *requests.add(place);
            ((*request).flags, (*request).operation) = (*flags, *operation);
        }
        if kinds > 0 && value > 0 {
            page.dropped[Kind::Submit as usize]
                .fetch_add(kinds, core::sync::atomic::Ordering::Relaxed);
        }
        value
    }
}

fn is_sync(request: &Request) -> bool {
    match request.operation {
        IOCB_FSYNC | IOCB_FDSYNC => {
            let zero = request.buffer == 0 && request.length == 0 && request.offset == 0;
            zero && request.flags == 0 && examine(request.fd as i32) == Verdict::Drop
        }
        _ => request.flags & raw::PWRITE_FLAGS as u32 != 0,
    }
}

/// A sync becomes a transfer of nothing, which completes with 0 as well.
fn relieve(request: &mut Request) {
    const F_GETFL: i64 = 3;
    request.flags &= !(raw::PWRITE_FLAGS as u32);
    if matches!(request.operation, IOCB_FSYNC | IOCB_FDSYNC) {
        // SAFETY: no pointers.
        let flags = unsafe { raw::call(raw::FCNTL, [request.fd.into(), F_GETFL, 0, 0, 0, 0]) };
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
    let bits = match request & 0xffff_ffff {
        SET_FLAGS => FLAG_BITS,
        SET_ATTRIBUTES => ATTRIBUTE_BITS,
        _ => 0,
    };
    let mut copy = [0_u32; 7];
    let mut place = argument;
    if bits != 0 && argument != 0 {
        let words = if bits == FLAG_BITS { 1 } else { copy.len() };
        // SAFETY: the request says how long the argument is.
        unsafe { core::ptr::copy_nonoverlapping(argument as *const u32, copy.as_mut_ptr(), words) };
        let page = page();
        if copy[0] & bits != 0 && is_ours(page) {
            copy[0] &= !bits;
            place = copy.as_mut_ptr() as i64;
            count(page, Kind::Attribute);
        }
    }
    // SAFETY: the caller's, or our copy.
    unsafe { raw::call(raw::IOCTL, [fd.into(), request as i64, place, 0, 0, 0]) }
}
