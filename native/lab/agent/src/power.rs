//! The end of the guest.

use std::thread;

use rustix::system::{reboot, RebootCommand};

/// Power off at once: no sync, no signal to anyone.
pub fn power_off() -> ! {
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        eprintln!("diskproof-agent: cannot power off: {error}");
    }
    loop {
        // Not even a refused power-off may end PID 1: the kernel would panic. The host's deadline
        // ends the guest.
        thread::park();
    }
}

/// Say on the console why the guest ends, and end it.
pub fn fatal(reason: &dyn std::fmt::Display) -> ! {
    eprintln!("diskproof-agent: fatal: {reason}");
    power_off()
}

/// A panic, in whatever thread, ends the guest like any other fatal error instead of panicking the
/// kernel.
pub fn power_off_on_panic() {
    std::panic::set_hook(Box::new(|panic| fatal(panic)));
}
