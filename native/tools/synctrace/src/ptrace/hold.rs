//! What runs between us and the command: it waits until it is traced, sets the filter and becomes
//! the command.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStringExt;

use diskproof_supervise::calls;
use diskproof_supervise::filter::Condition;
use diskproof_supervise::{build_filter, Action, Rule, Test};
use diskproof_words::plain_reason;

use crate::preload::let_marked_pass;

/// The first word of our own command line that says so; followed by that of `Stops` and the
/// command.
pub const HOLD: &str = "--hold-for-tracer";
const MS_SYNC: u32 = 4;
const RWF_SYNC_OR_DSYNC: u32 = 6;
const FORBIDDEN: i32 = 3;

/// Where the command stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stops {
    /// At every write.
    pub writes: bool,
    /// Not at calls that the preloaded library tells of.
    pub unmarked: bool,
}

impl Stops {
    pub fn word(self) -> &'static str {
        match (self.writes, self.unmarked) {
            (false, false) => "syncs",
            (true, false) => "writes",
            (false, true) => "unmarked-syncs",
            (true, true) => "unmarked-writes",
        }
    }

    fn parse(word: &OsStr) -> Stops {
        let word = word.to_string_lossy();
        Stops { writes: word.ends_with("writes"), unmarked: word.starts_with("unmarked") }
    }
}

const fn write_call(name: &'static str, x86_64: u32, i386: u32, x32: u32) -> calls::Call {
    calls::Call { name, x86_64, i386: Some(i386), x32: Some(x32) }
}

const OTHER_WRITES: [calls::Call; 3] = [
    write_call("pwrite64", 18, 181, 18),
    write_call("writev", 20, 146, 516),
    write_call("pwritev", 296, 334, 535),
];

/// Stops at the calls that may wait for a disk, and no others.
fn rules(stops: Stops) -> Vec<Rule> {
    let stop = Action::Trace(0);
    let any = |argument, bits| Condition::low(argument, Test::AnyBits(bits));
    let always =
        [calls::FSYNC, calls::FDATASYNC, calls::SYNC, calls::SYNCFS, calls::SYNC_FILE_RANGE];
    let mut rules: Vec<_> = always.into_iter().map(|call| Rule::always(call, stop)).collect();
    rules.push(Rule::when(calls::MSYNC, any(2, MS_SYNC), stop));
    if stops.writes {
        let all = [calls::WRITE, calls::PWRITEV2].into_iter().chain(OTHER_WRITES);
        rules.extend(all.map(|call| Rule::always(call, stop)));
    } else {
        rules.push(Rule::when(calls::PWRITEV2, any(5, RWF_SYNC_OR_DSYNC), stop));
    }
    if stops.unmarked {
        let pass: Vec<_> = rules.iter().map(|rule| let_marked_pass(rule.call)).collect();
        rules.splice(0..0, pass);
    }
    rules
}

/// Never returns: the command runs, or this process ends as a shell would when it cannot.
pub fn hold(words: Vec<OsString>) -> ! {
    let stops = Stops::parse(words.first().map_or(OsStr::new(""), |word| word));
    let command: Result<Vec<_>, _> =
        words.into_iter().skip(1).map(|word| CString::new(word.into_vec())).collect();
    let command = command.unwrap_or_default();
    let (code, error) = become_command(&command, stops);
    let program = command.first().map(|word| word.to_string_lossy()).unwrap_or_default();
    let hint = if code == FORBIDDEN { "as root" } else { "look for a typing error" };
    let why = plain_reason(&error);
    eprintln!("diskproof-sync-trace: {program} cannot be run\n  why: {why}\n  try: {hint}");
    std::process::exit(code)
}

/// The exit code and why.
fn become_command(command: &[CString], stops: Stops) -> (i32, io::Error) {
    let mut argv: Vec<_> = command.iter().map(|word| word.as_ptr()).collect();
    argv.push(std::ptr::null());
    // SAFETY: signals to ourselves; the array ends with a null pointer and its strings live on.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::raise(libc::SIGSTOP);
        if let Err(error) = install(stops) {
            return (FORBIDDEN, error);
        }
        libc::execvp(argv[0], argv.as_ptr());
    }
    let error = io::Error::last_os_error();
    let unknown = matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR));
    (if unknown { 127 } else { 126 }, error)
}

fn install(stops: Stops) -> io::Result<()> {
    let program = build_filter(&rules(stops));
    let filter =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel reads the program only during the call.
    let set =
        || unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &filter) };
    if set() == 0 {
        return Ok(());
    }
    // Without privileges the kernel wants the promise that none are gained.
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if set() == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
