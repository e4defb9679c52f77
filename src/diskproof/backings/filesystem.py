"""A file system made for the study, on a loop device or on the block device of another backing."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from diskproof.backings.device import wipe
from diskproof.backings.mounting import start_mount
from diskproof.backings.place import Place, choose_size, probe_direct, start_run_dir
from diskproof.errors import HostError, RunFailure
from diskproof.process.start import require_tool, run
from diskproof.records import BackingSpec
from diskproof.units import MIB

MKFS_SECONDS = 600.0
# Quiet, over whatever is there, and with nothing left to be written once a run is on.
_EXT = ("-q", "-F", "-E", "lazy_itable_init=0")
_MKFS = {
    "ext2": _EXT,
    "ext3": _EXT,
    "ext4": ("-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
    "xfs": ("-q", "-f"),
    "btrfs": ("-q", "-f"),
    "jfs": ("-q",),
    "f2fs": ("-q", "-f"),
}
_PACKAGES = {
    **dict.fromkeys(("ext2", "ext3", "ext4"), "e2fsprogs"),
    "xfs": "xfsprogs",
    "btrfs": "btrfs-progs",
    "jfs": "jfsutils",
    "f2fs": "f2fs-tools",
}


class FilesystemBacking:
    """``kind = "filesystem"``: ``fs``, ``size``, ``mkfs`` and ``mount`` options."""

    @contextmanager
    def start(self, spec: BackingSpec, base: Place | None) -> Iterator[Place]:
        assert base
        with ExitStack() as stack:
            room = stack.enter_context(start_run_dir(base))
            if base.device:
                source, where = base.device, base.name or str(base.device)
                options, below = [], base.below
                stack.callback(_leave_empty, source)
            else:
                source = make_file(room, choose_size(spec, base, lambda size: size, MIB))
                where, options, below = "a loop device", ["loop"], (source,)
            make_filesystem(source, spec.option("fs"), spec.option("mkfs"))
            options += [spec.option("mount")] if spec.option("mount") else []
            arguments = ["-t", spec.option("fs"), *(["-o", ",".join(options)] if options else [])]
            point = stack.enter_context(start_mount([*arguments, str(source)], room / "mnt"))
            if not base.device:
                where += _bypass_cache(base.folder, point)
            name = f"{spec.option('fs')} on {where} ({read_mount_options(point)})"
            free = base.free_bytes()
            yield Place(point, name=name, below=below, base_free=free, lowest=base.home)


BACKING = FilesystemBacking()


def _leave_empty(device: Path) -> None:
    """The device is as empty as it was found: the next use of it is not refused."""
    if left := wipe(device):
        raise RunFailure("tool", f"the file system on {device} could not be removed", left)


def make_file(folder: Path, size: int) -> Path:
    """A sparse file for a loop device."""
    path = folder / "backing.img"
    with path.open("xb") as stream:
        os.truncate(stream.fileno(), size)
    return path


def make_filesystem(target: Path, kind: str, options: str) -> None:
    """Raises HostError with the words of mkfs."""
    mkfs = require_tool(f"mkfs.{kind}", _PACKAGES.get(kind, ""))
    argv = [mkfs, *_MKFS.get(kind, ()), *options.split(), str(target)]
    done = run(argv, timeout=MKFS_SECONDS, check=False)
    if done.returncode != 0:
        raise HostError(f"mkfs.{kind} failed", "\n".join(done.error_text.splitlines()[-5:]))


def read_mount_options(point: Path) -> str:
    """The options in force, as the kernel tells them."""
    argv = ["findmnt", "--noheadings", "--output", "OPTIONS", "--mountpoint", str(point)]
    return run(argv, timeout=10).text.strip()


def _bypass_cache(folder: Path, point: Path) -> str:
    """Have the loop device read and write its file around the page cache: what is written there
    would else be kept twice. Says what came of it."""
    if not probe_direct(folder)[0]:
        return " through the page cache"
    argv = ["findmnt", "--noheadings", "--output", "SOURCE", "--mountpoint", str(point)]
    device = run(argv, timeout=10).text.strip()
    done = run(["losetup", "--direct-io=on", device], timeout=10, check=False)
    return " with direct I/O" if done.returncode == 0 else " through the page cache"
