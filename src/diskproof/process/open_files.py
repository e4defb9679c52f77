"""What a process has open, as the kernel tells it in /proc."""

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import RunFailure


@dataclass(frozen=True)
class OpenFile:
    """A regular file or block device that a process has open. ``path`` is as that process sees it,
    ``flags`` are those of open(2), ``key`` is equal for the same file."""

    fd: int
    path: str
    flags: int
    key: tuple[int, int]
    block: bool
    deleted: bool

    @property
    def writable(self) -> bool:
        return self.flags & os.O_ACCMODE == os.O_RDWR


def file_key(found: os.stat_result) -> tuple[int, int]:
    """What tells files apart: a device by its number, whatever its node is called."""
    return (-1, found.st_rdev) if stat.S_ISBLK(found.st_mode) else (found.st_dev, found.st_ino)


def read_open_files(pid: int) -> tuple[OpenFile, ...]:
    """The files and block devices that a process has open. Raises RunFailure ``qemu``."""
    files = []
    for entry in read_descriptors(pid):
        with suppress(OSError, ValueError, IndexError):
            found = entry.stat()
            block = stat.S_ISBLK(found.st_mode)
            if not block and not stat.S_ISREG(found.st_mode):
                continue
            flags = int(_read_info(pid, entry.name), 8)
            path = str(entry.readlink())
            deleted = path.endswith(" (deleted)") and found.st_nlink == 0
            path = path.removesuffix(" (deleted)") if deleted else path
            key = file_key(found)
            files.append(OpenFile(int(entry.name), path, flags, key, block, deleted))
    return tuple(files)


def _read_info(pid: int, fd: str) -> str:
    """The open flags of a descriptor, octal."""
    return Path(f"/proc/{pid}/fdinfo/{fd}").read_text().split("flags:", 1)[1].split()[0]


def find_open_flags(pid: int, file: Path) -> int | None:
    """open(2) flags with which a process has a file open for writing; None when it has not."""
    wanted = file.stat()
    for entry in read_descriptors(pid):
        with suppress(OSError):
            if not os.path.samestat(entry.stat(), wanted):
                continue
            flags = int(_read_info(pid, entry.name), 8)
            if flags & os.O_ACCMODE == os.O_RDWR:
                return flags
    return None


def find_rings(pid: int) -> frozenset[str]:
    """``io_uring`` and ``aio``, as far as the process holds such rings."""
    rings = set()
    for entry in read_descriptors(pid):
        with suppress(OSError):
            if str(entry.readlink()) == "anon_inode:[io_uring]":
                rings.add("io_uring")
    for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
        if line.split(maxsplit=5)[5:] and line.split(maxsplit=5)[5].startswith("/[aio]"):
            rings.add("aio")
    return frozenset(rings)


def read_descriptors(pid: int) -> list[Path]:
    """Links in /proc, one for each descriptor. Raises RunFailure ``qemu``."""
    try:
        return list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError as error:
        why = f"/proc/{pid}/fd: {error.strerror}"
        raise RunFailure("qemu", "the process of the disk cannot be looked at", why) from None
