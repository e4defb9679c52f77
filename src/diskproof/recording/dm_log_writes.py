"""The log of Linux' dm-log-writes, which QEMU's ``blklogwrites`` driver writes too.

``Documentation/admin-guide/device-mapper/log-writes.rst`` and ``drivers/md/dm-log-writes.c``: a
sector with the superblock, then one with each entry, which a mark's text or the entry's data
follow. A write stands where it was safe: before the flush that covered it, or at its own end with
FUA. So a disk replayed up to an entry holds just what a power cut there must leave.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from diskproof.errors import UsageError

MAGIC, VERSION = 0x6A736677736872, 1
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8
BASE_MARK, END_MARK = b"diskproof base", b"diskproof end"
"""Ours, around what was recorded: the disk as it was before, and what was never safe."""
OWN_MARKS = frozenset({BASE_MARK, END_MARK, b"dm-log-writes-end"})
"""Which no writer gave."""
SECTOR = 512
"""What is written here; of what is read, the log says its own."""
MAX_PIECE = 64 << 20
"""Bytes of an entry. Its replay tool writes zeros where discards are not supported, up to 128 MiB
at once, and reads data in one piece."""
_SUPER, _ENTRY = struct.Struct("<QQQI"), struct.Struct("<QQQQ")
_MOST_DATA = 1 << 30
_SECTORS = frozenset(1 << bit for bit in range(9, 17))


@dataclass(frozen=True)
class LoggedChange:
    """``start`` and ``length`` in bytes of the disk; ``data`` of a write, ``text`` of a mark.
    ``offset`` is where the entry stands in the log."""

    flags: int
    start: int
    length: int
    data: bytes
    text: bytes
    offset: int


class BlockLogWriter:
    """A log that is being written, with the number of its entries so far."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.entries = stream, 0
        stream.write(bytes(SECTOR))

    def write(self, start: int, data: bytes, flags: int = 0) -> None:
        """Whole sectors of the disk, from byte ``start`` on."""
        for at in range(0, len(data), MAX_PIECE):
            piece = data[at : at + MAX_PIECE]
            self._add((start + at) // SECTOR, len(piece) // SECTOR, flags)
            self._stream.write(piece)

    def discard(self, start: int, length: int) -> None:
        for at in range(0, length, MAX_PIECE):
            size = min(MAX_PIECE, length - at)
            self._add((start + at) // SECTOR, size // SECTOR, DISCARD)

    def flush(self) -> None:
        self._add(0, 0, FLUSH)

    def mark(self, text: bytes) -> None:
        """As much of a text as has room beside its entry in a sector."""
        self._add(0, 0, MARK, text[: SECTOR - _ENTRY.size])

    def _add(self, sector: int, sectors: int, flags: int, text: bytes = b"") -> None:
        head = _ENTRY.pack(sector, sectors, flags, len(text)) + text
        self._stream.write(head.ljust(SECTOR, b"\0"))
        self.entries += 1


@contextmanager
def start_log(target: Path) -> Iterator[BlockLogWriter]:
    """Write a log; its superblock, which makes it one, comes last. The file must not be there, and
    is not when writing it fails. Raises UsageError where it cannot be written."""
    try:
        stream = target.open("xb")
    except OSError as error:
        raise _unwritable(target, error) from None
    try:
        with stream:
            writer = BlockLogWriter(stream)
            yield writer
            stream.seek(0)
            stream.write(_SUPER.pack(MAGIC, VERSION, writer.entries, SECTOR))
    except BaseException as error:
        target.unlink()
        if isinstance(error, OSError):
            raise _unwritable(target, error) from None
        raise


def _unwritable(target: Path, error: OSError) -> UsageError:
    return UsageError(f"{target} cannot be written", error.strerror or "", "name another file")


def read_entries(path: Path) -> Iterator[LoggedChange]:
    """The entries of a log in order.

    Raises UsageError for what is no such log, is damaged, or ends before its last entry.
    """
    with path.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        count, sector = _read_super(stream, path)
        stream.seek(sector)
        for number in range(count):
            yield _read_entry(stream, path, number, sector, size)


def _read_super(stream: IO[bytes], path: Path) -> tuple[int, int]:
    """Number of entries and bytes of a sector."""
    head = stream.read(_SUPER.size)
    if len(head) < _SUPER.size or _SUPER.unpack(head)[0] != MAGIC:
        raise UsageError(f"{path} is no log of dm-log-writes", "its first bytes are others")
    _, version, count, sector = _SUPER.unpack(head)
    if version != VERSION:
        raise UsageError(f"{path} has version {version}", f"version {VERSION} is read here")
    if sector not in _SECTORS:
        raise _damaged(path, 0, f"sectors of {sector} bytes")
    return count, sector


def _read_entry(stream: IO[bytes], path: Path, number: int, sector: int, size: int) -> LoggedChange:
    offset = stream.tell()
    head = stream.read(sector)
    if len(head) < sector:
        raise _damaged(path, offset, f"it ends before entry {number}")
    first, sectors, flags, told = _ENTRY.unpack(head[: _ENTRY.size])
    if flags & MARK:
        if sectors or told > sector - _ENTRY.size:
            raise _damaged(path, offset, "a mark that is larger than its sector")
        return LoggedChange(flags, 0, 0, b"", head[_ENTRY.size :][:told], offset)
    start, length = first * sector, sectors * sector
    if start + length > 1 << 62:
        raise _damaged(path, offset, "an entry beyond any disk")
    if flags & DISCARD:
        return LoggedChange(flags, start, length, b"", b"", offset)
    if length > _MOST_DATA:
        raise _damaged(path, offset, "an entry of more than 1 GiB")
    if length > size - stream.tell():
        raise _damaged(path, offset, f"it ends within entry {number}")
    return LoggedChange(flags, start, length, stream.read(length), b"", offset)


def _damaged(path: Path, offset: int, why: str) -> UsageError:
    return UsageError(f"{path} is damaged at byte {offset}", why, "record it anew")
