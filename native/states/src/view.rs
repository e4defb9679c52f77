//! States as directories of one mount: `MOUNT/NUMBER/...`. Each lives until its handle is dropped.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use diskproof_wire::crash_log::ROOT;
use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno as FuseErrno, FileAttr, FileHandle, FileType,
    Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, Session, SessionACL,
    TimeOrNow, WriteFlags,
};
use rustix::io::Errno;

use crate::content::Store;
use crate::failure::{During, Result};
use crate::snapshot::Snapshot;
use crate::tree::{Leaf, New, Tree};

/// The source in the mount table; the janitor knows our mounts by it.
pub const SOURCE: &str = "diskproof-states";
/// Only the kernel changes what it sees, and names of states are never used again.
const TTL: Duration = Duration::from_secs(3600);
const GENERATION: Generation = Generation(0);
/// Bits of an inode number that are the node's; above them is the state's number.
const NODE_BITS: u32 = 36;
const VIEW_ROOT: u64 = 1;
/// Requests served at once.
const THREADS: usize = 2;

type Trees = RwLock<HashMap<u64, Arc<Mutex<Tree>>>>;

/// The mount. Dropping it unmounts.
pub struct View {
    store: Arc<Store>,
    trees: Arc<Trees>,
    next: AtomicU64,
    mountpoint: PathBuf,
    session: Option<BackgroundSession>,
}

/// A state that can be seen.
pub struct Shown<'v> {
    view: &'v View,
    number: u64,
    pub path: PathBuf,
}

impl View {
    /// Mounts on an empty directory. `direct`: files bypass the kernel's page cache.
    pub fn mount(store: &Arc<Store>, mountpoint: &Path, direct: bool) -> Result<View> {
        let trees = Arc::new(Trees::default());
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(SOURCE.into()),
            MountOption::DefaultPermissions,
            MountOption::NoSuid,
            MountOption::NoDev,
        ];
        let is_root = rustix::process::geteuid().is_root();
        config.acl = if is_root { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = Session::new(Server { trees: trees.clone(), direct }, mountpoint, &config)
            .and_then(Session::spawn)
            .during(format!("mounting states on {}", mountpoint.display()))?;
        Ok(View {
            store: store.clone(),
            trees,
            next: AtomicU64::new(1),
            mountpoint: mountpoint.to_owned(),
            session: Some(session),
        })
    }

    pub fn show(&self, snapshot: Snapshot) -> Shown<'_> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let begun = Duration::from_nanos(self.store.trace.header.realtime_ns);
        let tree = Tree::new(self.store.clone(), snapshot, UNIX_EPOCH + begun);
        self.trees.write().unwrap().insert(number, Arc::new(Mutex::new(tree)));
        Shown { view: self, number, path: self.mountpoint.join(number.to_string()) }
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.view.trees.write().unwrap().remove(&self.number);
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let _ = crate::mounting::take_away(&self.mountpoint);
            drop(session);
        }
    }
}

struct Server {
    trees: Arc<Trees>,
    direct: bool,
}

fn code(error: Errno) -> FuseErrno {
    FuseErrno::from_i32(error.raw_os_error())
}

fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn attributes(inode: u64, leaf: &Leaf) -> FileAttr {
    FileAttr {
        ino: INodeNo(inode),
        size: leaf.size,
        blocks: leaf.size.div_ceil(512),
        atime: leaf.changed,
        mtime: leaf.changed,
        ctime: leaf.changed,
        crtime: leaf.changed,
        kind: kind(leaf.mode),
        perm: (leaf.mode & 0o7777) as u16,
        nlink: leaf.links,
        uid: leaf.uid,
        gid: leaf.gid,
        rdev: leaf.rdev,
        blksize: 4096,
        flags: 0,
    }
}

