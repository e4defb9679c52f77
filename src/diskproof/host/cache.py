"""Drop one file's pages from the host's page cache, and prove it.

Residency comes from mincore(2) on a mapping that is never touched: it works on every kernel, for
files that we own or may write, and does not load what it looks at.
"""

import ctypes
import mmap
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import RunFailure
from diskproof.process.start import write_back
from diskproof.records import Check
from diskproof.units import render_bytes

SOURCE = "mincore"
_ATTEMPTS = 20
_PAUSE_SECONDS = 0.02
_WINDOW = 1 << 30  # bytes mapped at once
_LOW_BIT = bytes(value & 1 for value in range(256))  # the other bits of mincore's are reserved
_MAP_FAILED = ctypes.c_void_p(-1).value
# File systems whose files are pages of the cache, from linux/magic.h: there is nothing to drop.
_IN_MEMORY = {0x01021994: "tmpfs", 0x858458F6: "ramfs"}


@dataclass(frozen=True)
class CacheDrop:
    """Bytes of a file in the page cache, before and after. ``medium`` names a file system that
    has no other place for them (empty: an ordinary one, and ``after_bytes`` is 0)."""

    before_bytes: int
    after_bytes: int
    medium: str = ""

    def as_check(self) -> Check:
        """The proof, as it is kept with a run."""
        effective = f"{self.after_bytes} bytes resident, {self.before_bytes} before"
        if self.medium:
            effective = f"nothing to drop: {self.medium} keeps files in memory"
        ok = self.after_bytes == 0 or bool(self.medium)
        return Check("page cache", "dropped", effective, SOURCE, ok)


def drop_cache(path: Path) -> CacheDrop:
    """Write a file back, drop its pages and look whether they are gone.

    Pages whose write-back just ended may still be held for a moment, so it is tried a few times.
    Raises RunFailure ``cache`` when pages stay: another process has them mapped or locked.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _drop(handle, path)
        finally:
            os.close(handle)
    except OSError as error:
        why = f"{path}: {error.strerror}"
        raise RunFailure("cache", "the page cache could not be dropped", why) from error


def _drop(handle: int, path: Path) -> CacheDrop:
    before = count_resident(handle)
    if (done := write_back(path)).returncode != 0:
        raise RunFailure("cache", "the page cache could not be dropped", done.error_text)
    if medium := _IN_MEMORY.get(filesystem_magic(handle)):
        return CacheDrop(before, before, medium)
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        after = count_resident(handle)
        if after == 0:
            return CacheDrop(before, 0)
    raise RunFailure(
        "cache",
        f"{render_bytes(after)} of {path.name} stay in the page cache",
        f"{after} of {before} bytes are resident after {_ATTEMPTS} attempts ({SOURCE})",
        "end the process that has the file mapped or locked in memory",
    )


def count_resident(handle: int) -> int:
    """Bytes of an open file in the page cache, in whole pages.

    The kernel tells only the owner and those who may write the file (others see everything as
    resident, so a drop cannot be proved by mistake). Raises OSError.
    """
    size = os.lseek(handle, 0, os.SEEK_END)  # a block device's status tells none
    return sum(
        _count_window(handle, start, min(_WINDOW, size - start))
        for start in range(0, size, _WINDOW)
    )


def _count_window(handle: int, offset: int, length: int) -> int:
    pages = -(-length // mmap.PAGESIZE)
    vector = ctypes.create_string_buffer(pages)
    with _mapped(handle, offset, length) as address:
        if _LIBC.mincore(address, length, vector) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return vector.raw.translate(_LOW_BIT).count(1) * mmap.PAGESIZE


@contextmanager
def _mapped(handle: int, offset: int, length: int) -> Iterator[int]:
    """Address of a read-only mapping; Python's own mmap does not give it out."""
    address = _LIBC.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, handle, offset)
    if address is None or address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    try:
        yield address
    finally:
        _LIBC.munmap(address, length)


def filesystem_magic(handle: int) -> int:
    """``f_type``, the first word of fstatfs(2)'s answer, which statvfs does not have."""
    answer = (ctypes.c_long * 32)()
    if _LIBC.fstatfs(handle, answer) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(answer[0]) & 0xFFFFFFFF


def _load_libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    libc.mmap.argtypes = [pointer, size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
    libc.mmap.restype = pointer
    libc.munmap.argtypes = [pointer, size]
    libc.mincore.argtypes = [pointer, size, pointer]
    libc.fstatfs.argtypes = [ctypes.c_int, pointer]
    return libc


_LIBC = _load_libc()
