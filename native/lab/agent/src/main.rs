//! The `/init` of a diskproof guest: opens a channel to the host and does what the host asks.
//!
//! `docs/guest-protocol.md` says what goes over the channel. Up to `hello` only what the channel
//! needs is done.

mod channel;
mod children;
mod clocks;
mod disks;
mod exec;
mod failure;
mod files;
mod jobs;
mod modules;
mod mounts;
mod power;
mod serve;
mod streams;
mod uevents;

use std::sync::Arc;
use std::thread;

use diskproof_wire::{Event, PROTOCOL};

use crate::channel::Outbox;
use crate::children::Children;
use crate::failure::{Doing, Outcome};
use crate::modules::Modules;
use crate::serve::Agent;

fn main() {
    if std::process::id() != 1 {
        eprintln!("diskproof-agent: this is the init of a guest; it does nothing elsewhere");
        std::process::exit(2);
    }
    power::power_off_on_panic();
    match boot_and_serve() {
        // The host is gone, and nothing else will ever end this guest.
        Ok(()) => power::power_off(),
        Err(failure) => power::fatal(&failure),
    }
}

fn boot_and_serve() -> Outcome<()> {
    mounts::mount_kernel()?;
    let mut modules = Modules::default();
    modules.load_boot()?;
    let (mut inbox, outbox) = channel::open()?;
    say_hello(&outbox)?;
    let children = start_reaper()?;
    Agent::new(outbox, children, modules).serve(&mut inbox)
}

fn say_hello(outbox: &Outbox) -> Outcome<()> {
    outbox.send(&Event::Hello {
        protocol: PROTOCOL,
        agent: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        monotonic_ns: clocks::monotonic_ns(),
    })
}

fn start_reaper() -> Outcome<Arc<Children>> {
    let children = Arc::new(Children::default());
    let reaper = Arc::clone(&children);
    thread::Builder::new()
        .spawn(move || reaper.reap())
        .doing(|| "cannot start the reaper".to_owned())?;
    Ok(children)
}
