//! SIGTERM, SIGINT and SIGHUP end the recording in order.

use std::io;
use std::sync::mpsc::Sender;

use crate::Ended;

const ENDING: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

fn ending() -> libc::sigset_t {
    // SAFETY: a signal set is plain data, and sigemptyset makes it a valid one before it is used.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in ENDING {
            libc::sigaddset(&mut set, signal);
        }
        set
    }
}

/// Keeps them from this thread and from those it starts.
pub fn block() -> io::Result<()> {
    // SAFETY: the set is valid for the call, and the old mask is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &ending(), std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

pub fn wait_in_thread(tell: Sender<Ended>) -> io::Result<()> {
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signal = 0;
        // SAFETY: both pointers are valid for the call.
        if unsafe { libc::sigwait(&ending(), &mut signal) } == 0 {
            let _ = tell.send(Ended::Signal);
        }
    })?;
    Ok(())
}
