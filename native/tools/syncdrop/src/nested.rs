//! A sync drop inside a sync drop: the kernel allows one listener at a time.

use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::fstat;
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

use crate::options::Options;
use crate::page::{Page, ASK_FOR_PAGE, VERSION};
use diskproof_bare::syscall;
use diskproof_words::plain_reason;

/// Whether an outer one drops just what this one would. Counting is the outer one's then.
pub fn is_covered(options: &Options) -> bool {
    let plain = !options.preload
        && options.only.is_empty()
        && options.toggle.is_none()
        && options.after == 0
        && options.json.is_none();
    plain && find_outer_strict() == Some(options.strict)
}

/// `--strict` of an outer one that drops everything; None when there is none of that kind.
fn find_outer_strict() -> Option<bool> {
    // SAFETY: a number that is no descriptor; who answers gives us one of our own.
    let fd = unsafe {
        let fd = syscall::call(syscall::FSYNC, [ASK_FOR_PAGE.into(), 0, 0, 0, 0, 0]);
        OwnedFd::from_raw_fd(i32::try_from(fd).ok().filter(|fd| *fd >= 0)?)
    };
    let size = size_of::<Page>();
    if u64::try_from(fstat(&fd).ok()?.st_size).ok()? < size as u64 {
        return None;
    }
    // SAFETY: as long as its file; nobody uses the page after it is unmapped.
    unsafe {
        let place = mmap(null_mut(), size, ProtFlags::READ, MapFlags::SHARED, &fd, 0).ok()?;
        let page = &*place.cast::<Page>();
        let alike = page.version.load(Relaxed) == VERSION && page.direct.load(Relaxed) == 1;
        let strict = alike.then(|| page.strict.load(Relaxed) == 1);
        let _ = munmap(place, size);
        strict
    }
}

/// The command in our place. Returns only when it cannot be executed: 126, or 127 when it is not
/// there.
#[expect(clippy::expect_used, reason = "clap requires a command")]
pub fn become_command(options: &Options) -> u8 {
    let (program, words) = options.command.split_first().expect("clap requires a command");
    if !options.quiet {
        complain!("inside a sync drop with the same options: its filter and its counts go on, and the command runs in it");
    }
    let error = std::process::Command::new(program).args(words).exec();
    let (name, why) = (program.to_string_lossy(), plain_reason(&error));
    complain!("{name} cannot be run: {why}");
    let missing = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR));
    if missing {
        127
    } else {
        126
    }
}
