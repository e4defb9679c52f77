//! The real program, the real kernel: what is inside opens, what is outside does not.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder of this test's own; gone at its end.
fn new_folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("inside")).unwrap();
    fs::write(folder.path().join("inside/file"), "mine").unwrap();
    fs::write(folder.path().join("outside"), "theirs").unwrap();
    folder
}

/// Beside the folder of the tests: dash, which runs our compiler's wrapper, drops variables with a
/// `-` in their name, and so CARGO_BIN_EXE_diskproof-confine.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(2).unwrap().join("diskproof-confine")
}

fn confined(folder: &Path, options: &[&str], command: &[&str]) -> Output {
    let system = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache"];
    Command::new(program())
        .args(system.iter().flat_map(|path| ["--read", path]))
        .args(options)
        .arg("--")
        .args(command)
        .current_dir(folder.join("inside"))
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_given_opens_and_what_is_not_does_not() {
    let folder = new_folder();
    let inside = confined(folder.path(), &["--write", "."], &["cat", "file"]);
    assert_eq!(inside.stdout, b"mine", "{}", stderr(&inside));
    let outside = confined(folder.path(), &["--write", "."], &["cat", "../outside"]);
    assert!(outside.stdout.is_empty());
    assert!(stderr(&outside).contains("Permission denied"), "{}", stderr(&outside));
}

#[test]
fn only_what_may_be_written_changes() {
    let folder = new_folder();
    let script = "echo new >file";
    assert!(!confined(folder.path(), &["--read", "."], &["sh", "-c", script]).status.success());
    assert_eq!(fs::read(folder.path().join("inside/file")).unwrap(), b"mine");
    assert!(confined(folder.path(), &["--write", "."], &["sh", "-c", script]).status.success());
    assert_eq!(fs::read(folder.path().join("inside/file")).unwrap(), b"new\n");
}

#[test]
fn children_are_confined_too() {
    let folder = new_folder();
    let done =
        confined(folder.path(), &["--write", "."], &["sh", "-c", "sh -c 'cat ../outside'; exit 7"]);
    assert_eq!(done.status.code(), Some(7));
    assert!(done.stdout.is_empty());
}

#[test]
fn a_proof_fails_when_the_file_is_within_reach_or_not_there() {
    let folder = new_folder();
    let prove = |path: &str| confined(folder.path(), &["--read", ".", "--prove", path], &["true"]);
    assert_eq!(prove("../outside").status.code(), Some(0));
    let within = prove("file");
    assert_eq!(within.status.code(), Some(3));
    assert!(stderr(&within).contains("file can still be opened"));
    assert_eq!(prove("nothing").status.code(), Some(3));
}

#[test]
fn a_program_that_cannot_be_started_has_its_own_status() {
    let folder = new_folder();
    assert_eq!(confined(folder.path(), &[], &["no-such-program"]).status.code(), Some(127));
    assert_eq!(confined(folder.path(), &["--read", "."], &["./file"]).status.code(), Some(126));
    let nothing = Command::new(program()).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
}

#[test]
fn bounds_are_set_and_what_is_none_is_told() {
    let folder = new_folder();
    let limits = ["--limit", "core=0", "--limit", "nofile=64", "--limit", "data=67108864"];
    let done = confined(folder.path(), &limits, &["sh", "-c", "ulimit -c; ulimit -n; ulimit -d"]);
    assert_eq!(done.stdout, b"0\n64\n65536\n", "{}", stderr(&done));
    for wrong in ["core", "core=", "core=-1", "disk=1", "nofile=1e3"] {
        let done = confined(folder.path(), &["--limit", wrong], &["true"]);
        assert_eq!(done.status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn who_may_not_spawn_may_not_fork_and_may_become_another_program() {
    let folder = new_folder();
    let script = "(echo forked) || true; exec echo became";
    let free = confined(folder.path(), &[], &["sh", "-c", script]);
    assert_eq!(free.stdout, b"forked\nbecame\n", "{}", stderr(&free));
    let alone = confined(folder.path(), &["--no-spawn"], &["sh", "-c", "exec echo became"]);
    assert_eq!(alone.stdout, b"became\n", "{}", stderr(&alone));
    let denied = confined(folder.path(), &["--no-spawn"], &["sh", "-c", script]);
    assert!(denied.stdout.is_empty() && stderr(&denied).contains("fork"), "{}", stderr(&denied));
}

#[test]
fn namespaces_and_processors_are_out_of_reach() {
    let folder = new_folder();
    let unshare = ["unshare", "--user", "true"];
    assert!(!confined(folder.path(), &[], &unshare).status.success());
    let pinned = ["taskset", "--cpu-list", "0", "true"];
    assert!(!confined(folder.path(), &[], &pinned).status.success());
    let done = confined(folder.path(), &["--may-schedule"], &pinned);
    assert!(done.status.success(), "{}", stderr(&done));
}

#[test]
fn it_runs_for_its_parent_only() {
    let folder = new_folder();
    let parent = std::process::id().to_string();
    let ours = confined(folder.path(), &["--parent", &parent], &["true"]);
    assert_eq!(ours.status.code(), Some(0), "{}", stderr(&ours));
    let anothers = confined(folder.path(), &["--parent", "1"], &["true"]);
    assert_eq!(anothers.status.code(), Some(1));
}

#[test]
fn nobody_gains_rights_and_what_is_made_is_its_users() {
    let folder = new_folder();
    let script = "umask; while read -r line; do echo \"$line\"; done </proc/self/status";
    let done = confined(folder.path(), &["--read", "/proc"], &["sh", "-c", script]);
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    for line in ["0077", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(told.lines().any(|found| found == line), "{line} in {told}");
    }
}
