"""A file that somebody else has named: opened once, and only if it is one."""

import errno
import os
import stat
from pathlib import Path


def open_plain(path: Path, *, links: bool = True, blocks: bool = False) -> int:
    """A descriptor of a regular file for reading; with ``blocks`` also of a block device, without
    ``links`` of no link. Nothing else is opened at all: a FIFO could wait, a device act. Raises
    OSError."""
    handle = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    try:
        mode = os.fstat(handle).st_mode
        if not stat.S_ISREG(mode) and not (blocks and stat.S_ISBLK(mode)):
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        return os.open(f"/proc/self/fd/{handle}", flags)
    finally:
        os.close(handle)


def read_plain(path: Path, most: int) -> bytes:
    """Its first ``most`` bytes. Raises OSError."""
    with os.fdopen(open_plain(path), "rb") as stream:
        return stream.read(most)
