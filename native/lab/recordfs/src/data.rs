//! Requests about the content of files.

use std::borrow::Cow;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use diskproof_wire::crash_log::{Flags, Operation};
use fuser::{ReplyData, ReplyEmpty, ReplyWrite, WriteFlags};
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::{preadv2, pwrite, Errno, ReadWriteFlags};

use crate::answers::{answer, code};
use crate::buffer::with_buffer;
use crate::durable::{commit, Durable};
use crate::effects::{is_plain, watch, Caller};
use crate::handles::{Handle, OpenFile};
use crate::log::{Asked, Log};
use crate::msync::find_range;
use crate::ranges::Guard;
use crate::recorder::Recorder;
use crate::stacks::Call;

/// What one call to the backing takes: larger ones leave larger folios in its page cache, and every
/// later small write into such a folio looks at all its blocks.
const PIECE: usize = 64 << 10;

impl Recorder {
    /// `how` is the kernel's flags of the request, those of the open file, and who asks.
    pub fn do_write(
        &self,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        how: (WriteFlags, i32, Caller),
        reply: ReplyWrite,
    ) {
        let file = match handle {
            Handle::File(file) => file,
            Handle::Acknowledgements(lines) => {
                let taken = self.acks.take(lines, data);
                return answer!(reply, taken, count => reply.written(count));
            }
            Handle::Directory(_) => return reply.error(code(Errno::ISDIR)),
        };
        let flags = write_flags(how.0, how.1);
        // Pages of a mapping are sent by the kernel, some time.
        let thread = if flags.contains(Flags::MAPPED) { 0 } else { how.2.pid };
        let asked = self.log.asked(file.inode.id, thread, Call::Write);
        let kill = how.0.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID).then_some(how.2);
        match self.write_backing(file, (asked, offset, data), kill, flags) {
            Err(error) => reply.error(code(error)),
            Ok(written) if flags.contains(Flags::DSYNC) => {
                let (file, data) = (file.clone(), written.data.to_vec());
                let Written { asked, range, .. } = written;
                self.make_durable(Durable { file, asked, flags, offset, data, range, reply });
            }
            Ok(written) => {
                let end = offset + written.data.len() as u64;
                let logged = written.log(&self.log, flags, offset);
                answer!(reply, logged, count => reply.written(count));
                begin_writeback(file, offset..end);
            }
        }
    }

    /// Writes into the backing's page cache. A failure is logged, success is not yet.
    fn write_backing<'a>(
        &self,
        file: &OpenFile,
        (asked, offset, data): (Asked, u64, &'a [u8]),
        kill: Option<Caller>,
        flags: Flags,
    ) -> Result<Written<'a>, Errno> {
        self.log.require_open()?;
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::FBIG)?;
        let range = match is_plain(&file.inode)? {
            true => file.inode.ranges.lock(offset..end),
            false => file.inode.ranges.lock_all(),
        };
        let write = |_: &_| write_pieces(file, offset, data, flags);
        match watch(&self.log, asked, &file.inode, kill, write) {
            Ok(count) => Ok(Written { asked, range, data: &data[..count] }),
            Err(error) => {
                let failed = Operation::Write { flags, offset, data: Cow::Borrowed(&[]) };
                self.log.append_result(asked, &failed, error.raw_os_error() as u16)?;
                Err(error)
            }
        }
    }

    fn make_durable(&self, write: Durable) {
        let inode = write.file.inode.clone();
        if inode.durable.join(write) {
            let (log, crew) = (self.log.clone(), self.crew.clone());
            self.crew.run(move || commit(inode, log, &crew));
        }
    }

    /// What is in memory is answered at once, what must come from the disk by who may wait.
    pub fn do_read(
        &self,
        handle: &Handle,
        offset: u64,
        size: u32,
        open_flags: i32,
        reply: ReplyData,
    ) {
        let file = match handle {
            Handle::File(file) => file,
            Handle::Acknowledgements(_) => return reply.data(&[]),
            Handle::Directory(_) => return reply.error(code(Errno::ISDIR)),
        };
        let size = size as usize;
        if open_flags & libc::O_DIRECT != 0 {
            // Behind the end there is nothing to read, however crookedly.
            let ended = || file.inode.stat().is_ok_and(|stat| offset >= stat.st_size as u64);
            if let Err(error) = file.check_direct(offset, size) {
                return if ended() { reply.data(&[]) } else { reply.error(code(error)) };
            }
        }
        let cached = |reply: ReplyData| {
            with_buffer(size, |buffer| {
                match read_full(&file.backing, buffer, offset, ReadWriteFlags::NOWAIT) {
                    Ok(count) => {
                        reply.data(&buffer[..count]);
                        None
                    }
                    Err(_) => Some(reply),
                }
            })
        };
        let Some(reply) = cached(reply) else { return };
        let file = file.clone();
        self.crew.run(move || {
            with_buffer(size, |buffer| {
                let read = read_full(&file.backing, buffer, offset, ReadWriteFlags::empty());
                answer!(reply, read, count => reply.data(&buffer[..count]))
            })
        });
    }

    /// fsync or fdatasync of a file or directory, or msync of a part that is mapped.
    pub fn do_fsync(&self, handle: Arc<Handle>, data_only: bool, thread: u32, reply: ReplyEmpty) {
        let (id, kind) = match &*handle {
            Handle::File(file) => (file.inode.id, Flags::NONE),
            Handle::Directory(open) => (open.inode.id, Flags::DIRECTORY),
            Handle::Acknowledgements(lines) => {
                let finished = self.acks.finish(lines);
                return answer!(reply, finished, () => reply.ok());
            }
        };
        let flags = if data_only { kind.with(Flags::DATA_ONLY) } else { kind };
        let (asked, log) = (self.log.asked(id, thread, Call::Flush), self.log.clone());
        let may_be_part = data_only && kind == Flags::NONE && self.log.has_callers();
        let part = if may_be_part { find_range(thread, id) } else { None };
        self.crew.run(move || {
            let synced = log.require_open().and_then(|()| {
                let synced = sync_handle(&handle, data_only);
                let done = part.unwrap_or(Operation::Fsync { flags });
                log.append_result(asked, &done, errno(&synced))?;
                synced
            });
            answer!(reply, synced, () => reply.ok())
        });
    }

    pub fn do_fallocate(
        &self,
        handle: &Handle,
        offset: u64,
        length: u64,
        (mode, caller): (i32, Caller),
    ) -> Result<(), Errno> {
        let Handle::File(file) = handle else { return Err(Errno::INVAL) };
        let asked = self.log.asked(file.inode.id, caller.pid, Call::Other);
        self.log.require_open()?;
        let mode = mode as u32;
        let _range = file.inode.ranges.lock_all();
        let flags = FallocateFlags::from_bits_retain(mode);
        let done = watch(&self.log, asked, &file.inode, caller.kills(), |_| {
            rustix::fs::fallocate(&file.backing, flags, offset, length)
        });
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

/// What is in the backing's page cache and not yet in the log.
struct Written<'a> {
    asked: Asked,
    range: Guard,
    data: &'a [u8],
}

