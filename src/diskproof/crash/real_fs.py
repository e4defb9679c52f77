"""A program on a real file system of this host's kernel: one on a loop device, whose file is
recorded. So the states are those of the disk, and the kernel recovers each before it is checked."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.backings.filesystem import make_filesystem
from diskproof.backings.loop import find_loops
from diskproof.backings.mounted_disk import Unmountable, start_mounted
from diskproof.backings.mounting import enter_private_mounts
from diskproof.crash.record import copy_folder
from diskproof.errors import HostError, RunFailure, UsageError
from diskproof.lab.deadline import Deadline
from diskproof.process.native import require_native
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import require_tool, run
from diskproof.recording.folder import Recording, start_recording
from diskproof.records import Cell
from diskproof.study.crash import BESIDE, FILE_SYSTEM_BYTES, GUEST_FILE_SYSTEM_BYTES

DISK = "disk.raw"
"""The recorded file, which a state is of."""
SECTOR = 4096
"""What a disk is taken to write whole. ext4's first superblock, of 1 KiB, and btrfs's, of 4 KiB,
have a checksum: torn between sectors of 512 bytes, no kernel mounts them, whatever runs there."""
FOLDER = "data"
"""In the file system: there the program runs, and its check."""
NEIGHBOUR = "neighbour"
"""Somebody else's file there: its flushes commit what the program has not flushed."""
_LEAST = 512 << 20
"""mkfs chooses for smaller disks what nobody has on larger ones (blocks of 1 KiB on ext4)."""
_TIMES = 4
"""A program may make so much of what it finds."""
_DETACH_SECONDS = 20.0
_TWINS = Path("/sys/fs/btrfs/features/temp_fsid")
"""There since Linux 6.7, where disks of btrfs with the same number are mounted side by side."""
_AT_ONCE = 3
"""States for each core: to mount one and to unmount it is to wait for the kernel, mostly."""
_OPTIONS = re.compile(r"[a-z0-9_=.:-]+(,[a-z0-9_=.:-]+)*|", re.ASCII)
# Its own processes, their ends, and mounts: whatever a program leaves goes with the first of them.
_ALONE = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--")
_FIRST = ("/bin/sh", "-c", '"$@"; exit $?', "sh")
"""The first process of a namespace takes no signals that it does not expect: a program is none."""


@dataclass(frozen=True)
class RealFs:
    """``kind`` as mkfs has it, and mount options, by commas."""

    kind: str
    options: str

    def __str__(self) -> str:
        return ",".join(filter(None, (self.kind, self.options)))


def read_real_fs(text: str) -> RealFs:
    """``KIND[,OPTIONS]``. Raises UsageError."""
    kind, _, options = text.partition(",")
    if kind not in FILE_SYSTEM_BYTES:
        known, more = ", ".join(FILE_SYSTEM_BYTES), GUEST_FILE_SYSTEM_BYTES
        hint = f"{kind} can be had in our guest: --in-guest default" if kind in more else ""
        what = f"--on {text}: no file system that can be had here"
        raise UsageError(what, f"it is {known}", hint)
    if not _OPTIONS.fullmatch(options) or "ro" in options.split(",") or "panic" in options:
        why = "they are words with commas between them, none that forbids to write or ends the host"
        raise UsageError(f"--on {text}: no such mount options can be had", why)
    return RealFs(kind, options)


def find_real_fs(cell: Cell) -> RealFs | None:
    """Where the program of a crash cell runs; None: in a folder."""
    text = cell.level("on")
    return read_real_fs(text) if text else None


def require_root(on: RealFs) -> None:
    """Raises HostError."""
    if os.geteuid() != 0:
        why = "only root makes loop devices and mounts them"
        hint = "run it as root; without --on it runs in a folder, under the rules of POSIX"
        raise HostError(f"no program can be put on {on.kind} by this user", why, hint)


