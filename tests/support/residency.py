"""Files in and out of the page cache, counted by cachestat(2); programs that read oddly."""

import ctypes
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.process.native import find_native, require_native
from diskproof.process.start import Completed, require_tool, run
from support.patience import fewest

PAGE = mmap.PAGESIZE
TAKEN = 2
"""Pages that a busy kernel takes by itself now and then, without nocache as well. It does so at
random: a second try tells them from those that nocache takes."""
_LIBC = ctypes.CDLL(None, use_errno=True)

READER_C = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char part[1 << 17];

static int all(int fd) {
    ssize_t got;
    while ((got = syscall(SYS_read, fd, part, sizeof part)) > 0) {}
    return got < 0;
}

/* HOW FILE: reads all of it, and ends without a close(2) that a library would see. */
int main(int count, char **words) {
    if (count != 3) return 2;
    int raw = !strcmp(words[1], "raw"), direct = !strcmp(words[1], "direct");
    int fd = raw ? syscall(SYS_openat, AT_FDCWD, words[2], O_RDONLY)
                 : open(words[2], O_RDONLY | (direct ? O_DIRECT : 0));
    if (fd < 0) return 1;
    if (!strcmp(words[1], "mmap")) {
        struct stat facts;
        fstat(fd, &facts);
        const volatile char *bytes = mmap(0, facts.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (bytes == MAP_FAILED) return 1;
        unsigned sum = 0;
        for (off_t at = 0; at < facts.st_size; at += 4096) sum += bytes[at];
        _exit(sum == 0);
    }
    if (direct) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        char *aligned = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, flags, -1, 0);
        ssize_t got;
        while ((got = read(fd, aligned, 1 << 20)) > 0) {}
        return got < 0;
    }
    if (all(fd)) return 1;
    if (!strcmp(words[1], "close_range")) return syscall(SYS_close_range, 3, ~0U, 0) != 0;
    if (!strcmp(words[1], "close")) return close(fd) != 0;
    _exit(0);
}
"""


@dataclass(frozen=True)
class Pages:
    """Pages of a file, as the kernel counts them."""

    cached: int
    dirty: int
    writeback: int


def count_pages(path: Path, first: int = 0, pages: int = 0) -> Pages:
    """Of a part of a file, or of all of it. OSError with ENOSYS before Linux 6.5."""
    part, counts = (ctypes.c_uint64 * 2)(first * PAGE, pages * PAGE), (ctypes.c_uint64 * 5)()
    with path.open("rb") as file:
        if _LIBC.syscall(451, file.fileno(), part, counts, 0) != 0:
            raise OSError(ctypes.get_errno(), f"cachestat of {path}")
    return Pages(int(counts[0]), int(counts[1]), int(counts[2]))


def lost(path: Path, pages: Sequence[int], act: Callable[[], object]) -> int:
    """How many of these pages of a cold file are no longer cached after an act, in the best of
    ten tries; no other page is."""

    def once() -> int:
        evict(path)
        load(path, pages)
        before = cached_pages(path, pages)
        act()
        after = cached_pages(path)
        assert after <= before
        return len({*pages} - after)

    return fewest(TAKEN, once, tries=10)


def cached_pages(path: Path, pages: Sequence[int] = ()) -> set[int]:
    """Numbers of the pages that are cached, of all or of these."""
    every = range((path.stat().st_size + PAGE - 1) // PAGE)
    return {page for page in pages or every if count_pages(path, page, 1).cached}


def cached(*paths: Path) -> list[int]:
    """Pages of each that are cached."""
    return [count_pages(path).cached for path in paths]


def evict(path: Path) -> None:
    """Write a file and take it out of the cache, pages that the kernel holds for a moment too."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        end = time.monotonic() + 60
        while count_pages(path).cached:
            assert time.monotonic() < end, path
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def load(path: Path, pages: Sequence[int]) -> None:
    """Bring in these pages and no others."""
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
        for page in pages:
            os.pread(file.fileno(), 1, page * PAGE)


def make_cold(path: Path, size: int = 8 << 20) -> Path:
    """A file of random bytes that is on the disk and not in the cache."""
    path.write_bytes(os.urandom(size))
    evict(path)
    return path


def why_unseen() -> str:
    """Why nocache cannot be tested here, or nothing."""
    if not find_native("diskproof-nocache"):
        return "diskproof-nocache is not built"
    with suppress(OSError):
        count_pages(Path(__file__))
        return ""
    return "needs cachestat(2), Linux 6.5"


@contextmanager
def disk_folder() -> Iterator[Path]:
    """A folder on a disk: what is in memory anyway cannot leave it."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="nocache-") as name:
        yield Path(name)


def build_reader(folder: Path, *, static: bool) -> Path:
    source, program = folder / "reader.c", folder / ("reader-static" if static else "reader")
    source.write_text(READER_C)
    options = ["-O2", "-static"] if static else ["-O2"]
    run([require_tool("cc", "gcc"), *options, "-o", str(program), str(source)], timeout=60)
    return program


def nocache_args(*command: str | Path, options: Sequence[str] = ("--wait",)) -> list[str]:
    program = require_native("diskproof-nocache")
    return [str(program), *options, "--", *map(str, command)]


def nocache(*command: str | Path, options: Sequence[str] = ("--wait",)) -> Completed:
    return run(nocache_args(*command, options=options), timeout=60, check=False)


def succeed(*command: str | Path) -> None:
    """Run a command under nocache to its good end."""
    assert nocache(*command).returncode == 0
