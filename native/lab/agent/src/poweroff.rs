//! An `/init` that only powers off: how long the kernel alone takes, the yardstick of the agent's
//! boot.

use rustix::system::{reboot, RebootCommand};

fn main() {
    if std::process::id() != 1 {
        eprintln!("diskproof-poweroff: this is the init of a guest; it does nothing elsewhere");
        std::process::exit(2);
    }
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        eprintln!("diskproof-poweroff: cannot power off: {error}");
    }
    loop {
        std::thread::park();
    }
}
