//! From what a request gave to what the kernel gets.

use std::ffi::OsStr;
use std::time::Duration;

use diskproof_wire::crash_log::{ACK_NAME, ROOT};
use fuser::{
    Errno as FuseErrno, FileAttr, FileType, Generation, INodeNo, ReplyStatfs, ReplyXattr, Request,
};
use rustix::fs::StatVfs;
use rustix::io::Errno;

use crate::attributes::Xattr;
use crate::effects::Caller;
use crate::names::NewName;
use crate::recorder::TTL;

/// Ids are never used again, so there is one generation.
pub const GENERATION: Generation = Generation(0);

pub fn code(error: Errno) -> FuseErrno {
    FuseErrno::from_i32(error.raw_os_error())
}

/// Answers with an error, or with what the closure makes of the value.
macro_rules! answer {
    ($reply:expr, $result:expr, $value:pat => $good:expr) => {
        match $result {
            Ok($value) => $good,
            Err(error) => $reply.error(code(error)),
        }
    };
}

pub fn is_ack(parent: INodeNo, name: &OsStr) -> bool {
    parent.0 == ROOT && name == ACK_NAME
}

/// EPERM for changes to the name of the acknowledgements.
pub fn refuse_ack(parent: INodeNo, name: &OsStr) -> Result<(), Errno> {
    if is_ack(parent, name) {
        Err(Errno::PERM)
    } else {
        Ok(())
    }
}

pub fn new_name<'a>(
    request: &Request,
    parent: INodeNo,
    name: &'a OsStr,
    umask: u32,
) -> NewName<'a> {
    let (uid, gid, thread) = (request.uid(), request.gid(), request.pid());
    NewName { parent: parent.0, name, uid, gid, thread, umask }
}

pub fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

/// The kernel believes what it knows of a file; set-ID bits may go by what it only passes on.
pub fn ttl(found: &FileAttr) -> Duration {
    if found.kind == FileType::RegularFile && found.perm & 0o6000 != 0 {
        Duration::ZERO
    } else {
        TTL
    }
}

pub(crate) use answer;

pub fn answer_xattr(reply: ReplyXattr, value: Xattr) {
    match value {
        Xattr::Length(length) => reply.size(length),
        Xattr::Value(bytes) => reply.data(&bytes),
    }
}

pub fn answer_statfs(reply: ReplyStatfs, facts: &StatVfs) {
    reply.statfs(
        facts.f_blocks,
        facts.f_bfree,
        facts.f_bavail,
        facts.f_files,
        facts.f_ffree,
        facts.f_bsize as u32,
        facts.f_namemax as u32,
        facts.f_frsize as u32,
    );
}
