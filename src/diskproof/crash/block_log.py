"""A recorded disk as a log of dm-log-writes, for its replay tools and those of file systems.

A crash log has the times of every request, and which write a flush covers follows from them; a log
of dm-log-writes has each write where it was safe, and needs nothing else to be understood.
"""

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypedDict

from diskproof.errors import UsageError
from diskproof.qemu.images import data_ranges
from diskproof.recording.dm_log_writes import (
    BASE_MARK,
    END_MARK,
    FUA,
    MAX_PIECE,
    SECTOR,
    BlockLogWriter,
    start_log,
)
from diskproof.recording.log import (
    ACKNOWLEDGE,
    BASE,
    FALLOCATE,
    FSYNC,
    SYNC_WRITE,
    TRUNCATE,
    WRITE,
    Frame,
    read_frames,
)

_ROOT = 1
_NAME_AT = 32
"""Where the name of an entry stands in its payload."""
_KEEP_SIZE, _PUNCH_HOLE, _ZERO_RANGE = 1, 2, 16


@dataclass(frozen=True)
class Exported:
    """The file that was the disk, and how many entries and promises are in its log."""

    disk: str
    entries: int
    promises: int


class ExportedJson(TypedDict):
    """What ``crash block-log --json`` prints."""

    log: str
    disk: str
    entries: int
    promises: int


def exported_json(made: Exported, target: Path) -> ExportedJson:
    """The same for programs."""
    return {
        "log": str(target),
        "disk": made.disk,
        "entries": made.entries,
        "promises": made.promises,
    }


def export_log(log: Path, base: Path, name: str | None, target: Path) -> Exported:
    """Write what was done to one file of a recorded folder as a log of dm-log-writes.

    It begins with the file's content as it was, up to a mark; each acknowledgement is a mark, and
    what was never safe stands at the end. ``base`` is a copy of the folder that is used up. Raises
    UsageError for a file that was not there before, and for a ``target`` that is.
    """
    name, number = _find_disk(log, name)
    if target.exists():
        raise UsageError(f"{target} is there already", hint="name a file that is not")
    with (base / name).open("r+b") as content, start_log(target) as out:
        disk, promises = _Disk(out, content), 0
        for frame in read_frames(log):
            if frame.kind == ACKNOWLEDGE:
                out.mark(frame.payload)
                promises += 1
            elif frame.file == number and not frame.errno:
                disk.take(frame)
        disk.settle()
        out.mark(END_MARK)
        return Exported(name, out.entries, promises)


def _find_disk(log: Path, name: str | None) -> tuple[str, int]:
    """The name of a file in the root of a recorded folder and its number in the log."""
    found = dict(_base_files(log))
    if name is None and len(found) == 1:
        return next(iter(found.items()))
    if name is None or name not in found:
        what = f"{name} is no file of the recording" if name else "which file is the disk?"
        known = ", ".join(sorted(found)) or "none that was there before"
        raise UsageError(what, f"files in the recorded folder: {known}", "name one with --disk")
    return name, found[name]


def _base_files(log: Path) -> Iterator[tuple[str, int]]:
    for frame in read_frames(log):
        if frame.kind != BASE:
            return
        parent, mode = struct.unpack_from("<QI", frame.payload)
        if parent == _ROOT and stat.S_ISREG(mode):
            (length,) = struct.unpack_from("<H", frame.payload, _NAME_AT)
            yield os.fsdecode(frame.payload[_NAME_AT + 2 :][:length]), frame.file


@dataclass(frozen=True)
class _Change:
    """Whole sectors that ended at ``end`` and are not safe yet: ``data``, or zeros without."""

    end: int
    start: int
    stop: int
    data: bytes | None

    def part(self, start: int, stop: int) -> "list[_Change]":
        """What of it lies there; nothing where that is empty."""
        start, stop = max(start, self.start), min(stop, self.stop)
        data = self.data and self.data[start - self.start : stop - self.start]
        return [_Change(self.end, start, stop, data)] if start < stop else []


