//! The program: a tree that it made is the one it checks, and every kind of damage is seen.

#![cfg(test)]

mod built;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{symlink, FileExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use proptest::prelude::*;
use tempfile::{tempdir, tempdir_in};

fn run(command: &str, folder: &Path, more: &str) -> Output {
    let mut line = Command::new(built::program());
    line.arg(command).arg(folder).args(more.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn files_of(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_of(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

const SHAPE: &str = "--files 60 --bytes 300000 --depth 5 --seed 3";

#[test]
fn a_copy_is_the_tree() {
    let scratch = tempdir().unwrap();
    let (tree, copy) = (scratch.path().join("tree"), scratch.path().join("copy"));
    assert!(run("make", &tree, SHAPE).status.success());
    assert!(Command::new("cp").arg("-a").args([&tree, &copy]).status().unwrap().success());
    for folder in [&tree, &copy] {
        let done = run("check", folder, SHAPE);
        assert!(done.status.success(), "{}", text(&done.stderr));
        assert!(text(&done.stdout).contains("\"wrong\":0"));
    }
    let other = run("check", &copy, &SHAPE.replace("--seed 3", "--seed 4"));
    assert_eq!(other.status.code(), Some(1));
}

#[test]
fn nothing_is_made_where_something_is() {
    let scratch = tempdir().unwrap();
    File::create(scratch.path().join("mine")).unwrap();
    let done = run("make", scratch.path(), SHAPE);
    assert_eq!(done.status.code(), Some(3));
    assert!(text(&done.stderr).contains("is not empty"));
    assert_eq!(files_of(scratch.path()).len(), 1);
}

#[test]
fn the_cache_is_counted_and_dropped() {
    // Not on a tmpfs, whose pages stay.
    let scratch = tempdir_in("/var/tmp").unwrap();
    assert!(run("make", scratch.path(), SHAPE).status.success());
    let cached = |done: Output| -> u64 {
        let line = text(&done.stdout);
        let rest =
            line.split("\"cached\":").nth(1).unwrap_or_else(|| panic!("{}", text(&done.stderr)));
        rest.trim_end_matches(&['}', '\n'][..]).parse().unwrap()
    };
    assert!(cached(run("cache", scratch.path(), SHAPE)) >= 300_000);
    assert_eq!(cached(run("cache", scratch.path(), &format!("{SHAPE} --drop"))), 0);
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Flip,
    Cut,
    Append,
    Remove,
    Extra,
    Link,
    Pipe,
}

fn damage(path: &Path, kind: Damage, place: u64) {
    let aside = path.with_file_name("elsewhere");
    match kind {
        Damage::Flip => {
            let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
            let place = place % file.metadata().unwrap().len().max(1);
            let mut byte = [0];
            file.read_at(&mut byte, place).unwrap();
            file.write_at(&[byte[0] ^ 1], place).unwrap();
        }
        Damage::Cut => {
            let file = OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len().saturating_sub(1)).unwrap();
        }
        Damage::Append => {
            OpenOptions::new().append(true).open(path).unwrap().write_all(b"x").unwrap();
        }
        Damage::Remove => fs::remove_file(path).unwrap(),
        Damage::Extra => drop(File::create(aside).unwrap()),
        Damage::Link => {
            let target = std::env::temp_dir().join("diskproof-tree-nowhere");
            fs::remove_file(path).unwrap();
            symlink(target, path).unwrap();
        }
        Damage::Pipe => {
            fs::remove_file(path).unwrap();
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_damage_is_seen(
        kind in prop::sample::select(vec![
            Damage::Flip, Damage::Cut, Damage::Append, Damage::Remove, Damage::Extra,
            Damage::Link, Damage::Pipe,
        ]),
        which: prop::sample::Index,
        place: u64,
    ) {
        let scratch = tempdir().unwrap();
        let shape = "--files 20 --bytes 40000";
        prop_assert!(run("make", scratch.path(), shape).status.success());
        let files: Vec<PathBuf> =
            files_of(scratch.path()).into_iter().filter(|path| path.metadata().unwrap().len() > 0).collect();
        let path = which.get(&files);
        damage(path, kind, place);
        let done = run("check", scratch.path(), shape);
        prop_assert_eq!(done.status.code(), Some(1), "{:?} of {}", kind, path.display());
        prop_assert!(text(&done.stdout).contains("\"wrong\":1"));
        prop_assert_eq!(text(&done.stderr).lines().count(), 1);
    }
}
