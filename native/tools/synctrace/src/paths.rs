//! Paths of open files, remembered for a moment: to ask for one costs 5 us, to recognise a file
//! less than 1.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{statx, AtFlags, StatxFlags};

use crate::clock::now;
use crate::places;

/// A file may get another name; it is seen after so long, in ns.
const FRESH: u64 = 500_000_000;
const MOST_PATHS: usize = 256;

/// Device, inode number and time of birth: the number of a removed file is soon given to another.
type Identity = (u32, u32, u64, i64, u32);

#[derive(Default)]
pub struct Paths {
    known: HashMap<Identity, (Arc<str>, u64)>,
}

impl Paths {
    pub fn name(&mut self, descriptor: &OwnedFd) -> Arc<str> {
        let Some(identity) = find_identity(descriptor) else { return read_name(descriptor) };
        let time = now();
        if let Some((name, asked)) = self.known.get(&identity) {
            if time < asked + FRESH {
                return name.clone();
            }
        }
        if self.known.len() >= MOST_PATHS {
            self.known.clear();
        }
        let name = read_name(descriptor);
        self.known.insert(identity, (name.clone(), time));
        name
    }
}

/// None where the file system does not tell when a file was made.
fn find_identity(descriptor: &OwnedFd) -> Option<Identity> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let wanted = StatxFlags::INO | StatxFlags::BTIME;
    let status = statx(descriptor, c"", flags, wanted).ok()?;
    let told = StatxFlags::from_bits_retain(status.stx_mask).contains(wanted);
    let born = status.stx_btime;
    let device = (status.stx_dev_major, status.stx_dev_minor);
    told.then_some((device.0, device.1, status.stx_ino, born.tv_sec, born.tv_nsec))
}

fn read_name(descriptor: &OwnedFd) -> Arc<str> {
    match fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())) {
        Ok(path) => String::from_utf8_lossy(path.as_os_str().as_bytes()).into(),
        Err(_) => places::UNNAMED.into(),
    }
}
