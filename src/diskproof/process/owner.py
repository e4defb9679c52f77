"""Files of ours that the user without rights may use; ownership changes by descriptor only.

A name can be a link by the time it is used, a descriptor cannot.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from diskproof.errors import HostError
from diskproof.process.run_user import require_run_user

OURS_ALONE, AS_USUAL = 0o077, 0o022
"""Bits that modes lack: of what root makes for a run, and of what others than root are to read."""
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def hand_over(path: Path) -> None:
    """A file or folder becomes the confined user's, and nobody else's (0600, 0700); where we are
    not root it stays ours. Raises HostError when it is not ours or has another name, and OSError
    when it is a link."""
    with _opened(path) as handle:
        info = os.fstat(handle)
        known = stat.S_ISDIR(info.st_mode) or (stat.S_ISREG(info.st_mode) and info.st_nlink == 1)
        if not known or info.st_uid not in (os.geteuid(), require_run_user()):
            why = "it is not the file or folder that was made there"
            raise HostError(f"{path} was replaced", why, "keep others out of the folder above it")
        os.fchmod(handle, 0o700 if stat.S_ISDIR(info.st_mode) else 0o600)
        if os.geteuid() == 0:
            os.fchown(handle, require_run_user(), require_run_user())


def hand_over_tree(folder: Path) -> None:
    """All that is in a folder of a folder of ours, and itself, become the confined user's; modes
    stay. Links are not followed."""
    if os.geteuid() == 0:
        user = require_run_user()
        for path in (folder, *folder.rglob("*")):
            os.chown(path, user, user, follow_symlinks=False)


def hand_over_node(path: Path) -> None:
    """As ``hand_over``, of the node of a device or socket, which is not opened. Needs root."""
    os.chown(path, require_run_user(), require_run_user(), follow_symlinks=False)


def admit(folder: Path) -> None:
    """The confined user may enter a folder of root's, not list it; it stays root's. Raises OSError
    when it is a link or no folder."""
    if os.geteuid() != 0:
        return
    with _opened(folder, os.O_DIRECTORY) as handle:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        os.fchown(handle, -1, require_run_user())
        os.fchmod(handle, mode | stat.S_IXGRP)


def write_private(path: Path, content: bytes, *, append: bool = False) -> None:
    """Write a file in a run's folder that its owner alone may read. Raises OSError."""
    how = os.O_APPEND if append else os.O_TRUNC
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | how
    with os.fdopen(os.open(path, flags, 0o600), "wb") as stream:
        stream.write(content)


@contextmanager
def start_umask(mask: int) -> Iterator[None]:
    """What this process and its children make in the block is made without these bits. It is the
    process's, not the thread's."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[int]:
    handle = os.open(path, _FLAGS | flags)
    try:
        yield handle
    finally:
        os.close(handle)
