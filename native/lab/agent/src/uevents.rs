//! Waiting for devices: the kernel's announcements over netlink, no polling.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::netlink::{SocketAddrNetlink, KOBJECT_UEVENT};
use rustix::net::{bind, recv, socket_with, AddressFamily, RecvFlags, SocketFlags, SocketType};

use crate::failure::{Doing, Outcome};

/// The multicast group of the kernel itself (2 is udev's).
const KERNEL_GROUP: u32 = 1;

/// Ask `find` now and after every announcement until it finds something; None at the deadline.
pub fn wait_for<T>(
    deadline: Instant,
    mut find: impl FnMut() -> Outcome<Option<T>>,
) -> Outcome<Option<T>> {
    // Listening starts before the first look, so nothing can appear unseen in between.
    let socket = listen().doing(|| "cannot listen for devices".to_owned())?;
    loop {
        if let Some(found) = find()? {
            return Ok(Some(found));
        }
        if !wait_readable(&socket, deadline).doing(|| "cannot wait for devices".to_owned())? {
            return Ok(None);
        }
        drain(&socket).doing(|| "cannot read device announcements".to_owned())?;
    }
}

fn listen() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(KOBJECT_UEVENT))?;
    bind(&socket, &SocketAddrNetlink::new(0, KERNEL_GROUP))?;
    Ok(socket)
}

fn wait_readable(socket: &OwnedFd, deadline: Instant) -> io::Result<bool> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => continue,
            other => return Ok(other? > 0),
        }
    }
}

/// The text of an announcement is of no use: sysfs is read anyway. A full buffer only says "many".
fn drain(socket: &OwnedFd) -> Result<(), Errno> {
    let mut announcement = [0u8; 4096];
    loop {
        match recv(socket, &mut announcement[..], RecvFlags::empty()) {
            Ok(_) | Err(Errno::INTR | Errno::NOBUFS) => continue,
            Err(Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}
