"""A private folder for one run, or for what a backing is made of: locked while its owner lives.

The janitor removes those whose lock nobody holds any more.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from diskproof.backings.place import Place, explained
from diskproof.errors import HostError
from diskproof.proc import CONFINED_UID

RUN_PREFIX = "diskproof-run-"
LOCK_NAME = "lock"
NODE_NAME = "disk.device"
"""The device of a place as a run sees it: a node of its own, which QEMU's user may open."""


@contextmanager
def start_run_dir(place: Place) -> Iterator[Path]:
    """Ours, and QEMU's user may enter it; its lock is held for its life. Raises HostError."""
    with explained(place.folder):
        path, lock = _new_run_dir(place.folder)
    try:
        if place.device:
            if place.renew:
                place.renew()
            with explained(place.folder):
                _make_node(path / NODE_NAME, place.device)
        yield path
    finally:
        _remove_run_dir(path)
        os.close(lock)


def find_device(folder: Path) -> Path | None:
    """The device that is the disk under test of a run, or None where that is a file."""
    node = folder / NODE_NAME
    return node if node.is_block_device() else None


def _make_node(path: Path, device: Path) -> None:
    if os.statvfs(path.parent).f_flag & os.ST_NODEV:
        raise HostError(
            f"a device cannot be opened in {path.parent.parent}",
            "its file system is mounted with nodev",
            "set another directory below the device in the study's [backings.NAME]",
        )
    os.mknod(path, stat.S_IFBLK | 0o600, device.stat().st_rdev)
    os.chown(path, CONFINED_UID, CONFINED_UID)


def _remove_run_dir(path: Path) -> None:
    """The lock goes last: with it goes what tells the janitor that the rest is ours."""
    with suppress(OSError):
        for entry in path.iterdir():
            if entry.name == LOCK_NAME:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
        if {entry.name for entry in path.iterdir()} <= {LOCK_NAME}:
            shutil.rmtree(path, ignore_errors=True)


def _new_run_dir(folder: Path) -> tuple[Path, int]:
    """The run's folder and its lock. The backing's own lock keeps the janitor out meanwhile."""
    backing = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with ExitStack() as undo:
        try:
            fcntl.flock(backing, fcntl.LOCK_SH)
            path = Path(tempfile.mkdtemp(prefix=RUN_PREFIX, dir=folder))
            undo.callback(_remove_run_dir, path)
            lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(backing)
        if os.geteuid() == 0:
            # QEMU may enter and open its image, no more. The folder stays ours: the janitor leaves
            # others' alone, and nobody else can put a link where we write.
            os.chown(path, -1, CONFINED_UID)
            path.chmod(0o710)
        undo.pop_all()
    return path, lock
