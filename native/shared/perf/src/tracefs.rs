//! The numbers of the kernel's tracepoints, from a tracefs of our own that is mounted nowhere.

use std::ffi::CString;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{open, openat, Mode, OFlags};
use rustix::mount::{fsconfig_create, fsmount, fsopen, FsMountFlags, FsOpenFlags, MountAttrFlags};

const KNOWN_PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

pub struct Tracefs {
    root: OwnedFd,
}

impl Tracefs {
    /// The mounted one, else a private one: it vanishes with the descriptor.
    pub fn open() -> io::Result<Tracefs> {
        for place in KNOWN_PLACES {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let Ok(root) = open(place, flags, Mode::empty()) else { continue };
            let events = openat(&root, "events", flags, Mode::empty());
            if events.is_ok() {
                return Ok(Tracefs { root });
            }
        }
        let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let root =
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY)?;
        Ok(Tracefs { root })
    }

    /// The number of a tracepoint, such as `syscalls/sys_enter_fsync`.
    pub fn read_id(&self, name: &str) -> io::Result<u64> {
        let path = CString::new(format!("events/{name}/id"))?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut text = String::new();
        std::fs::File::from(openat(&self.root, path, flags, Mode::empty())?)
            .take(64)
            .read_to_string(&mut text)?;
        text.trim().parse().map_err(io::Error::other)
    }
}
