"""A log of dm-log-writes as a crash log: what a kernel or QEMU recorded of a whole disk."""

import struct
from pathlib import Path

from diskproof.errors import UsageError
from diskproof.recording.dm_log_writes import (
    DISCARD,
    FLUSH,
    FUA,
    MARK,
    OWN_MARKS,
    LoggedChange,
    read_entries,
)
from diskproof.recording.log import (
    ACKNOWLEDGE,
    BASE,
    DATA_ONLY,
    END,
    FALLOCATE,
    FSYNC,
    SYNC_WRITE,
    WRITE,
    LogWriter,
)

_ROOT, _DISK = 1, 2
_MAX_WRITE, _MAX_LINE = 1 << 20, 4 << 10
_PUNCH = 1 | 2
_ENTRY = struct.Struct("<QIIIIQ")


def find_disk(folder: Path) -> Path:
    """The one file in a folder. Raises UsageError."""
    found = sorted(folder.iterdir())
    if len(found) != 1 or not found[0].is_file() or found[0].is_symlink():
        what = f"{folder} does not hold one file, the disk as it was before the log"
        names = ", ".join(path.name for path in found[:5]) or "nothing"
        raise UsageError(
            what, f"it holds {names}", "copy the disk's image into a folder of its own"
        )
    return found[0]


def import_log(source: Path, disk: Path, target: Path, mark: str) -> None:
    """Write ``source`` as a crash log of a folder that holds ``disk``; its marks are promises.

    Where there are none (QEMU gives none), each flush is one: who asked for it was told that it is
    done. ``mark`` ends what the writer did. Raises UsageError for a log that is damaged or of a
    larger disk.
    """
    size = disk.stat().st_size
    marked, flushes = any(map(_is_promise, read_entries(source))), 0
    with target.open("xb") as stream:
        log = LogWriter(stream, 512)
        log.add(BASE, _entry(0, 0o040700, 0, b""), file=_ROOT)
        log.add(BASE, _entry(_ROOT, 0o100600, size, disk.name.encode()), file=_DISK)
        for entry in read_entries(source):
            if entry.start + entry.length > size:
                what = f"{source} is the log of a larger disk than {disk.name}"
                why = f"it writes to byte {entry.start + entry.length:,} of {size:,}"
                raise UsageError(what, why, "give the disk that it was recorded on, as it was")
            _add(log, entry)
            flushes += bool(entry.flags & FLUSH)
            if _is_promise(entry):
                log.add(ACKNOWLEDGE, entry.text.rstrip(b"\0\n").replace(b"\n", b" ")[:_MAX_LINE])
            elif entry.flags & FLUSH and not marked:
                log.add(ACKNOWLEDGE, b"flush %d" % flushes)
        log.add(ACKNOWLEDGE, mark.encode())
        log.add(END)


def _entry(parent: int, mode: int, size: int, name: bytes) -> bytes:
    return _ENTRY.pack(parent, mode, 0, 0, 0, size) + struct.pack("<H", len(name)) + name


def _is_promise(entry: LoggedChange) -> bool:
    return bool(entry.flags & MARK) and entry.text not in OWN_MARKS


def _add(log: LogWriter, entry: LoggedChange) -> None:
    """An entry as records: a flush covers all that stands before it, not its own data."""
    if entry.flags & FLUSH:
        log.add(FSYNC, file=_DISK, flags=DATA_ONLY)
    if entry.flags & DISCARD and entry.length:
        log.add(FALLOCATE, struct.pack("<IQQ", _PUNCH, entry.start, entry.length), file=_DISK)
    for at in range(0, len(entry.data), _MAX_WRITE):
        data = struct.pack("<Q", entry.start + at) + entry.data[at : at + _MAX_WRITE]
        log.add(WRITE, data, file=_DISK, flags=SYNC_WRITE if entry.flags & FUA else 0)
