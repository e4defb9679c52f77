//! An Ethernet switch between guests, in a process without privileges.
//!
//! Its ports are sockets that were opened before it starts: it reaches nothing else and nothing
//! else reaches it.

mod addresses;
mod frames;
mod port;
mod switch;

use clap::Parser;
use port::{End, Port};
use rustix::io::{fcntl_getfd, fcntl_setfd, FdFlags};
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{AddressFamily, SocketType};
use std::io::Write;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use switch::Switch;

const FELL_SHORT: u8 = 1;
const USAGE: u8 = 2;

/// An Ethernet switch between guests, without privileges.
///
/// Each port is a connected Unix stream socket that it was started with, whose other end QEMU has
/// as `-netdev socket,fd=N`. It says "ready" when it takes frames, ends when all ports have hung
/// up, and tells what went over each.
#[derive(Parser)]
#[command(name = "diskproof-switch", version)]
#[command(after_help = "Example: diskproof-switch --port 5 --port 7")]
struct Options {
    /// A connected Unix stream socket
    #[arg(long, value_name = "FD", required = true, value_parser = clap::value_parser!(i32).range(3..))]
    port: Vec<RawFd>,
}

fn main() -> ExitCode {
    let mut sockets: Vec<OwnedFd> = Vec::new();
    for number in Options::parse().port {
        match take_socket(number, &sockets) {
            Ok(socket) => sockets.push(socket),
            Err(why) => return complain(&format!("--port {number}: {why}"), USAGE),
        }
    }
    // Whoever started us may wait for it; if nobody reads it, the switch is as good.
    let _ = writeln!(std::io::stdout(), "ready");
    match Switch::new(sockets, tell).run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string(), FELL_SHORT),
    }
}

fn tell(index: usize, port: &Port, end: &End) {
    eprintln!("diskproof-switch: port {}: {end}; {}", index + 1, port.count);
}

fn complain(what: &str, status: u8) -> ExitCode {
    eprintln!("diskproof-switch: {what}");
    ExitCode::from(status)
}

/// Own a socket that was open when we started.
fn take_socket(number: RawFd, taken: &[OwnedFd]) -> Result<OwnedFd, String> {
    if taken.iter().any(|socket| socket.as_raw_fd() == number) {
        return Err("it is given twice".to_owned());
    }
    // SAFETY: the borrow lasts for one call, which says whether the descriptor is open.
    fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).map_err(|errno| errno.to_string())?;
    // SAFETY: it is open, was opened by whoever started us for us alone, and is not taken twice.
    let socket = unsafe { OwnedFd::from_raw_fd(number) };
    let kind = (socket_domain(&socket), socket_type(&socket));
    if kind != (Ok(AddressFamily::UNIX), Ok(SocketType::STREAM)) {
        return Err("it is no Unix stream socket".to_owned());
    }
    fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(|errno| errno.to_string())?;
    Ok(socket)
}
