"""Loop devices that go with their last user: the kernel detaches them, after ``kill -9`` too."""

import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError

# linux/loop.h
_GET_FREE = 0x4C82
_CONFIGURE = 0x4C0A
_AUTOCLEAR, _DIRECT_IO = 4, 16
_INFO64 = struct.Struct("@QQQQQIIII64s64s32s2Q")
_CONFIG = struct.Struct(f"@II{_INFO64.size}s64x")
_ATTEMPTS = 100  # others take devices too
_SYS = Path("/sys/block")


@dataclass(frozen=True)
class Loop:
    """``direct``: it reads and writes its file around the page cache."""

    path: Path
    direct: bool

    @property
    def words(self) -> str:
        return f"a loop device {'with direct I/O' if self.direct else 'through the page cache'}"


@contextmanager
def start_loop(file: Path) -> Iterator[Loop]:
    """A loop device over a file, for a block and as long as something stands on it.

    Raises HostError where there is none to be had.
    """
    try:
        with file.open("r+b") as stream:
            path, handle = _configure(stream.fileno(), file)
    except OSError as error:
        why = f"{error.filename or file}: {error.strerror}"
        raise HostError(f"no loop device for {file}", why, "as root: modprobe loop") from None
    try:
        yield Loop(path, (_SYS / path.name / "loop" / "dio").read_text().strip() == "1")
    finally:
        os.close(handle)


def find_loops(folder: Path) -> tuple[str, ...]:
    """Names of the loop devices whose files lie below a folder. Files that were removed count."""
    inside = folder.resolve()
    return tuple(
        entry.parent.parent.name
        for entry in sorted(_SYS.glob("loop*/loop/backing_file"))
        if (file := _read_name(entry)) and Path(file).is_relative_to(inside)
    )


def _read_name(entry: Path) -> str:
    try:
        return os.fsdecode(entry.read_bytes()).rstrip("\n")
    except OSError:  # detached meanwhile
        return ""


def _configure(file: int, path: Path) -> tuple[Path, int]:
    """A device that goes with its last user, and the first use of it. Raises OSError."""
    name = os.fsencode(path)[:63]
    info = _INFO64.pack(0, 0, 0, 0, 0, 0, 0, 0, _AUTOCLEAR | _DIRECT_IO, name, b"", b"", 0, 0)
    config = _CONFIG.pack(file, 0, info)
    for _ in range(_ATTEMPTS):
        device = Path(f"/dev/loop{_find_free()}")
        handle = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.ioctl(handle, _CONFIGURE, config)
        except OSError as error:
            os.close(handle)
            if error.errno != errno.EBUSY:
                raise
        else:
            return device, handle
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), "/dev/loop*")


def _find_free() -> int:
    control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(control, _GET_FREE)
    finally:
        os.close(control)
