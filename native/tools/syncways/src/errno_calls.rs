//! The calls of the errno checks.

use crate::errno::Answer;
use crate::tries::opens::OpenHow;
use libc::{c_int, c_long, c_void, off64_t};
use rustix::pipe::pipe as make_pipe;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// No system call sets it.
pub const SENTINEL: c_int = libc::EXFULL;

/// A number that no descriptor has: the kernel's own limit is far below.
const CLOSED: RawFd = c_int::MAX;

fn ask(call: &str, made: impl FnOnce() -> i64) -> Answer {
    // SAFETY: the C library's own place for errno, which lives as long as the thread.
    unsafe { *libc::__errno_location() = SENTINEL };
    let returned = made();
    // SAFETY: as above.
    let errno = unsafe { *libc::__errno_location() };
    Answer { call: call.to_owned(), returned, errno }
}

fn fsync(fd: RawFd) -> Answer {
    // SAFETY: no pointers; the kernel checks the descriptor.
    ask("fsync", || unsafe { libc::fsync(fd) }.into())
}

fn fdatasync(fd: RawFd) -> Answer {
    // SAFETY: no pointers; the kernel checks the descriptor.
    ask("fdatasync", || unsafe { libc::fdatasync(fd) }.into())
}

fn syncfs(fd: RawFd) -> Answer {
    // SAFETY: no pointers; the kernel checks the descriptor.
    ask("syncfs", || unsafe { libc::syncfs(fd) }.into())
}

fn range(fd: RawFd, offset: off64_t, bytes: off64_t, flags: libc::c_uint) -> Answer {
    // SAFETY: no pointers; the kernel checks the descriptor and the range.
    ask("sync_file_range", || unsafe { libc::sync_file_range(fd, offset, bytes, flags) }.into())
}

fn msync(address: *mut c_void, bytes: usize, flags: c_int) -> Answer {
    // SAFETY: the kernel looks at the addresses; an unmapped one is an error, not a fault.
    ask("msync", || unsafe { libc::msync(address, bytes, flags) }.into())
}

const WRITE: libc::c_uint = libc::SYNC_FILE_RANGE_WRITE;

pub fn fsync_closed() -> io::Result<Vec<Answer>> {
    Ok(vec![fsync(CLOSED), fsync(-1)])
}

pub fn fdatasync_closed() -> io::Result<Vec<Answer>> {
    Ok(vec![fdatasync(CLOSED), fdatasync(-1)])
}

pub fn syncfs_closed() -> io::Result<Vec<Answer>> {
    Ok(vec![syncfs(CLOSED), syncfs(-1)])
}

pub fn range_closed() -> io::Result<Vec<Answer>> {
    Ok(vec![range(CLOSED, 0, 0, WRITE), range(-1, 0, 0, WRITE)])
}

pub fn path_only() -> io::Result<Vec<Answer>> {
    let folder = open(c"/", libc::O_PATH)?;
    let fd = folder.as_raw_fd();
    Ok(vec![fsync(fd), fdatasync(fd), syncfs(fd), range(fd, 0, 0, WRITE)])
}

fn open(path: &std::ffi::CStr, flags: c_int) -> io::Result<OwnedFd> {
    let flags = rustix::fs::OFlags::from_bits_retain(flags as u32) | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
}

fn both(fd: &OwnedFd) -> [Answer; 2] {
    [fsync(fd.as_raw_fd()), fdatasync(fd.as_raw_fd())]
}

pub fn pipe() -> io::Result<Vec<Answer>> {
    let (reader, writer) = make_pipe()?;
    Ok([both(&reader), both(&writer)].concat())
}

pub fn socket() -> io::Result<Vec<Answer>> {
    let (socket, _other) = std::os::unix::net::UnixStream::pair()?;
    Ok(both(&socket.into()).to_vec())
}

pub fn terminal() -> io::Result<Vec<Answer>> {
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
    Ok(both(&rustix::pty::openpt(flags)?).to_vec())
}

pub fn range_flags() -> io::Result<Vec<Answer>> {
    let folder = open(c"/", libc::O_RDONLY)?;
    let fd = folder.as_raw_fd();
    Ok(vec![range(fd, 0, 0, 0x8), range(fd, 0, 0, WRITE | 0x8000_0000)])
}

pub fn range_offset() -> io::Result<Vec<Answer>> {
    let folder = open(c"/", libc::O_RDONLY)?;
    let fd = folder.as_raw_fd();
    let overflow = range(fd, off64_t::MAX, 2, WRITE);
    Ok(vec![range(fd, -1, 0, WRITE), range(fd, 0, -1, WRITE), overflow])
}

