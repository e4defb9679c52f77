//! Commands under a seccomp filter with user notification.
//!
//! 1. [`build_filter`] makes the program from a table of [`Rule`]s. A call without a rule costs
//!    next to nothing.
//! 2. [`block_signals`] takes what is meant for the command; [`Command::unblock`] gives it the mask
//!    from before.
//! 3. [`start`] starts a [`Command`] under the program and gives a [`Child`] with its [`Listener`].
//! 4. [`Listener::receive`] waits for a call of any process below; [`Listener::answer`] answers it.
//! 5. [`target`] looks into the caller: memory, strings, descriptors.
//! 6. [`Child::wait`] gives the command's end as the exit code a shell would show.
//!
//! The filter is inherited by everything the command starts, and a process cannot leave it. When
//! the listener is closed while such processes live, their notified calls fail with ENOSYS: so
//! receive until [`Received::Nobody`], in a process of your own if the command's end is not to wait
//! for what it leaves in the background. A wake descriptor (signals, the command's end by SIGCHLD)
//! can be watched in the same place: see [`Listener::receive`].
pub mod calls;
mod command;
mod error;
pub mod filter;
mod listener;
pub mod target;
mod wait;

pub use calls::Call;
pub use command::{start, start_plain, Command};
pub use diskproof_session::{Arrived, Signals};
pub use error::StartError;
pub use filter::{build_filter, Action, Condition, Rule, Test};
pub use listener::{Answer, Listener, Notification, Received};
pub use wait::{tell_end, Child, Ended};

use rustix::process::Signal;

/// What users and systems send to a command, and the end of children.
const PASSED_ON: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::TSTP,
    Signal::CONT,
    Signal::CHILD,
];

/// Takes the signals that a supervisor passes on to its command. To be called before any thread is
/// started.
///
/// # Errors
/// No descriptor left.
pub fn block_signals() -> std::io::Result<Signals> {
    Signals::block(&PASSED_ON)
}
