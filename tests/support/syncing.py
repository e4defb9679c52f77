"""Programs and loads that sync, for tests and benchmarks of what stops syncs."""

import ctypes
import os
from pathlib import Path

from diskproof.process.start import require_tool, run

BUILD_SECONDS = 300.0

SYNC_C = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* FILE SECONDS CALLS: does the calls, w(rite), f(sync), r(ead); prints how often a second. */
int main(int count, char **words) {
    static char page[4096];
    if (count != 4) return 2;
    int fd = open(words[1], O_RDWR | O_CREAT, 0600);
    double start = now(), end = start + atof(words[2]), time;
    long done = 0;
    do {
        for (int turn = 0; turn < (end > start ? 32 : 1); turn++, done++) {
            for (const char *call = words[3]; *call; call++) {
                if (*call == 'w' && pwrite(fd, page, sizeof page, 0) != sizeof page) return 1;
                if (*call == 'f' && fsync(fd) != 0) return 1;
                if (*call == 'r' && pread(fd, page, 1, 0) < 0) return 1;
            }
        }
        time = now();
    } while (time < end);
    printf("%.1f\n", done / (time - start));
    return 0;
}
"""

SYNC_GO = r"""
package main

import (
	"os"
	"strconv"
	"syscall"
	"time"
)

// FILE SECONDS: writes and syncs; prints how often a second.
func main() {
	fd, err := syscall.Open(os.Args[1], syscall.O_RDWR|syscall.O_CREAT, 0600)
	seconds, _ := strconv.ParseFloat(os.Args[2], 64)
	start, done, page := time.Now(), 0, make([]byte, 4096)
	for {
		if err == nil {
			_, err = syscall.Pwrite(fd, page, 0)
		}
		if err == nil {
			err = syscall.Fsync(fd)
		}
		if err != nil {
			os.Exit(1)
		}
		done++
		if time.Since(start).Seconds() >= seconds {
			break
		}
	}
	rate := float64(done) / time.Since(start).Seconds()
	os.Stdout.WriteString(strconv.FormatFloat(rate, 'f', 1, 64) + "\n")
}
"""

# FILE SECONDS JOURNAL: commits one row a transaction; prints commits a second.
SQLITE_WRITER = """
import sqlite3, sys, time
path, seconds, journal = sys.argv[1], float(sys.argv[2]), sys.argv[3]
connection = sqlite3.connect(path, isolation_level=None)
connection.execute("PRAGMA synchronous=FULL")
connection.execute(f"PRAGMA journal_mode={journal}")
connection.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, text TEXT)")
start, done, taken = time.monotonic(), 0, 0.0
while done == 0 or taken < seconds:
    connection.execute("INSERT INTO t (text) VALUES (?)", ("x" * 100,))
    done, taken = done + 1, time.monotonic() - start
print(done / taken)
"""


def unsynced_pages(path: Path) -> int:
    """Pages of a file that are dirty or under writeback, as cachestat(2) tells (Linux 6.5).

    OSError with ENOSYS where the kernel is older.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    everything, counts = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    with path.open("rb") as file:
        if libc.syscall(451, file.fileno(), everything, counts, 0) != 0:
            raise OSError(ctypes.get_errno(), f"cachestat of {path}")
    return int(counts[1] + counts[2])


def build_c(folder: Path, *, static: bool) -> Path:
    """The C program, linked statically or not."""
    source, program = folder / "sync.c", folder / ("sync-static" if static else "sync-dynamic")
    source.write_text(SYNC_C)
    options = ["-O2", "-static"] if static else ["-O2"]
    argv = [require_tool("cc", "gcc"), *options, "-o", str(program), str(source)]
    run(argv, timeout=BUILD_SECONDS)
    return program


def build_go(folder: Path) -> Path:
    """The Go program: no C library. What Go compiled before stays in its own cache."""
    source, program = folder / "sync.go", folder / "sync-go"
    source.write_text(SYNC_GO)
    argv = [require_tool("go", "golang-go"), "build", "-o", str(program), str(source)]
    environment = {**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off", "GOTOOLCHAIN": "local"}
    run(argv, timeout=BUILD_SECONDS, env=environment, cwd=folder)
    return program


def make_packages(folder: Path, count: int, files: int) -> list[Path]:
    """Debian packages of small files, without scripts."""
    packages = []
    for number in range(count):
        name = f"drop-test-{number}"
        tree = folder / name
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / "DEBIAN" / "control").write_text(
            f"Package: {name}\nVersion: 1\nArchitecture: all\n"
            "Maintainer: nobody <nobody@localhost>\nDescription: files to install\n"
        )
        content = tree / "usr" / "share" / name
        content.mkdir(parents=True)
        for place in range(files):
            (content / f"file-{place}").write_bytes(bytes([place % 256]) * 3000)
        package = folder / f"{name}.deb"
        argv = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(package)]
        run(argv, timeout=BUILD_SECONDS)
        packages.append(package)
    return packages


def dpkg_args(root: Path, packages: list[Path]) -> list[str]:
    """Installs them into an empty root, which is made."""
    state = root / "var" / "lib" / "dpkg"
    for part in ("info", "updates", "triggers"):
        (state / part).mkdir(parents=True)
    (state / "status").touch()
    return ["dpkg", f"--root={root}", "--force-depends", "--install", *map(str, packages)]


GIT_SYNCS = ("-c", "core.fsync=all", "-c", "core.fsyncMethod=fsync")
_GIT_AUTHOR = ("-c", "user.name=nobody", "-c", "user.email=nobody@localhost")


def make_repository(folder: Path, files: int) -> Path:
    """A repository with one commit of small files."""
    repository = folder / "repository"
    fill_tree(repository, files)
    git = ["git", "-C", str(repository), *_GIT_AUTHOR]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "files"]):
        run([*git, *words], timeout=BUILD_SECONDS)
    return repository


def fill_tree(folder: Path, files: int) -> None:
    """Small files, each of its own content."""
    folder.mkdir()
    for number in range(files):
        (folder / f"file-{number}").write_text(f"{number}\n" * 50)


def clone_args(repository: Path, target: Path) -> list[str]:
    """Objects are copied and each is synced, not linked."""
    return ["git", *GIT_SYNCS, "clone", "--quiet", "--no-local", str(repository), str(target)]


def add_args(tree: Path) -> list[str]:
    """Every file becomes an object that is synced; the tree has a repository already."""
    return ["git", *GIT_SYNCS, "-C", str(tree), "add", "."]
