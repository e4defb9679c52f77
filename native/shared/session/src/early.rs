//! The moments between diskproof, which became this program, and what this program begins.

use std::env;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use rustix::process::Signal;

/// The numbers of the signals that diskproof keeps waiting meanwhile (`cli/handover.py`).
const HELD: &str = "DISKPROOF_HELD_SIGNALS";
const STOPS: [c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
const WORD: &[u8] = b"diskproof: interrupted before anything began; the same command begins it\n";

/// To be called before anything else. What diskproof kept waiting is heard now, and ends us with a
/// word until [`begin`]; started by anybody else, we have the signals as they are.
pub fn take_over() {
    let Some(held) = env::var_os(HELD) else { return };
    env::remove_var(HELD); // it is not the command's
    let held = held.to_string_lossy();
    let numbers = held.split(' ').filter_map(|word| word.parse().ok());
    for number in numbers.filter(|number| STOPS.contains(number)) {
        // SAFETY: the set is filled before its use; the handler makes only calls that are safe in
        // one.
        unsafe {
            if handler_of(number) == libc::SIG_DFL {
                libc::signal(number, stop_early as *const () as libc::sighandler_t);
            }
            let mut set = MaybeUninit::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), number);
            libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), null_mut());
        }
    }
}

/// From now on these signals do as they did before [`take_over`]; `others` are waited for.
pub fn begin(others: &[Signal]) {
    let ours = stop_early as *const () as libc::sighandler_t;
    let others: Vec<c_int> = others.iter().map(|signal| signal.as_raw()).collect();
    for number in STOPS.into_iter().filter(|number| !others.contains(number)) {
        if handler_of(number) == ours {
            // SAFETY: the default is no code of ours.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
    }
}

fn handler_of(number: c_int) -> libc::sighandler_t {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the kernel fills the action; one of zeros is valid too.
    unsafe {
        libc::sigaction(number, null_mut(), action.as_mut_ptr());
        action.assume_init().sa_sigaction
    }
}

extern "C" fn stop_early(number: c_int) {
    // SAFETY: both may be called in a handler (signal-safety(7)).
    unsafe {
        libc::write(libc::STDERR_FILENO, WORD.as_ptr().cast(), WORD.len());
        libc::_exit(128 + number);
    }
}
