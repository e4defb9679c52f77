//! Without a filter: the command with the library, and nobody between.

use std::ffi::OsString;
use std::os::fd::AsRawFd;

use diskproof_supervise::{start_plain, Command, Signals};

use crate::environment::{find_library, preload, LIBRARY};
use crate::options::Options;
use crate::page::VARIABLE;
use crate::replies::CommandEnd;
use crate::shared::Shared;
use crate::Refusal;

pub fn run(options: &Options, shared: &Shared, signals: &Signals) -> Result<CommandEnd, Refusal> {
    let library = find_library().ok_or_else(|| {
        Refusal::host(format!(
            "{LIBRARY} is not beside this program, in a path without ':', ' ' and '$'\nmake setup"
        ))
    })?;
    let mut command = Command::new(&options.command)?;
    command
        .set_variable("LD_PRELOAD", preload(library.as_os_str(), std::env::var_os("LD_PRELOAD")));
    // While we live; nothing has to be removed after us.
    let page = format!("/proc/{}/fd/{}", std::process::id(), shared.fd.as_raw_fd());
    command.set_variable(VARIABLE, OsString::from(page));
    command.unblock(signals);
    command.end_with_us();
    let ended = start_plain(&command)?.attend_to_end(signals)?;
    let errno = ended.exec_error.and_then(|error| error.raw_os_error()).unwrap_or(0);
    Ok(CommandEnd { code: ended.code.into(), errno, running: 0 })
}