impl Written<'_> {
    fn log(self, log: &Log, flags: Flags, offset: u64) -> Result<u32, Errno> {
        let done = Operation::Write { flags, offset, data: Cow::Borrowed(self.data) };
        log.append(self.asked, &done)?;
        drop(self.range);
        Ok(self.data.len() as u32)
    }
}

/// Less than all of it only if the rest failed.
fn write_pieces(file: &OpenFile, offset: u64, data: &[u8], flags: Flags) -> Result<usize, Errno> {
    if flags.contains(Flags::DIRECT) {
        file.check_direct(offset, data.len())?;
    }
    let mut done = 0;
    while done < data.len() {
        let piece = &data[done..data.len().min(done + PIECE)];
        match pwrite(&file.backing, piece, offset + done as u64) {
            Ok(count) if count > 0 => done += count,
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) if done == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// Errors come back from the flush that asks for these bytes.
fn begin_writeback(file: &OpenFile, written: Range<u64>) {
    if let Some(range) = file.inode.writeback.written(written) {
        let (start, length) = (range.start as i64, (range.end - range.start) as i64);
        let descriptor = file.backing.as_raw_fd();
        // SAFETY: the descriptor is open as long as `file` is, and no memory is passed.
        unsafe { libc::sync_file_range(descriptor, start, length, libc::SYNC_FILE_RANGE_WRITE) };
    }
}

fn sync_handle(handle: &Handle, data_only: bool) -> Result<(), Errno> {
    match handle {
        Handle::File(file) => {
            let synced = sync(&file.backing, data_only);
            file.inode.writeback.flushed();
            synced
        }
        Handle::Directory(open) => sync(&open.folder, data_only),
        Handle::Acknowledgements(_) => Ok(()),
    }
}

pub fn sync(file: impl AsFd, data_only: bool) -> Result<(), Errno> {
    if data_only {
        rustix::fs::fdatasync(file)
    } else {
        rustix::fs::fsync(file)
    }
}

/// Reads until the buffer is full or the file ends: the kernel takes a short answer for the end.
fn read_full(
    file: &File,
    buffer: &mut [u8],
    offset: u64,
    how: ReadWriteFlags,
) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        let rest = &mut [IoSliceMut::new(&mut buffer[filled..])];
        match preadv2(file, rest, offset + filled as u64, how) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// For the log: 0 for what worked.
pub fn errno<T>(result: &Result<T, Errno>) -> u16 {
    result.as_ref().err().map_or(0, |error| error.raw_os_error() as u16)
}
