"""Which line of a Go program changed a recorded folder: every Go that is here.

``GOTOOLCHAIN=go1.19.13 go version`` brings an older one along, as Go's own module.

Requires root, /dev/fuse, Go and the native programs.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from support.recording import needs_fuse
from support.source_places import line_of, of_operation, place_of, record

GO = shutil.which("go") or "/usr/local/go/bin/go"
pytestmark = [needs_fuse, pytest.mark.skipif(not Path(GO).exists(), reason="there is no Go")]
PROGRAM = """package main

import (
	"bufio"
	"os"
	"sync"
	"syscall"
)

type store struct{ file *os.File }

//go:noinline
func (s *store) save(text string) {
	s.file.WriteString(text) // WRITE
}

func remove(name string) {
	os.Remove(name) // INLINED
}

func deep(left int) {
	var room [4096]byte
	if left > 0 {
		deep(left - 1)
		return
	}
	room[0] = 1
	os.Mkdir("deep", 0755) // DEEP
}

func main() {
	file, _ := os.Create("saved") // CREATE
	stored := &store{file}
	stored.save("text")
	file.Sync() // SYNC
	var work sync.WaitGroup
	work.Add(1)
	go func() {
		defer work.Done()
		os.Mkdir("made", 0755) // GOROUTINE
	}()
	work.Wait()
	os.WriteFile("written", []byte("x"), 0644) // WRITEFILE
	buffer := bufio.NewWriter(file)
	buffer.WriteString("more")
	deep(100)
	syscall.Rename("saved", "kept") // RENAME
	remove("written")               // AROUND
	buffer.Flush()                  // FLUSH
}
"""
EXPECTED = [
    ("create", "saved", "main.main", "CREATE"),
    ("fsync", "saved", "main.main", "SYNC"),
    ("mkdir", "made", "main.main.func1", "GOROUTINE"),
    ("create", "written", "main.main", "WRITEFILE"),
    ("mkdir", "deep", "main.deep", "DEEP"),
    ("rename", "saved", "main.main", "RENAME"),
    ("unlink", "written", "main.remove", "INLINED"),
]
C_PROGRAM = """package main

// #include <sys/stat.h>
// static void make(void) { mkdir("in-c", 0755); asm volatile(""); }
import "C"

import "os"

func main() {
	C.make()
	os.Mkdir("in-go", 0755) // GO
}
"""


def find_toolchains() -> list[str]:
    """The one of the PATH, and those that it has got as modules."""
    if not Path(GO).exists():
        return []
    words = [GO, "env", "GOMODCACHE"]
    cache = subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()
    modules = Path(cache, "golang.org").glob("toolchain@*linux-amd64/bin/go")
    return [GO, *map(str, sorted(modules))]


def build(folder: Path, go: str, source: str, *options: str, with_c: bool = False) -> Path:
    (folder / "main.go").write_text(source)
    (folder / "go.mod").write_text("module app\n\ngo 1.16\n")
    own = {"GOTOOLCHAIN": "local", "GOFLAGS": "", "GOENV": "off", "CGO_ENABLED": str(int(with_c))}
    root = subprocess.run(
        [go, "env", "GOROOT"], capture_output=True, text=True, env=os.environ | own
    )
    environment = os.environ | own | {"GOROOT": root.stdout.strip(), "GO111MODULE": "on"}
    words = [go, "build", *options, "-o", "app", "main.go"]
    subprocess.run(words, cwd=folder, check=True, env=environment)
    return folder / "app"


@pytest.mark.parametrize(
    "options", [[], ["-ldflags=-s -w", "-trimpath"], ["-buildmode=pie"]], ids=str
)
@pytest.mark.parametrize("go", find_toolchains())
def test_the_line_of_a_go_program_is_told(tmp_path: Path, go: str, options: list[str]) -> None:
    found, _ = record(tmp_path, build(tmp_path, go, PROGRAM, *options))
    for kind, path, function, mark in EXPECTED:
        told = place_of(found, kind, path)
        assert told == ("main.go", function, line_of(PROGRAM, mark)), (kind, path)
    first, second = (
        one["by"]["frames"]
        for one in found
        if one["operation"] == "write" and one["path"] in ("saved", "kept")
    )
    assert [(one["function"], one["line"]) for one in first] == [
        ("main.(*store).save", line_of(PROGRAM, "WRITE")),
        ("main.main", line_of(PROGRAM, "CREATE") + 2),
    ]
    # A package is the program's own, whoever wrote it.
    assert [one["function"] for one in second] == ["bufio.(*Writer).Flush", "main.main"]
    assert second[1]["line"] == line_of(PROGRAM, "FLUSH")
    around = of_operation(found, "unlink", "written")
    assert (around[1]["function"], around[1]["line"]) == ("main.main", line_of(PROGRAM, "AROUND"))
    assert {one["function"] for one in of_operation(found, "mkdir", "deep")} == {"main.deep"}
    assert re.search("(^|/)main.go$", around[0]["file"])


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_calls_of_c_in_a_go_program_end_where_the_stack_is_left(tmp_path: Path) -> None:
    found, _ = record(tmp_path, build(tmp_path, GO, C_PROGRAM, with_c=True))
    assert place_of(found, "mkdir", "in-go") == ("main.go", "main.main", line_of(C_PROGRAM, "GO"))
    assert "make" in of_operation(found, "mkdir", "in-c")[0]["function"]