class _Disk:
    """A disk as it is after each record, and what of it is not safe yet."""

    def __init__(self, out: BlockLogWriter, content: IO[bytes]) -> None:
        self._out, self._fd = out, content.fileno()
        self._pending: list[_Change] = []
        for start, stop in data_ranges(self._fd, 0, self._size()):
            for change in self._changed(0, start, stop):
                self._write(change)
        out.flush()
        out.mark(BASE_MARK)

    def take(self, frame: Frame) -> None:
        """A record of the disk's own file that did not fail."""
        if frame.kind == WRITE:
            start, data = int.from_bytes(frame.payload[:8], "little"), frame.payload[8:]
            os.pwrite(self._fd, data, start)
            changes = self._changed(frame.end, start, start + len(data))
            if not frame.flags & SYNC_WRITE:
                self._pending += changes
                return
            for change in changes:
                self._supersede(change)
                self._write(change, FUA)
        elif frame.kind == FSYNC:
            self.settle(frame.begin)
            self._out.flush()
        elif frame.kind == TRUNCATE:
            self._resize(frame.end, *struct.unpack("<Q", frame.payload))
        elif frame.kind == FALLOCATE:
            self._allocate(frame.end, *struct.unpack("<IQQ", frame.payload))

    def settle(self, begin: int | None = None) -> None:
        """Write what had ended when a flush began, or all that is left."""
        covered = [each for each in self._pending if begin is None or each.end <= begin]
        self._pending = self._pending[len(covered) :]  # they stand in the order of their end
        for change in covered:
            self._write(change)

    def _write(self, change: _Change, flags: int = 0) -> None:
        if change.data is None:
            self._out.discard(change.start, change.stop - change.start)
        else:
            self._out.write(change.start, change.data, flags)

    def _supersede(self, later: _Change) -> None:
        """What is safe already is not overwritten by what was there before it."""
        self._pending = [
            part
            for each in self._pending
            for part in (*each.part(0, later.start), *each.part(later.stop, each.stop))
        ]

    def _changed(self, end: int, start: int, stop: int) -> list[_Change]:
        """The sectors that hold these bytes, in pieces, as they are now."""
        first, last = start // SECTOR * SECTOR, -(-stop // SECTOR) * SECTOR
        places = [(at, min(at + MAX_PIECE, last)) for at in range(first, last, MAX_PIECE)]
        return [_Change(end, *place, self._read(*place)) for place in places]

    def _read(self, start: int, stop: int) -> bytes:
        return os.pread(self._fd, stop - start, start).ljust(stop - start, b"\0")

    def _size(self) -> int:
        return os.fstat(self._fd).st_size

    def _resize(self, end: int, size: int) -> None:
        if size < (before := self._size()):
            self._zero(end, size, before)
        os.ftruncate(self._fd, size)

    def _allocate(self, end: int, mode: int, start: int, length: int) -> None:
        if mode & (_PUNCH_HOLE | _ZERO_RANGE):
            self._zero(end, start, min(start + length, self._size()))
        if not mode & _KEEP_SIZE and start + length > self._size():
            os.ftruncate(self._fd, start + length)

    def _zero(self, end: int, start: int, stop: int) -> None:
        """Whole sectors are discarded; what they share with other bytes is written."""
        for first, last in list(data_ranges(self._fd, start, stop)):
            for at in range(first, last, MAX_PIECE):
                os.pwrite(self._fd, bytes(min(MAX_PIECE, last - at)), at)
        head, tail = -(-start // SECTOR) * SECTOR, stop // SECTOR * SECTOR
        if head >= tail:
            self._pending += self._changed(end, start, stop)
            return
        self._pending += self._changed(end, start, head) if start < head else []
        self._pending.append(_Change(end, head, tail, None))
        self._pending += self._changed(end, tail, stop) if tail < stop else []