/// Of the mount itself.
fn root_attributes() -> FileAttr {
    let leaf = (UNIX_EPOCH, libc::S_IFDIR | 0o755);
    FileAttr {
        ino: INodeNo(VIEW_ROOT),
        size: 0,
        blocks: 0,
        atime: leaf.0,
        mtime: leaf.0,
        ctime: leaf.0,
        crtime: leaf.0,
        kind: FileType::Directory,
        perm: 0o755,
        nlink: 2,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl Server {
    /// Does something with the tree that an inode is of; `work` gets the node's id in it.
    fn with<T>(
        &self,
        inode: INodeNo,
        work: impl FnOnce(&mut Tree, u64) -> std::result::Result<T, Errno>,
    ) -> std::result::Result<T, Errno> {
        let number = inode.0 >> NODE_BITS;
        let tree = self.trees.read().unwrap().get(&number).cloned();
        let tree = tree.ok_or(if number == 0 { Errno::ROFS } else { Errno::STALE })?;
        let mut tree = tree.lock().unwrap();
        work(&mut tree, inode.0 & ((1 << NODE_BITS) - 1))
    }

    /// As `with`, for a new name; gives the attributes of what it now names.
    fn with_entry(
        &self,
        parent: INodeNo,
        work: impl FnOnce(&mut Tree, u64) -> std::result::Result<u64, Errno>,
    ) -> std::result::Result<FileAttr, Errno> {
        self.with(parent, |tree, id| {
            let found = work(tree, id)?;
            Ok(attributes(parent.0 >> NODE_BITS << NODE_BITS | found, tree.node(found)?))
        })
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> std::result::Result<FileAttr, Errno> {
        if parent.0 != VIEW_ROOT {
            return self.with_entry(parent, |tree, id| tree.lookup(id, name));
        }
        let number = name.to_str().and_then(|name| name.parse::<u64>().ok());
        let number = number.filter(|number| number.to_string().as_bytes() == name.as_bytes());
        let inode = INodeNo(number.ok_or(Errno::NOENT)? << NODE_BITS | ROOT);
        let found = self.with(inode, |tree, id| Ok(attributes(inode.0, tree.node(id)?)));
        found.map_err(|_| Errno::NOENT)
    }

    fn open_flags(&self) -> FopenFlags {
        if self.direct {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        }
    }
}

fn new_node(request: &Request, mode: u32, rdev: u32, target: &[u8]) -> New {
    New { mode, uid: request.uid(), gid: request.gid(), rdev, target: target.to_vec() }
}

/// Answers with an error, or with what the last part makes of the value.
macro_rules! answer {
    ($reply:expr, $result:expr, $value:pat => $good:expr) => {
        match $result {
            Ok($value) => $good,
            Err(error) => $reply.error(code(error)),
        }
    };
}

fn answer_entry(reply: ReplyEntry, found: std::result::Result<FileAttr, Errno>) {
    answer!(reply, found, found => reply.entry(&TTL, &found, GENERATION))
}

fn answer_empty(reply: ReplyEmpty, done: std::result::Result<(), Errno>) {
    answer!(reply, done, () => reply.ok())
}

fn answer_xattr(reply: ReplyXattr, size: u32, value: std::result::Result<Vec<u8>, Errno>) {
    match value {
        Err(error) => reply.error(code(error)),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(code(Errno::RANGE)),
        Ok(value) => reply.data(&value),
    }
}

impl Filesystem for Server {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Older kernels do without.
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        if self.direct {
            let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        }
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer_entry(reply, self.find(parent, name));
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        if ino.0 == VIEW_ROOT {
            return reply.attr(&TTL, &root_attributes());
        }
        let found = self.with(ino, |tree, id| Ok(attributes(ino.0, tree.node(id)?)));
        answer!(reply, found, found => reply.attr(&TTL, &found))
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let done = self.with(ino, |tree, id| {
            if let Some(size) = size {
                tree.resize(id, size)?;
            }
            let leaf = tree.node_mut(id)?;
            leaf.mode = mode.map_or(leaf.mode, |mode| leaf.kind() | (mode & 0o7777));
            leaf.uid = uid.unwrap_or(leaf.uid);
            leaf.gid = gid.unwrap_or(leaf.gid);
            match mtime {
                Some(TimeOrNow::SpecificTime(time)) => leaf.changed = time,
                Some(TimeOrNow::Now) => leaf.changed = SystemTime::now(),
                None => {}
            }
            Ok(attributes(ino.0, leaf))
        });
        answer!(reply, done, found => reply.attr(&TTL, &found))
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        let target = self.with(ino, |tree, id| Ok(tree.node(id)?.target.clone()));
        answer!(reply, target, target => reply.data(&target))
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let new = new_node(request, mode, rdev, b"");
        answer_entry(reply, self.with_entry(parent, |tree, id| tree.make(id, name, new)));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let new = new_node(request, libc::S_IFDIR | (mode & 0o7777), 0, b"");
        answer_entry(reply, self.with_entry(parent, |tree, id| tree.make(id, name, new)));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let new = new_node(request, libc::S_IFLNK | 0o777, 0, target.as_os_str().as_bytes());
        answer_entry(reply, self.with_entry(parent, |tree, id| tree.make(id, name, new)));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.with(parent, |tree, id| tree.remove(id, name, false)));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer_empty(reply, self.with(parent, |tree, id| tree.remove(id, name, true)));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = self.with(parent, |tree, id| {
            if parent.0 >> NODE_BITS != new_parent.0 >> NODE_BITS {
                return Err(Errno::XDEV);
            }
            let new_id = new_parent.0 & ((1 << NODE_BITS) - 1);
            tree.rename((id, name), (new_id, new_name), flags.bits())
        });
        answer_empty(reply, done);
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = self.with_entry(new_parent, |tree, id| {
            if ino.0 >> NODE_BITS != new_parent.0 >> NODE_BITS {
                return Err(Errno::XDEV);
            }
            let linked = ino.0 & ((1 << NODE_BITS) - 1);
            tree.link(linked, id, new_name).map(|()| linked)
        });
        answer_entry(reply, made);
    }

    fn open(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let found = self.with(ino, |tree, id| tree.node(id).map(|_| ()));
        answer!(reply, found, () => reply.opened(FileHandle(0), self.open_flags()))
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let new = new_node(request, libc::S_IFREG | (mode & 0o7777), 0, b"");
        let made = self.with_entry(parent, |tree, id| tree.make(id, name, new));
        answer!(reply, made, found => {
            reply.created(&TTL, &found, GENERATION, FileHandle(0), self.open_flags())
        })
    }

    fn read(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.with(ino, |tree, id| tree.read(id, offset, size as usize));
        answer!(reply, read, bytes => reply.data(&bytes))
    }

    fn write(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _from: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let done = self.with(ino, |tree, id| tree.write(id, offset, data));
        answer!(reply, done, () => reply.written(data.len() as u32))
    }

    fn fallocate(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        const ZEROES: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        let done = self.with(ino, |tree, id| {
            let end = offset.checked_add(length).ok_or(Errno::FBIG)?;
            if mode & !(ZEROES | libc::FALLOC_FL_KEEP_SIZE) != 0 {
                return Err(Errno::OPNOTSUPP);
            }
            if mode & ZEROES != 0 {
                tree.zero(id, offset, end)?;
            }
            if mode & libc::FALLOC_FL_KEEP_SIZE == 0 && tree.node(id)?.size < end {
                tree.resize(id, end)?;
            }
            Ok(())
        });
        answer_empty(reply, done);
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.error(FuseErrno::ENOSYS);
    }

    /// What is written here is to be thrown away.
    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _fh: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino.0 == VIEW_ROOT {
            return reply.ok();
        }
        let first = ino.0 >> NODE_BITS << NODE_BITS;
        let filled = self.with(ino, |tree, id| {
            let entries = tree.node(id)?.entries.iter();
            for ((name, &id), next) in entries.zip(1u64..).skip(offset as usize) {
                let kind = kind(tree.node(id)?.mode);
                if reply.add(INodeNo(first | id), next, kind, name) {
                    break;
                }
            }
            Ok(())
        });
        answer!(reply, filled, () => reply.ok())
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        reply.statfs(1 << 30, 1 << 18, 1 << 18, 1 << 20, 1 << 19, 4096, 255, 4096);
    }

    fn setxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let done = self.with(ino, |tree, id| {
            let extended = &mut tree.node_mut(id)?.extended;
            if extended.len() >= 256 {
                return Err(Errno::NOSPC);
            }
            extended.insert(name.as_bytes().to_vec(), value.to_vec());
            Ok(())
        });
        answer_empty(reply, done);
    }

    fn getxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let value = self.with(ino, |tree, id| {
            tree.node(id)?.extended.get(name.as_bytes()).cloned().ok_or(Errno::NODATA)
        });
        answer_xattr(reply, size, value);
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let names = self.with(ino, |tree, id| {
            Ok(tree
                .node(id)?
                .extended
                .keys()
                .flat_map(|name| [name, &b"\0"[..]].concat())
                .collect())
        });
        answer_xattr(reply, size, names);
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let done = self.with(ino, |tree, id| {
            let removed = tree.node_mut(id)?.extended.remove(name.as_bytes());
            removed.map(|_| ()).ok_or(Errno::NODATA)
        });
        answer_empty(reply, done);
    }
}