pub fn range_pipe() -> io::Result<Vec<Answer>> {
    let (reader, _writer) = make_pipe()?;
    Ok(vec![range(reader.as_raw_fd(), 0, 0, WRITE)])
}

/// A page of memory that is not a file's.
struct Page(*mut c_void);

impl Page {
    fn map() -> io::Result<Page> {
        use rustix::mm::{mmap_anonymous, MapFlags, ProtFlags};
        let size = rustix::param::page_size();
        // SAFETY: a fresh mapping at a place that the kernel chooses.
        let address = unsafe {
            mmap_anonymous(std::ptr::null_mut(), size, ProtFlags::READ, MapFlags::PRIVATE)?
        };
        Ok(Page(address))
    }

    /// The place of a page that is not there any more.
    fn unmap(self) -> io::Result<*mut c_void> {
        // SAFETY: the mapping made above, which nobody reads or writes.
        unsafe { rustix::mm::munmap(self.0, rustix::param::page_size())? };
        Ok(self.0)
    }
}

pub fn msync_invalid() -> io::Result<Vec<Answer>> {
    let (page, size) = (Page::map()?, rustix::param::page_size());
    let answers = vec![
        msync(page.0.wrapping_byte_add(1), size, libc::MS_SYNC),
        msync(page.0, size, libc::MS_SYNC | libc::MS_ASYNC),
        msync(page.0, size, libc::MS_SYNC | 0x100),
    ];
    page.unmap()?;
    Ok(answers)
}

pub fn msync_unmapped() -> io::Result<Vec<Answer>> {
    let gone = Page::map()?.unmap()?;
    let size = rustix::param::page_size();
    Ok(vec![msync(gone, size, libc::MS_SYNC), msync(gone, size, libc::MS_ASYNC)])
}

pub fn opens_and_writes() -> io::Result<Vec<Answer>> {
    let folder = open(c"/", libc::O_RDONLY)?;
    let (reader, writer) = make_pipe()?;
    let (missing, root) = (c"/proc/self/missing/file", c"/");
    let write = libc::O_WRONLY;
    Ok(vec![
        // SAFETY: the path is a literal that ends with NUL; without O_CREAT there is no mode.
        ask("open", || unsafe { libc::open(missing.as_ptr(), write | libc::O_SYNC) }.into()),
        // SAFETY: as above.
        ask("open", || unsafe { libc::open(root.as_ptr(), write | libc::O_DSYNC) }.into()),
        ask("openat", || {
            let fd = folder.as_raw_fd();
            // SAFETY: as above; the folder is open as long as the call lasts.
            unsafe { libc::openat(fd, missing.as_ptr(), write | libc::O_SYNC) }.into()
        }),
        openat2(missing, 0, size_of::<OpenHow>()),
        openat2(root, 1 << 40, size_of::<OpenHow>()),
        openat2(root, 0, 1),
        pwritev2(CLOSED, 0, libc::RWF_DSYNC),
        pwritev2(reader.as_raw_fd(), -1, libc::RWF_DSYNC),
        pwritev2(writer.as_raw_fd(), 0, libc::RWF_SYNC),
        pwritev2(writer.as_raw_fd(), -1, libc::RWF_DSYNC | 0x4000_0000),
    ])
}

fn openat2(path: &std::ffi::CStr, odd_flags: u64, size: usize) -> Answer {
    let flags = (libc::O_WRONLY | libc::O_DSYNC) as u64 | odd_flags;
    let how = OpenHow { flags, mode: 0, resolve: 0 };
    let place = libc::AT_FDCWD;
    // SAFETY: a string that ends with a zero; the structure is at least as long as told.
    ask("openat2", || unsafe { libc::syscall(libc::SYS_openat2, place, path.as_ptr(), &how, size) })
}

fn pwritev2(fd: RawFd, offset: off64_t, flags: c_int) -> Answer {
    let mut byte = [b'x'];
    let part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: one part, which points to a buffer of one byte.
    ask("pwritev2", || unsafe { libc::pwritev2(fd, &part, 1, offset, flags) } as c_long)
}

/// On a folder that may only be read: nothing is written, and it may be synced nevertheless.
pub fn success() -> io::Result<Vec<Answer>> {
    let folder = open(c"/proc", libc::O_RDONLY)?;
    let fd = folder.as_raw_fd();
    let (page, size) = (Page::map()?, rustix::param::page_size());
    let mut answers = vec![syncfs(fd), msync(page.0, size, libc::MS_SYNC)];
    page.unmap()?;
    let program = open(c"/proc/self/exe", libc::O_RDONLY)?;
    answers.extend(both(&program));
    answers.push(range(program.as_raw_fd(), 0, 0, 0));
    Ok(answers)
}
