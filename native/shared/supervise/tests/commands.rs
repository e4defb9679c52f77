//! Real commands under real filters.

#![cfg(test)]

use std::ffi::OsString;
use std::os::fd::AsRawFd;

use rustix::process::Signal;

use diskproof_supervise::calls::{CREAT, FSYNC, GETPPID, OPENAT};
use diskproof_supervise::filter::Half;
use diskproof_supervise::target::{read_string, Descriptors};
use diskproof_supervise::{
    build_filter, start, start_plain, Action, Answer, Command, Condition, Notification, Received,
    Rule, Signals, Test,
};

fn command(words: &[&str]) -> Command {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    Command::new(&words).expect("words")
}

/// Run to the end of the last process below; each call gets what `judge` says.
fn run(words: &[&str], rules: &[Rule], mut judge: impl FnMut(&Notification) -> Answer) -> u8 {
    let (child, listener) = start(&command(words), &build_filter(rules)).expect("a filter");
    loop {
        match listener.receive(None, None).expect("no errors") {
            Received::Call(call) => {
                let answer = judge(&call);
                listener.answer(call.id, answer);
            }
            Received::Nobody => return child.wait().expect("an end").code,
            other => panic!("{other:?}"),
        }
    }
}

fn python(program: &str, rules: &[Rule], judge: impl FnMut(&Notification) -> Answer) -> u8 {
    run(&["/usr/bin/python3", "-I", "-S", "-c", program], rules, judge)
}

#[test]
fn exit_codes_are_those_of_a_shell() {
    let plain =
        |words: &[&str]| start_plain(&command(words)).expect("starts").wait().expect("ends");
    assert_eq!(plain(&["sh", "-c", "exit 7"]).code, 7);
    assert_eq!(plain(&["sh", "-c", "kill -9 $$"]).code, 137);
    let missing = plain(&["diskproof-is-not-there"]);
    assert_eq!((missing.code, missing.exec_error.expect("why").raw_os_error()), (127, Some(2)));
    let folder = plain(&["/tmp"]);
    assert_eq!((folder.code, folder.exec_error.expect("why").raw_os_error()), (126, Some(13)));
}

#[test]
fn exit_codes_pass_through_a_filter() {
    let rules = [Rule::always(FSYNC, Action::Notify)];
    assert_eq!(run(&["sh", "-c", "exit 7"], &rules, |_| Answer::Continue), 7);
    assert_eq!(run(&["diskproof-is-not-there"], &rules, |_| Answer::Continue), 127);
}

#[test]
fn each_kind_of_answer_reaches_the_caller() {
    let rules = [Rule::always(GETPPID, Action::Notify), Rule::always(FSYNC, Action::Errno(28))];
    let program = "
import os
assert os.getppid() == 4711
try: os.getppid()
except OSError: pass
assert os.getppid() not in (4711, 0)
try: os.fsync(1)
except OSError as error: os._exit(error.errno)
";
    let mut answers = [Answer::Value(4711), Answer::Error(5), Answer::Continue].into_iter();
    assert_eq!(python(program, &rules, |_| answers.next().expect("three calls")), 28);
    assert_eq!(answers.next(), None);
}

#[test]
fn conditions_choose_among_calls_of_children_and_threads_too() {
    let creates = Condition::low(2, Test::AnyBits(libc::O_CREAT as u32));
    let never = Condition { argument: 0, half: Half::High, test: Test::Equals(77) };
    let rules =
        [Rule::when(CREAT, never, Action::Notify), Rule::when(OPENAT, creates, Action::Notify)];
    let program = "
import os, threading
name = '/tmp/diskproof-supervise-%d' % os.getpid()
def work(): os.close(os.open(name, os.O_CREAT | os.O_RDWR)); os.close(os.open(name, os.O_RDONLY))
thread = threading.Thread(target=work); thread.start(); thread.join()
if os.fork() == 0: work(); os._exit(0)
os.wait(); os.unlink(name)
";
    let mut names = Vec::new();
    let code = python(program, &rules, |call| {
        assert!(call.is(&OPENAT) && call.is_64_bit());
        names.push(read_string(call.thread, call.arguments[1], 4096).expect("a path"));
        Answer::Continue
    });
    assert_eq!((code, names.len()), (0, 2));
    assert!(names.iter().all(|name| name.starts_with(b"/tmp/diskproof-supervise-")));
}

#[test]
fn descriptors_of_callers_are_fetched_and_their_errors_told() {
    let rules = [Rule::always(FSYNC, Action::Notify)];
    let program = "
import os
assert os.pipe() == (3, 4)
for descriptor in 3, 77:
    try: os.fsync(descriptor)
    except OSError: pass
";
    let mut descriptors = Descriptors::default();
    let mut got = Vec::new();
    python(program, &rules, |call| {
        let fetched = descriptors.fetch(call.thread, call.arguments[0] as i32);
        got.push(fetched.map(|ours| {
            let seen = std::fs::read_link(format!("/proc/self/fd/{}", ours.as_raw_fd()));
            seen.expect("open").to_string_lossy().starts_with("pipe:")
        }));
        Answer::Continue
    });
    assert!(matches!(got[0], Ok(true)));
    assert_eq!(got[1].as_ref().map_err(|error| error.raw_os_error()), Err(Some(libc::EBADF)));
}

#[test]
fn a_call_interrupted_by_death_is_forgotten() {
    let rules = [Rule::always(FSYNC, Action::Notify)];
    let program = "
import os, signal
if os.fork() == 0:
    os.fsync(1)
os.wait()
os.fsync(1)
";
    let mut calls = 0;
    let code = python(program, &rules, |call| {
        calls += 1;
        if calls == 1 {
            let victim = rustix::process::Pid::from_raw(call.thread as i32).expect("a thread");
            rustix::process::kill_process(victim, rustix::process::Signal::KILL).expect("killed");
        }
        Answer::Value(0)
    });
    assert_eq!((code, calls), (0, 2));
}

#[test]
fn memory_that_is_not_there_is_an_error_and_not_a_fault() {
    let rules = [Rule::always(FSYNC, Action::Notify)];
    let mut seen = None;
    python("import os\nos.fsync(1)", &rules, |call| {
        seen = read_string(call.thread, 16, 4096).err().and_then(|error| error.raw_os_error());
        Answer::Value(0)
    });
    assert_eq!(seen, Some(libc::EFAULT));
}

/// It came from the terminal before the command was there, and is the command's too.
#[test]
fn a_signal_that_waits_already_reaches_the_command() {
    let sleep = ["sleep", "60"];
    let rules = [Rule::always(FSYNC, Action::Notify)];
    for signal in [Signal::INT, Signal::QUIT, Signal::HUP] {
        let waiting = Signals::block(&[signal]).expect("a descriptor");
        // SAFETY: the default is no code of ours, and not what a shell gives a job in the
        // background; blocked, the signal stays with this thread.
        unsafe {
            libc::signal(signal.as_raw(), libc::SIG_DFL);
            libc::raise(signal.as_raw());
        }
        let mut command = command(&sleep);
        command.unblock(&waiting);
        let plain = start_plain(&command).expect("starts").wait().expect("ends");
        assert_eq!(i32::from(plain.code), 128 + signal.as_raw());
        let (child, listener) = start(&command, &build_filter(&rules)).expect("a filter");
        assert!(matches!(listener.receive(None, None), Ok(Received::Nobody)));
        assert_eq!(i32::from(child.wait().expect("ends").code), 128 + signal.as_raw());
        assert_eq!(waiting.read().map(|arrived| arrived.signal), Some(signal));
    }
}
