"""What a target with a block device at its end does with flushes: counted by the loop device below
it, before anything is measured."""

import mmap
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

from diskproof.backings.filesystem import make_file, make_filesystem
from diskproof.backings.flush_proof import WRITES, FlushProof
from diskproof.backings.loop import start_loop
from diskproof.backings.mounting import start_mount
from diskproof.backings.place import Place, start_run_dir

Serve = Callable[[str, Path, Path | None, int], AbstractContextManager[Path]]

DISK_BYTES = 32 << 20
_FILE_SYSTEM_BYTES = 96 << 20
_STEP = 64 << 10
_BLOCK = 4096
_FLUSHES = 15
"""Where the completed flushes stand among the numbers of a device's stat (Linux, block/stat)."""
# Each way with the flags that the disk is opened with, and whether an fsync follows each write.
WAYS = {
    "flushes passed on": (0, True),
    "FUA writes made durable": (os.O_DSYNC, False),
    "plain writes made durable": (0, False),
}


def prove_device_flushes(base: Place, kind: str, serve: Serve) -> FlushProof:
    """Measure one kind of store. A write counts as made durable when the device below the target
    saw a flush before the next one. Raises HostError when the target does not work."""
    if kind == "nullio":
        return FlushProof(obstacle="nothing is kept that a flush could save")
    with ExitStack() as stack:
        room = stack.enter_context(start_run_dir(Place(base.home)))
        file = make_file(room, _FILE_SYSTEM_BYTES)
        if kind != "blockio":
            make_filesystem(file, "ext4", "")
        loop = stack.enter_context(start_loop(file)).path
        source, size = loop, _FILE_SYSTEM_BYTES
        if kind != "blockio":
            # Its own commits of the journal would be counted too.
            arguments = ["-t", "ext4", "-o", "commit=300", str(loop)]
            source = stack.enter_context(start_mount(arguments, room / "mnt")) / "disk"
            size = DISK_BYTES
            with source.open("xb") as stream:
                os.posix_fallocate(stream.fileno(), 0, size)
                os.fsync(stream.fileno())
        disk = stack.enter_context(serve(kind, room, source, size))
        return FlushProof({way: _count(disk, loop, *how) for way, how in WAYS.items()})


def _count(disk: Path, below: Path, flags: int, sync: bool) -> int:
    """Writes after which the device below was flushed, of ``WRITES``."""
    handle = os.open(disk, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC | flags)
    durable = 0
    try:
        with mmap.mmap(-1, _BLOCK) as block:
            for number in range(WRITES):
                before = _flushes(below)
                os.pwrite(handle, block, number * _STEP)
                if sync:
                    os.fsync(handle)
                durable += _flushes(below) > before
    finally:
        os.close(handle)
    return durable


def _flushes(device: Path) -> int:
    return int(Path("/sys/block", device.name, "stat").read_text().split()[_FLUSHES])
