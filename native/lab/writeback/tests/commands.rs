//! The program: the command runs as without it, and the file system commits meanwhile.

#![cfg(test)]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

struct Scratch(TempDir);

impl Scratch {
    /// A folder of a program, and a file beside it.
    fn new() -> Scratch {
        let scratch = Scratch(tempfile::tempdir().unwrap());
        fs::create_dir(scratch.path("data")).unwrap();
        fs::write(scratch.path("beside"), "").unwrap();
        fs::set_permissions(scratch.path("beside"), Permissions::from_mode(0o400)).unwrap();
        scratch
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, beside: &str, command: &[&str]) -> Output {
        let mut line = Command::new(program());
        line.current_dir(self.path("data")).args(["--folder", ".", "--beside", beside, "--"]);
        line.args(command).output().unwrap()
    }
}

/// It lies above this test's own program. The Rust of Debian's `rustc-web` cannot make names with a
/// `-` in them, and so CARGO_BIN_EXE_diskproof-writeback.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("diskproof-writeback")
}

const WRITES: &str =
    "for i in $(seq 300); do echo $i > new; mv new file$i; mkdir d$i; done; echo done; exit 7";

#[test]
fn a_command_does_what_it_does_and_meets_commits() {
    let scratch = Scratch::new();
    let done = scratch.run("../beside", &["sh", "-c", WRITES]);
    assert_eq!((done.status.code(), &done.stdout[..]), (Some(7), &b"done\n"[..]), "{done:?}");
    assert!(done.stderr.is_empty(), "{done:?}");
    for number in 1..=300 {
        let text = fs::read_to_string(scratch.path(format!("data/file{number}"))).unwrap();
        assert_eq!(text, format!("{number}\n"));
    }
    let changed = |name: &str| {
        let found = fs::metadata(scratch.path(name)).unwrap();
        (found.ctime(), found.ctime_nsec())
    };
    assert!(changed("beside") > changed("data/d1"), "no commit");
}

#[test]
fn the_end_of_a_command_passes_through() {
    let scratch = Scratch::new();
    let killed = scratch.run("../beside", &["sh", "-c", "echo a > a; kill -9 $$"]);
    assert_eq!(killed.status.code(), Some(137));
    let missing = scratch.run("../beside", &["diskproof-no-such-program"]);
    assert_eq!(missing.status.code(), Some(127));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot be run"), "{missing:?}");
}

#[test]
fn what_is_not_there_is_said_and_nothing_is_run() {
    let scratch = Scratch::new();
    let done = scratch.run("../nobody", &["touch", "made"]);
    assert_eq!(done.status.code(), Some(125));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.contains("../nobody: No such file or directory"), "{said}");
    assert!(!scratch.path("data/made").exists());
    assert_eq!(scratch.run("../beside", &[]).status.code(), Some(2));
}
