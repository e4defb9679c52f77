"""Which line of a Rust program changed a recorded folder, where its standard library asks.

Requires root, /dev/fuse, rustc and the native programs.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from support.recording import needs_fuse
from support.source_places import line_of, of_operation, place_of, record

pytestmark = [
    needs_fuse,
    pytest.mark.skipif(shutil.which("rustc") is None, reason="there is no rustc"),
]
PROGRAM = """use std::fs::{self, File};
use std::io::{BufWriter, Write};

#[inline(never)]
fn save(name: &str) {
    let mut file = File::create(name).unwrap(); // CREATE
    file.write_all(b"text").unwrap(); // WRITE
    file.sync_all().unwrap(); // SYNC
}

#[inline(never)]
fn copy() {
    fs::copy("saved", "copied").unwrap(); // COPY
}

fn main() {
    save("saved"); // MAIN
    fs::write("written", b"x").unwrap(); // FSWRITE
    fs::create_dir_all("a/b").unwrap(); // FOLDERS
    std::thread::spawn(|| fs::create_dir("made").unwrap()).join().unwrap(); // THREAD
    let mut buffer = BufWriter::new(File::create("buffered").unwrap());
    buffer.write_all(b"text").unwrap();
    buffer.flush().unwrap(); // FLUSH
    copy();
    fs::rename("saved", "kept").unwrap(); // RENAME
    fs::remove_dir_all("a").unwrap(); // REMOVE
}
"""
EXPECTED = [
    ("create", "saved", "main::save", "CREATE"),
    ("write", "saved", "main::save", "WRITE"),
    ("fsync", "saved", "main::save", "SYNC"),
    ("create", "written", "main::main", "FSWRITE"),
    ("mkdir", "a/b", "main::main", "FOLDERS"),
    ("mkdir", "made", "main::main::{{closure}}", "THREAD"),
    ("write", "buffered", "main::main", "FLUSH"),
    ("create", "copied", "main::copy", "COPY"),
    ("rename", "saved", "main::main", "RENAME"),
    ("rmdir", "a/b", "main::main", "REMOVE"),
]


@pytest.mark.parametrize(
    "options", [[], ["-O"], ["-O", "-Cforce-frame-pointers=yes"]], ids=lambda each: " ".join(each)
)
def test_the_line_that_asks_the_standard_library_is_told(
    tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "main.rs").write_text(PROGRAM)
    words = ["rustc", "-g", *options, "-o", "app", "main.rs"]
    subprocess.run(words, cwd=tmp_path, check=True)
    found, _ = record(tmp_path, tmp_path / "app")
    for kind, path, function, mark in EXPECTED:
        told = place_of(found, kind, path)
        assert told == ("main.rs", function, line_of(PROGRAM, mark)), (kind, path)
    around = of_operation(found, "fsync", "saved")[1]
    assert (around["function"], around["line"]) == ("main::main", line_of(PROGRAM, "MAIN"))
