//! Requests about the content of files.

use std::borrow::Cow;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use diskproof_wire::crash_log::{Flags, Operation};
use fuser::WriteFlags;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{pwritev2, Errno, ReadWriteFlags};

use crate::buffer::with_buffer;
use crate::handles::{Handle, OpenFile};
use crate::log::Asked;
use crate::recorder::Recorder;

impl Recorder {
    pub fn do_write(
        &self,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        from: WriteFlags,
        open_flags: i32,
    ) -> Result<u32, Errno> {
        let file = match handle {
            Handle::File(file) => file,
            Handle::Acknowledgements(lines) => return self.acks.take(lines, data),
            Handle::Directory(_) => return Err(Errno::ISDIR),
        };
        let asked = Asked::now(file.inode.id);
        self.log.require_open()?;
        let flags = write_flags(from, open_flags);
        if from.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            self.drop_privileges(&file.inode)?;
        }
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
        let _range = file.inode.ranges.lock(offset..end);
        let written = write_backing(file, offset, data, flags);
        let count = written.unwrap_or(0);
        let done = Operation::Write { flags, offset, data: Cow::Borrowed(&data[..count]) };
        self.log.append_result(asked, &done, errno(&written))?;
        written.map(|count| count as u32)
    }

    pub fn do_read<T>(
        &self,
        handle: &Handle,
        offset: u64,
        size: u32,
        open_flags: i32,
        answer: impl FnOnce(Result<&[u8], Errno>) -> T,
    ) -> T {
        let size = size as usize;
        let file = match handle {
            Handle::File(file) => file,
            Handle::Acknowledgements(_) => return answer(Ok(&[])),
            Handle::Directory(_) => return answer(Err(Errno::ISDIR)),
        };
        let direct = open_flags & libc::O_DIRECT != 0;
        with_buffer(size, |buffer| {
            let checked = if direct { file.check_direct(offset, size) } else { Ok(()) };
            match checked.and_then(|()| read_full(&file.backing, buffer, offset)) {
                Ok(count) => answer(Ok(&buffer[..count])),
                Err(error) => answer(Err(error)),
            }
        })
    }

    /// fsync or fdatasync of a file or directory.
    pub fn do_fsync(&self, handle: &Handle, data_only: bool) -> Result<(), Errno> {
        let (inode, descriptor, kind) = match handle {
            Handle::File(file) => (&file.inode, file.backing.as_fd(), Flags::NONE),
            Handle::Directory(open) => (&open.inode, open.folder.as_fd(), Flags::DIRECTORY),
            Handle::Acknowledgements(_) => return Ok(()),
        };
        let asked = Asked::now(inode.id);
        self.log.require_open()?;
        let flags = if data_only { kind.with(Flags::DATA_ONLY) } else { kind };
        let synced = if data_only {
            rustix::fs::fdatasync(descriptor)
        } else {
            rustix::fs::fsync(descriptor)
        };
        self.log.append_result(asked, &Operation::Fsync { flags }, errno(&synced))?;
        synced
    }

    pub fn do_fallocate(
        &self,
        handle: &Handle,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Result<(), Errno> {
        let Handle::File(file) = handle else { return Err(Errno::INVAL) };
        let asked = Asked::now(file.inode.id);
        self.log.require_open()?;
        let mode = mode as u32;
        let _range = file.inode.ranges.lock_all();
        let flags = FallocateFlags::from_bits_retain(mode);
        let done = rustix::fs::fallocate(&file.backing, flags, offset, length);
        let operation = Operation::Fallocate { mode, offset, length };
        self.log.append_result(asked, &operation, errno(&done))?;
        done
    }

    /// Where the next data or the next hole is.
    pub fn do_lseek(&self, handle: &Handle, offset: i64, whence: i32) -> Result<u64, Errno> {
        let Handle::File(file) = handle else { return Err(Errno::INVAL) };
        let offset = u64::try_from(offset).map_err(|_| Errno::NXIO)?;
        let place = match whence {
            libc::SEEK_DATA => SeekFrom::Data(offset),
            libc::SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        rustix::fs::seek(&file.backing, place)
    }
}

fn write_flags(from: WriteFlags, open_flags: i32) -> Flags {
    if from.contains(WriteFlags::FUSE_WRITE_CACHE) {
        return Flags::MAPPED;
    }
    let has = |wanted: i32| open_flags & wanted == wanted;
    let mut flags = Flags::NONE;
    for (wanted, flag) in [
        (libc::O_DIRECT, Flags::DIRECT),
        (libc::O_DSYNC, Flags::DSYNC),
        (libc::O_SYNC, Flags::SYNC),
    ] {
        if has(wanted) {
            flags = flags.with(flag);
        }
    }
    flags
}

fn write_backing(file: &OpenFile, offset: u64, data: &[u8], flags: Flags) -> Result<usize, Errno> {
    if flags.contains(Flags::DIRECT) {
        file.check_direct(offset, data.len())?;
    }
    let how = if flags.contains(Flags::SYNC) {
        ReadWriteFlags::SYNC
    } else if flags.contains(Flags::DSYNC) {
        ReadWriteFlags::DSYNC
    } else {
        ReadWriteFlags::empty()
    };
    pwritev2(&file.backing, &[std::io::IoSlice::new(data)], offset, how)
}

/// Reads until the buffer is full or the file ends: the kernel takes a short answer for the end.
fn read_full(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
    Ok(filled)
}

/// For the log: 0 for what worked.
fn errno<T>(result: &Result<T, Errno>) -> u16 {
    result.as_ref().err().map_or(0, |error| error.raw_os_error() as u16)
}
