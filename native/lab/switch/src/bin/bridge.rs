//! A bridge with taps in a network of its own, handed over as descriptors.
//!
//! Nothing but these keeps the network, the bridge and the taps: when the last is closed they are
//! gone, however their owners ended.

use clap::Parser;
use libc::{c_short, ifreq, Ioctl, IFF_NO_PI, IFF_TAP, IFF_UP, IFF_VNET_HDR};
use rustix::io::{fcntl_setfd, FdFlags};
use rustix::net::{
    sendmsg, socket, AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketType,
};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IoSlice};
use std::mem::{zeroed, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;

const HOST_CANNOT: u8 = 3;
const BRIDGE: &str = "bridge";
const SIOCBRADDBR: Ioctl = 0x89a0;
const SIOCBRADDIF: Ioctl = 0x89a2;
/// The kernel takes 253 descriptors in one message.
const MAX_SENT: usize = 250;

/// Make a bridge with taps in a network of its own, and hand it over.
///
/// Over the socket come descriptors: first the network namespace, then the taps, in order.
#[derive(Parser)]
#[command(name = "diskproof-bridge", version)]
#[command(after_help = "Example: diskproof-bridge --socket 5 --ports 4")]
struct Options {
    /// A connected Unix stream socket
    #[arg(long, value_name = "FD", value_parser = clap::value_parser!(i32).range(3..))]
    socket: RawFd,
    /// How many taps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    ports: u16,
}

struct Trouble(&'static str, io::Error);

type Outcome<T> = Result<T, Trouble>;

fn main() -> ExitCode {
    let Options { socket, ports } = Options::parse();
    // SAFETY: whoever started us opened it for us; if not, its first use fails.
    let receiver = unsafe { OwnedFd::from_raw_fd(socket) };
    match make_bridge(ports).and_then(|made| hand_over(&receiver, &made)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble(what, error)) => {
            eprintln!("diskproof-bridge: {what}: {error}");
            ExitCode::from(HOST_CANNOT)
        }
    }
}

/// The namespace, and a tap for each port.
fn make_bridge(ports: u16) -> Outcome<Vec<OwnedFd>> {
    // SAFETY: this process has one thread, and none of its descriptors belong to the old network.
    check("a network namespace cannot be made", unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    silence_bridge()?;
    let network = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(io::Error::from);
    let network = network.or_else(|error| fail("sockets cannot be made", error))?;
    let name = interface(BRIDGE);
    // SAFETY: SIOCBRADDBR reads a name that ends with a zero byte.
    let made = unsafe { libc::ioctl(network.as_raw_fd(), SIOCBRADDBR, &name.ifr_name) };
    check("a bridge cannot be made (kernel module bridge)", made)?;
    let namespace = File::open("/proc/self/ns/net");
    let mut all =
        vec![namespace.or_else(|error| fail("the namespace cannot be opened", error))?.into()];
    for number in 1..=ports {
        all.push(add_tap(&network, number)?);
    }
    switch_on(&network, BRIDGE)?;
    Ok(all)
}

/// The bridge's end in this network talks to nobody, also not by IPv6 of its own accord.
fn silence_bridge() -> Outcome<()> {
    match fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1") {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            fail("IPv6 cannot be switched off", error)
        }
        _ => Ok(()),
    }
}

fn add_tap(network: &OwnedFd, number: u16) -> Outcome<OwnedFd> {
    let tun = OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let tun =
        tun.or_else(|error| fail("/dev/net/tun cannot be opened (kernel module tun)", error))?;
    let name = format!("tap{number}");
    let mut tap = interface(&name);
    // With a header before each frame, sums and segments need not be computed between guests of one
    // host.
    tap.ifr_ifru.ifru_flags = (IFF_TAP | IFF_NO_PI | IFF_VNET_HDR) as c_short;
    // SAFETY: TUNSETIFF reads and writes an ifreq.
    check("a tap cannot be made", unsafe {
        libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF, &mut tap)
    })?;
    let index = find_index(network, &name)?;
    let mut bridge = interface(BRIDGE);
    bridge.ifr_ifru.ifru_ifindex = index;
    // SAFETY: SIOCBRADDIF reads an ifreq.
    let added = unsafe { libc::ioctl(network.as_raw_fd(), SIOCBRADDIF, &bridge) };
    check("a tap cannot be put on the bridge", added)?;
    switch_on(network, &name)?;
    Ok(tun.into())
}

fn find_index(network: &OwnedFd, name: &str) -> Outcome<i32> {
    let mut asked = interface(name);
    // SAFETY: SIOCGIFINDEX reads a name and writes an index into the ifreq.
    let found = unsafe { libc::ioctl(network.as_raw_fd(), libc::SIOCGIFINDEX, &mut asked) };
    check("the tap is not there", found)?;
    // SAFETY: the call above has set this member; all zeroes before would be an index as well.
    Ok(unsafe { asked.ifr_ifru.ifru_ifindex })
}

fn switch_on(network: &OwnedFd, name: &str) -> Outcome<()> {
    let mut interface = interface(name);
    // SAFETY: SIOCGIFFLAGS reads a name and writes flags into the ifreq.
    let found = unsafe { libc::ioctl(network.as_raw_fd(), libc::SIOCGIFFLAGS, &mut interface) };
    check("an interface has no flags", found)?;
    // SAFETY: the call above has set this member.
    unsafe { interface.ifr_ifru.ifru_flags |= IFF_UP as c_short };
    // SAFETY: SIOCSIFFLAGS reads an ifreq.
    let done = unsafe { libc::ioctl(network.as_raw_fd(), libc::SIOCSIFFLAGS, &interface) };
    check("an interface cannot be switched on", done)
}

/// A question about an interface; ours have short names.
fn interface(name: &str) -> ifreq {
    // SAFETY: an ifreq is numbers and bytes: all zeroes is one.
    let mut asked: ifreq = unsafe { zeroed() };
    let room = asked.ifr_name.len() - 1;
    for (to, from) in asked.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    asked
}

fn hand_over(receiver: &OwnedFd, made: &[OwnedFd]) -> Outcome<()> {
    let what = "the descriptors cannot be handed over";
    fcntl_setfd(receiver, FdFlags::CLOEXEC).or_else(|errno| fail(what, errno.into()))?;
    for part in made.chunks(MAX_SENT) {
        send_descriptors(receiver, part).or_else(|error| fail(what, error))?;
    }
    Ok(())
}

fn send_descriptors(receiver: &OwnedFd, part: &[OwnedFd]) -> io::Result<()> {
    let borrowed: Vec<BorrowedFd<'_>> = part.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_SENT))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&borrowed)), "it was made large enough");
    sendmsg(receiver, &[IoSlice::new(b"d")], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

fn check(what: &'static str, status: libc::c_int) -> Outcome<()> {
    if status < 0 {
        return fail(what, io::Error::last_os_error());
    }
    Ok(())
}

fn fail<T>(what: &'static str, error: io::Error) -> Outcome<T> {
    Err(Trouble(what, error))
}
