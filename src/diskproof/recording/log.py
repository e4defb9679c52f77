"""The crash log as Python needs it: frames, counts, and a copy that ends earlier.

``docs/crash-log.md`` is the format. States are built from a log by the native explorer; here a
log is only walked, with every checksum looked at.
"""

import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from diskproof.errors import RunFailure

MAGIC = b"dpcrash\n"
VERSIONS = (1, 2)
HEADER_BYTES = 64
MAX_PAYLOAD = (1 << 20) + (64 << 10)
_FRAME = struct.Struct("<IIIBBHQQQII")
_HEADER = struct.Struct("<8sIIIIQQQ12sI")
_CHECKSUM = struct.Struct("<I")

BASE, WRITE, TRUNCATE, FALLOCATE, FSYNC, ACKNOWLEDGE = 1, 9, 10, 11, 12, 18
END, LINE, SYNC = 20, 24, 25
SYNC_WRITE, MAPPED, DATA_ONLY = 2, 8, 16
KIND_NAMES = {
    WRITE: "writes",
    TRUNCATE: "truncates",
    FALLOCATE: "allocations",
    FSYNC: "flushes",
    SYNC: "flushes",
    ACKNOWLEDGE: "acknowledgements",
}


@dataclass(frozen=True)
class Frame:
    """One record. Times are nanoseconds of CLOCK_MONOTONIC; ``end_offset`` is where it ends."""

    kind: int
    flags: int
    errno: int
    sequence: int
    begin: int
    end: int
    file: int
    payload: bytes
    end_offset: int


@dataclass(frozen=True)
class LogSummary:
    """``counts`` by name (``writes``, ``flushes``, ...; ``bytes`` written). ``complete``: the
    recorder ended in order."""

    counts: Mapping[str, int]
    frames: int
    complete: bool


def read_frames(path: Path) -> Iterator[Frame]:
    """The records of a log in order. Raises RunFailure ``log`` with the offset of damage.

    A record that the file ends in is left out: its caller was never answered.
    """
    with path.open("rb") as stream:
        _read_header(stream)
        expected, offset, last = 1, HEADER_BYTES, 0
        while head := stream.read(_FRAME.size):
            if len(head) < _FRAME.size:
                return
            frame_crc, payload_crc, size, *rest = _FRAME.unpack(head)
            if zlib.crc32(head[4:]) != frame_crc or size > MAX_PAYLOAD:
                raise _damaged(offset, "the checksum of a record is wrong")
            payload = stream.read(padded := -(-size // 8) * 8)
            if len(payload) < padded:
                return
            if zlib.crc32(payload[:size]) != payload_crc:
                raise _damaged(offset, "the checksum of a payload is wrong")
            kind, flags, errno, sequence, begin, end, file, _caller = rest
            if sequence != expected or end < last:
                raise _damaged(offset, "records are not in order")
            expected, last = sequence + 1, end
            offset += _FRAME.size + padded
            yield Frame(kind, flags, errno, sequence, begin, end, file, payload[:size], offset)


def _read_header(stream: IO[bytes]) -> None:
    header = stream.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise _damaged(0, "this is no crash log")
    magic, version, *_, crc = _HEADER.unpack(header)
    if zlib.crc32(header[:60]) != crc:
        raise _damaged(0, "the checksum of the header is wrong")
    if version not in VERSIONS:
        known = " and ".join(map(str, VERSIONS))
        raise RunFailure(
            "log", f"the crash log has version {version}", f"versions {known} are read here"
        )


def _damaged(offset: int, why: str) -> RunFailure:
    return RunFailure("log", f"the crash log is damaged at byte {offset}", why, "record it anew")


def summarise_log(path: Path) -> LogSummary:
    """Count what a log holds. Raises RunFailure ``log``."""
    counts: Counter[str] = Counter(dict.fromkeys([*KIND_NAMES.values(), "sync_writes", "bytes"], 0))
    frames, complete = 0, False
    for frame in read_frames(path):
        frames += 1
        complete = frame.kind == END
        if frame.errno or frame.kind not in KIND_NAMES:
            continue
        counts[KIND_NAMES[frame.kind]] += 1
        if frame.kind == WRITE:
            counts["bytes"] += len(frame.payload) - 8
            counts["sync_writes"] += bool(frame.flags & SYNC_WRITE)
    return LogSummary(dict(counts), frames, complete)


def writes_mapped(path: Path) -> bool:
    """Whether files were written through a shared mapping. Raises RunFailure ``log``."""
    return any(each.kind == WRITE and each.flags & MAPPED for each in read_frames(path))


class LogWriter:
    """A log that somebody else recorded, in our format. ``sector`` is the disk's, in bytes.

    Records have no times but their order: each begins when all before it have ended.
    """

    def __init__(self, stream: IO[bytes], sector: int) -> None:
        self._stream, self._count = stream, 0
        head = _HEADER.pack(MAGIC, VERSIONS[-1], sector, 4096, 0, 0, 0, 0, bytes(12), 0)[:60]
        stream.write(head + _CHECKSUM.pack(zlib.crc32(head)))

    def add(self, kind: int, payload: bytes = b"", *, file: int = 0, flags: int = 0) -> None:
        self._count += 1
        times = self._count, self._count, self._count
        self._stream.write(_sealed(kind, flags, times, file, payload))


def _sealed(kind: int, flags: int, place: tuple[int, int, int], file: int, payload: bytes) -> bytes:
    """A record; ``place`` is its sequence number, its begin and its end."""
    told = zlib.crc32(payload), len(payload), kind, flags, 0, *place, file, 0
    head = _FRAME.pack(0, *told)[4:]
    return _CHECKSUM.pack(zlib.crc32(head)) + head + payload + bytes(-len(payload) % 8)


def copy_log(source: Path, target: Path, until: Frame, further: Iterable[Frame] = ()) -> None:
    """Copy a log up to the end of a record: what a recorder killed there would have left.

    ``further`` are records without a file and a caller that are put behind it, as of that time.
    """
    left = until.end_offset
    with source.open("rb") as stream, target.open("wb") as copy:
        while chunk := stream.read(min(left, 1 << 20)):
            copy.write(chunk)
            left -= len(chunk)
        for sequence, each in enumerate(further, until.sequence + 1):
            copy.write(_sealed(each.kind, 0, (sequence, until.end, until.end), 0, each.payload))