def try_real_fs(on: RealFs) -> None:
    """Make one, empty, before anything else is made. Raises HostError where this host cannot,
    UsageError where it does not take the options."""
    with start_scratch_dir(large=True) as room:
        disk = room / DISK
        _make_empty(disk, on, _LEAST)
        try:
            with start_mounted(disk, on.kind, on.options, room / "mnt"):
                pass
        except Unmountable as error:
            if not on.options:
                raise HostError(f"{on.kind} cannot be mounted here", str(error)) from None
            with start_mounted(disk, on.kind, "", room / "mnt"):
                pass
            what = f"--on {on}: {on.kind} of this kernel does not take these options"
            raise UsageError(what, f"mount: {error}", "see mount(8)") from None


def make_disk(on: RealFs, source: Path, disk: Path, room: Path, deadline: Deadline) -> None:
    """A disk with a file system, in it a copy of a folder, and a file beside it: all durable."""
    held = sum(each.lstat().st_blocks * 512 for each in (source, *source.rglob("*")))
    _make_empty(disk, on, _LEAST + _TIMES * held)
    with _mounted(on, disk, room) as folder:
        folder.mkdir()
        (folder.parent / NEIGHBOUR).touch(mode=0o400)
        copy_folder(source, folder, deadline)


def _make_empty(disk: Path, on: RealFs, size: int) -> None:
    with disk.open("xb") as stream:
        os.truncate(stream.fileno(), size)
    make_filesystem(disk, on.kind, "")


@contextmanager
def _mounted(on: RealFs, disk: Path, room: Path) -> Iterator[Path]:
    """The program's folder. Raises RunFailure, HostError."""
    try:
        with start_mounted(disk, on.kind, on.options, room / "mnt") as point:
            yield point / FOLDER
    except Unmountable as error:
        raise RunFailure("workload", f"{on} cannot be mounted", str(error)) from None


@contextmanager
def start_recording_on(
    on: RealFs | None, files: Path, room: Path
) -> Iterator[tuple[Recording, Path]]:
    """Record a folder, or the disk in it; gives where the program runs, too."""
    if on is None:
        with start_recording(files, room, callers=True) as recording:
            yield recording, recording.folder
        return
    with start_recording(files, room) as recording:
        # Killed, the recorder would unmount what it sees before it is gone. What lies on its own
        # file needs its answer for that: it would wait for itself, and sync(2) of all others too.
        enter_private_mounts(anew=True)
        try:
            with _mounted(on, recording.folder / DISK, room) as folder:
                yield recording, folder
        finally:
            is_detached = _await_detached(recording.folder)
            run(["umount", "--lazy", str(recording.folder)], timeout=60.0, check=False)
        if not is_detached:
            raise RunFailure("tool", "the file system of the program was not unmounted")


def _await_detached(folder: Path) -> bool:
    """The last of the program's processes may end a little later, and the file system with it."""
    deadline = time.monotonic() + _DETACH_SECONDS
    while find_loops(folder):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def find_threads(on: RealFs) -> int:
    """How many of its states are mounted at once."""
    is_one = on.kind == "btrfs" and not _TWINS.exists()
    return 1 if is_one else _AT_ONCE * len(os.sched_getaffinity(0))


def alone_args() -> list[str]:
    """The argv prefix of the first process of a world of its own."""
    return [require_tool("unshare", "util-linux"), *_ALONE]


def writer_args(cell: Cell) -> list[str]:
    """The argv prefix of a cell's program, in its folder. ``beside`` it the file system commits and
    writes back, as it does by itself in longer runs and with other programs on it."""
    if not cell.level(BESIDE):
        return [*alone_args(), *_FIRST]
    between = between_args(str(require_native("diskproof-writeback")), cell)
    return [*alone_args(), *_FIRST, *between]


def between_args(program: str, cell: Cell, *more: str) -> list[str]:
    """The argv prefix of a program between whose operations its file system works by itself."""
    options = ["--folder", ".", "--beside", f"../{NEIGHBOUR}"]
    return [program, *options, "--seed", cell.workload.option("seed"), *more, "--"]
