//! The real program, the real kernel: what is inside opens, what is outside does not.

#![cfg(test)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of this test's own; gone at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("confine-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::create_dir(path.join("inside")).unwrap();
        fs::write(path.join("inside/file"), "mine").unwrap();
        fs::write(path.join("outside"), "theirs").unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
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
    let folder = Folder::new("opens");
    let inside = confined(&folder.0, &["--write", "."], &["cat", "file"]);
    assert_eq!(inside.stdout, b"mine", "{}", stderr(&inside));
    let outside = confined(&folder.0, &["--write", "."], &["cat", "../outside"]);
    assert!(outside.stdout.is_empty());
    assert!(stderr(&outside).contains("Permission denied"), "{}", stderr(&outside));
}

#[test]
fn only_what_may_be_written_changes() {
    let folder = Folder::new("writes");
    let script = "echo new >file";
    assert!(!confined(&folder.0, &["--read", "."], &["sh", "-c", script]).status.success());
    assert_eq!(fs::read(folder.0.join("inside/file")).unwrap(), b"mine");
    assert!(confined(&folder.0, &["--write", "."], &["sh", "-c", script]).status.success());
    assert_eq!(fs::read(folder.0.join("inside/file")).unwrap(), b"new\n");
}

#[test]
fn children_are_confined_too() {
    let folder = Folder::new("children");
    let done =
        confined(&folder.0, &["--write", "."], &["sh", "-c", "sh -c 'cat ../outside'; exit 7"]);
    assert_eq!(done.status.code(), Some(7));
    assert!(done.stdout.is_empty());
}

#[test]
fn a_proof_fails_when_the_file_is_within_reach_or_not_there() {
    let folder = Folder::new("proof");
    let prove = |path: &str| confined(&folder.0, &["--read", ".", "--prove", path], &["true"]);
    assert_eq!(prove("../outside").status.code(), Some(0));
    let within = prove("file");
    assert_eq!(within.status.code(), Some(3));
    assert!(stderr(&within).contains("file can still be opened"));
    assert_eq!(prove("nothing").status.code(), Some(3));
}

#[test]
fn a_program_that_cannot_be_started_has_its_own_status() {
    let folder = Folder::new("status");
    assert_eq!(confined(&folder.0, &[], &["no-such-program"]).status.code(), Some(127));
    assert_eq!(confined(&folder.0, &["--read", "."], &["./file"]).status.code(), Some(126));
    let nothing = Command::new(program()).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
}

#[test]
fn bounds_are_set_and_what_is_none_is_told() {
    let folder = Folder::new("bounds");
    let limits = ["--limit", "core=0", "--limit", "nofile=64", "--limit", "data=67108864"];
    let done = confined(&folder.0, &limits, &["sh", "-c", "ulimit -c; ulimit -n; ulimit -d"]);
    assert_eq!(done.stdout, b"0\n64\n65536\n", "{}", stderr(&done));
    for wrong in ["core", "core=", "core=-1", "disk=1", "nofile=1e3"] {
        let done = confined(&folder.0, &["--limit", wrong], &["true"]);
        assert_eq!(done.status.code(), Some(2), "{wrong}");
    }
}

#[test]
fn who_may_not_spawn_may_not_fork_and_may_become_another_program() {
    let folder = Folder::new("spawn");
    let script = "(echo forked) || true; exec echo became";
    let free = confined(&folder.0, &[], &["sh", "-c", script]);
    assert_eq!(free.stdout, b"forked\nbecame\n", "{}", stderr(&free));
    let alone = confined(&folder.0, &["--no-spawn"], &["sh", "-c", "exec echo became"]);
    assert_eq!(alone.stdout, b"became\n", "{}", stderr(&alone));
    let denied = confined(&folder.0, &["--no-spawn"], &["sh", "-c", script]);
    assert!(denied.stdout.is_empty() && stderr(&denied).contains("fork"), "{}", stderr(&denied));
}

#[test]
fn namespaces_and_processors_are_out_of_reach() {
    let folder = Folder::new("calls");
    let unshare = ["unshare", "--user", "true"];
    assert!(!confined(&folder.0, &[], &unshare).status.success());
    let pinned = ["taskset", "--cpu-list", "0", "true"];
    assert!(!confined(&folder.0, &[], &pinned).status.success());
    let done = confined(&folder.0, &["--may-schedule"], &pinned);
    assert!(done.status.success(), "{}", stderr(&done));
}

#[test]
fn it_runs_for_its_parent_only() {
    let folder = Folder::new("parent");
    let parent = std::process::id().to_string();
    let ours = confined(&folder.0, &["--parent", &parent], &["true"]);
    assert_eq!(ours.status.code(), Some(0), "{}", stderr(&ours));
    let anothers = confined(&folder.0, &["--parent", "1"], &["true"]);
    assert_eq!(anothers.status.code(), Some(1));
}

#[test]
fn nobody_gains_rights_and_what_is_made_is_its_users() {
    let folder = Folder::new("rights");
    let script = "umask; while read -r line; do echo \"$line\"; done </proc/self/status";
    let done = confined(&folder.0, &["--read", "/proc"], &["sh", "-c", script]);
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    for line in ["0077", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(told.lines().any(|found| found == line), "{line} in {told}");
    }
}
