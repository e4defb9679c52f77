"""Write-through of a guest's disk, seen in QEMU's system calls on every bus.

QEMU's NVMe controller tells the guest of a volatile write cache whatever it is asked for, so the
guest's view proves nothing there; the host's flushes do. Requires the built guest, strace and the
right to trace.
"""

import os
import re
import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.process.start import find_tool, start_process
from diskproof.qemu.disk import BUSES
from support.disks import read_ios, run_fio, start_drive

pytestmark = pytest.mark.skipif(find_tool("strace") is None, reason="needs strace")

DEADLINE = 30.0


@contextmanager
def traced(pid: int, folder: Path) -> Iterator[Path]:
    """Writes and flushes of a process, for the length of the block, in the file that this gives."""
    told, log = folder / "strace.err", folder / "strace.out"
    os.mkfifo(told)
    ready = os.open(told, os.O_RDWR)
    calls = "trace=fdatasync,fsync,pwrite64,pwritev,pwritev2"
    try:
        with start_process(
            ["strace", "-f", "-e", calls, "-o", str(log), "-p", str(pid)], name="strace", log=told
        ):
            text = b""
            while b"attached" not in text:
                assert select.select([ready], [], [], DEADLINE)[0], "strace says nothing"
                text += os.read(ready, 4096)
                if b"Operation not permitted" in text:
                    pytest.skip("may not trace processes here")
            yield log
    finally:
        os.close(ready)


@pytest.mark.parametrize(
    ("bus", "cache", "flushed"),
    [*((bus, "directsync", True) for bus in BUSES), ("nvme", "none", False)],
)
def test_each_write_is_flushed_when_asked_and_only_then(
    tmp_path: Path, bus: str, cache: str, flushed: bool
) -> None:
    levels = {"format": "raw", "preallocation": "full", "cache": cache, "bus": bus}
    with start_drive(tmp_path / "images", frontend="guest", **levels) as drive:
        with traced(drive.facts.pids[0], tmp_path) as log:
            done = run_fio(drive)
        calls = re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE)
        writes = read_ios(done, "write")
    assert sum(call.startswith("pwrite") for call in calls) == writes == 64
    assert sum("sync" in call for call in calls) == (writes if flushed else 0)
