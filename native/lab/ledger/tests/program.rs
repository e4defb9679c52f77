//! The program on files and directories: what it writes it finds again, and what is taken away it
//! misses.

#![cfg(test)]

mod built;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use built::program;
use serde_json::Value;
use tempfile::TempDir;

/// A folder that goes at the end.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, line: &str) -> Output {
        let mut command = Command::new(program());
        command.args(line.split(' ')).current_dir(&self.0).output().unwrap()
    }

    /// Runs it to a good end; gives the JSON that it prints last.
    fn write(&self, line: &str) -> Value {
        let output = self.run(line);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }

    /// The exit code and the report.
    fn verify(&self, line: &str) -> (i32, Value) {
        let output = self.run(&format!("{line} --json"));
        (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
    }
}

fn zero(path: &Path, offset: u64, length: usize) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&vec![0; length], offset).unwrap();
}

#[test]
fn a_disk_is_written_and_what_is_taken_away_is_missed() {
    let folder = Folder::new();
    let how = "--create 262144 --offset 8192 --slots 32 --records 50 --acks acks --buffered";
    let said = folder.write(&format!("write disk {how}"));
    assert_eq!((&said["records"], &said["acknowledged"]), (&50.into(), &50.into()));
    assert_eq!(folder.verify("verify disk --acks acks").0, 0);
    let (code, report) = folder.verify("verify disk --acknowledged 52");
    assert_eq!((code, &report["stale"], &report["lost"]), (1, &2.into(), &2.into()));
    let disk = folder.path("disk");
    zero(&disk, 8192 + 4096, 4096);
    zero(&disk, 8192 + 2 * 4096 + 512, 512);
    let (code, report) = folder.verify("verify disk --acks acks");
    assert_eq!(code, 1);
    assert_eq!(report["lost_sequences"], serde_json::json!([[34, "missing"], [35, "torn"]]));
    assert_eq!(folder.run("verify disk --acks acks").stdout, b"2\n");
    fs::write(&disk, b"").unwrap();
    assert_eq!(folder.verify("verify disk --acks acks").1["missing"], 32);
    assert_eq!(folder.verify("verify disk --acknowledged 9").1["missing"], 9);
    assert_eq!(folder.verify("verify disk --acknowledged 0").0, 0);
}

#[test]
fn files_are_written_and_what_is_taken_away_is_missed() {
    let folder = Folder::new();
    fs::create_dir(folder.path("d")).unwrap();
    folder.write("write-files d --slots 16 --records 40 --acks acks --seed 3");
    assert_eq!(folder.verify("verify-files d --acks acks").0, 0);
    assert_eq!(folder.verify("verify-files d --acknowledged 40").0, 0);
    fs::remove_file(folder.path("d/slot-000003")).unwrap();
    fs::write(folder.path("d/slot-000004"), b"").unwrap();
    zero(&folder.path("d/slot-000005"), 1024, 1024);
    fs::copy(folder.path("d/slot-000007"), folder.path("d/slot-000006")).unwrap();
    let (code, report) = folder.verify("verify-files d --acks acks");
    assert_eq!(code, 1);
    let counts = ["lost", "missing", "torn", "misplaced"].map(|name| report[name].as_u64());
    assert_eq!(counts, [Some(4), Some(2), Some(1), Some(1)]);
}

#[test]
fn two_ledgers_on_one_disk_are_told_apart() {
    let folder = Folder::new();
    let first =
        folder.write("write disk --create 65536 --slots 16 --records 9 --buffered --acks a");
    folder.write("write disk --slots 16 --records 5 --buffered --acks b");
    assert_eq!(folder.verify("verify disk --acknowledged 5").0, 0);
    let id = first["id"].as_str().unwrap();
    let (code, report) = folder.verify(&format!("verify disk --acknowledged 9 --id {id}"));
    assert_eq!((code, &report["missing"], &report["present"]), (1, &5.into(), &4.into()));
    assert_eq!(folder.verify("verify disk --acks a").1, report);
}

#[test]
fn acknowledgements_go_to_several_places() {
    let folder = Folder::new();
    let line = "write disk --create 65536 --slots 4 --records 8 --buffered --depth 1";
    let output = folder.run(&format!("{line} --acks - --acks file --acks 2"));
    let told = fs::read_to_string(folder.path("file")).unwrap();
    assert_eq!(told.lines().count(), 2, "{told}");
    assert!(String::from_utf8(output.stdout).unwrap().starts_with(&told));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), told);
}

#[test]
fn time_and_rate_are_kept() {
    let folder = Folder::new();
    let line = "write disk --create 65536 --slots 16 --buffered --acks a";
    let said = folder.write(&format!("{line} --seconds 2 --rate 10"));
    let records = said["records"].as_u64().unwrap();
    assert!((1..=20).contains(&records), "{said}");
    assert_eq!(said["records"], said["acknowledged"]);
}

#[test]
fn mistakes_are_told() {
    let folder = Folder::new();
    fs::write(folder.path("small"), [0; 4096]).unwrap();
    fs::write(folder.path("lines"), "nothing\nof ours\n").unwrap();
    fs::write(folder.path("huge"), format!("ledger {0} 0 0 4294967296 {0}\n", "0".repeat(16)))
        .unwrap();
    for (line, code, why) in [
        ("write small --records 1", 3, "room for 1 slots there, not for 1024"),
        ("write small --records 1 --offset 7", 3, "multiple of 4096"),
        ("write absent --records 1", 3, "absent: No such file"),
        ("write small --create 9 --records 1", 3, "small: File exists"),
        ("write small", 64, "--records"),
        ("write small --records 0", 64, "--records"),
        ("write small --records 1 --slots 1 --acks 99", 3, "--acks 99: Bad file descriptor"),
        ("write nbd+unix:///d --records 1", 64, "no ?socket=PATH"),
        ("write nbd+unix:///d?socket=none --records 1", 3, "none: No such file"),
        ("write-files absent --records 1", 3, "absent: No such file"),
        ("verify absent --acknowledged 1", 2, "absent: No such file"),
        ("verify-files small --acknowledged 1", 2, "small: Not a directory"),
        ("verify small --acks lines", 2, "lines: no line in it begins a ledger"),
        ("verify small --acks huge", 2, "far larger than the target"),
        ("verify small", 64, "--acknowledged"),
    ] {
        let output = folder.run(line);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {text}");
        assert!(text.contains(why), "{line}: {text}");
    }
}
