//! What an operation changes besides what was asked: set-ID bits that a write takes away, the mode
//! that an access control list gives. It is looked up before and after, and logged.

use std::borrow::Cow;
use std::sync::atomic::Ordering;
use std::sync::Arc;

use diskproof_wire::crash_log::Operation;
use rustix::fs::{chmodat, getxattr, listxattr_query, AtFlags, Mode, CWD};
use rustix::io::Errno;

use crate::inodes::Inode;
use crate::log::{Asked, Log};
use crate::places::Place;

pub const DEFAULT_ACL: &str = "system.posix_acl_default";
pub const ACCESS_ACL: &str = "system.posix_acl_access";
pub const CAPABILITY: &str = "security.capability";
/// Attributes that the kernel changes by itself.
const KERNELS: [&str; 3] = [CAPABILITY, ACCESS_ACL, DEFAULT_ACL];
/// No attribute is longer.
const MAX_VALUE: usize = 64 << 10;

pub fn is_kernels(name: &[u8]) -> bool {
    KERNELS.iter().any(|known| known.as_bytes() == name)
}

/// What an operation may change besides.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub mode: u32,
    uid: u32,
    gid: u32,
    kernels: [Option<Vec<u8>>; 3],
}

impl Facts {
    pub fn of(place: &Place) -> Result<Facts, Errno> {
        let stat = place.stat()?;
        let path = place.path();
        let mut kernels = <[Option<Vec<u8>>; 3]>::default();
        if listxattr_query(&path).unwrap_or(0) > 0 {
            kernels = KERNELS.map(|name| {
                let mut value = vec![0; MAX_VALUE];
                let length = getxattr(&path, name, &mut value[..]).ok()?;
                value.truncate(length);
                Some(value)
            });
        }
        let (uid, gid) = (stat.st_uid, stat.st_gid);
        Ok(Facts { mode: stat.st_mode & 0o7777, uid, gid, kernels })
    }

    /// Of a file that was just made like this, before the kernel gave it a list of its directory.
    pub fn without_lists(&self) -> Facts {
        Facts { kernels: Default::default(), ..self.clone() }
    }

    fn is_plain(&self) -> bool {
        self.mode & 0o6000 == 0 && self.kernels[0].is_none()
    }
}

/// Whether a write may take something away.
pub fn is_plain(inode: &Arc<Inode>) -> Result<bool, Errno> {
    if inode.plain.load(Ordering::Acquire) {
        return Ok(true);
    }
    let plain = Facts::of(&inode.place()?)?.is_plain();
    inode.plain.store(plain, Ordering::Release);
    Ok(plain)
}

/// Who asks.
#[derive(Clone, Copy)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// 0 when it cannot be seen from here.
    pub pid: u32,
}

impl Caller {
    /// Of a truncation and of fallocate the kernel does not tell whether they cost set-ID bits.
    pub fn kills(self) -> Option<Caller> {
        (self.uid != 0).then_some(self)
    }

    fn is_in_group(self, gid: u32) -> bool {
        let listed = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("Groups:"))?.to_owned();
            Some(line.split_whitespace().any(|group| group.parse() == Ok(gid)))
        };
        self.gid == gid || listed().unwrap_or(false)
    }
}

/// Takes the set-ID bits that somebody else's change of the content costs: the kernel leaves that
/// to us, and root's own changes keep them. Who may not has lost them by the change itself.
fn strip(place: &Place, caller: Caller) {
    let Ok(stat) = place.stat() else { return };
    let mode = stat.st_mode & 0o7777;
    let loses_group = mode & 0o10 != 0 || !caller.is_in_group(stat.st_gid);
    let kept = mode & !(0o4000 | if loses_group { 0o2000 } else { 0 });
    if kept != mode {
        let _ = chmodat(CWD, place.path(), Mode::from_raw_mode(kept), AtFlags::empty());
    }
}

/// What `asked` names of owner and mode is logged, and all that is not as it was.
pub fn log_changes(
    log: &Log,
    asked: Asked,
    (before, after): (&Facts, &Facts),
    named: [bool; 3],
) -> Result<(), Errno> {
    let pick = |old: u32, new: u32, named: bool| (named || old != new).then_some(new);
    let mode = pick(before.mode, after.mode, named[0]);
    let uid = pick(before.uid, after.uid, named[1]);
    let gid = pick(before.gid, after.gid, named[2]);
    if mode.is_some() || uid.is_some() || gid.is_some() {
        log.append(asked, &Operation::Setattr { mode, uid, gid })?;
    }
    for (at, name) in KERNELS.iter().enumerate() {
        let name = Cow::Borrowed(name.as_bytes());
        match (&before.kernels[at], &after.kernels[at]) {
            (old, new) if old == new => {}
            (_, Some(value)) => {
                let value = Cow::Borrowed(&value[..]);
                log.append(asked, &Operation::Setxattr { name, value })?;
            }
            (_, None) => log.append(asked, &Operation::Removexattr { name })?,
        }
    }
    Ok(())
}

/// Does something to a file's content or attributes, all of it for itself, and logs what that
/// changed besides. `kill`: whom that costs set-ID bits.
pub fn watch<T>(
    log: &Log,
    asked: Asked,
    inode: &Arc<Inode>,
    kill: Option<Caller>,
    change: impl FnOnce(&Place) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let place = inode.place()?;
    if is_plain(inode)? {
        return change(&place);
    }
    let before = Facts::of(&place)?;
    let done = change(&place);
    if let (Some(caller), true) = (kill, done.is_ok()) {
        strip(&place, caller);
    }
    let after = Facts::of(&place)?;
    inode.plain.store(after.is_plain(), Ordering::Release);
    log_changes(log, asked, (&before, &after), [false; 3])?;
    done
}
