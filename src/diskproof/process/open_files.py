"""What a process has open, as the kernel tells it in /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from diskproof.errors import RunFailure


def find_open_flags(pid: int, file: Path) -> int | None:
    """open(2) flags with which a process has a file open for writing; None when it has not."""
    wanted = file.stat()
    for entry in read_descriptors(pid):
        with suppress(OSError):
            if not os.path.samestat(entry.stat(), wanted):
                continue
            info = Path(f"/proc/{pid}/fdinfo/{entry.name}").read_text()
            flags = int(info.split("flags:", 1)[1].split()[0], 8)
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
