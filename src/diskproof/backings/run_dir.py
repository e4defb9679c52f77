"""A private folder for one run, or for what a backing is made of: locked while its owner lives."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from diskproof.backings.place import Place, explained
from diskproof.errors import HostError
from diskproof.process.scratch import start_locked_dir
from diskproof.process.start import CONFINED_UID

NODE_NAME = "disk.device"
"""The device of a place as a run sees it: a node of its own, which QEMU's user may open."""


@contextmanager
def start_run_dir(place: Place) -> Iterator[Path]:
    """Ours, and QEMU's user may enter it; its lock is held for its life. Raises HostError."""
    with ExitStack() as stack:
        with explained(place.folder):
            path = stack.enter_context(start_locked_dir(place.folder))
        if place.device:
            if place.renew:
                place.renew()
            with explained(place.folder):
                _make_node(path / NODE_NAME, place.device)
        yield path


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
