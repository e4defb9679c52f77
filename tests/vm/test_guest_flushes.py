"""Write-through of a guest's disk, seen in QEMU's system calls on every bus.

QEMU's NVMe controller tells the guest of a volatile write cache whatever it is asked for, so the
guest's view proves nothing there; the host's flushes do. Requires the built guest, strace and the
right to trace.
"""

import re
from pathlib import Path

import pytest

from diskproof.process.start import find_tool
from diskproof.qemu.disk import BUSES
from support.disks import read_ios, run_fio, start_drive
from support.running import start_traced

pytestmark = pytest.mark.skipif(find_tool("strace") is None, reason="needs strace")

CALLS = "fdatasync,fsync,pwrite64,pwritev,pwritev2"


@pytest.mark.parametrize(
    ("bus", "cache", "flushed"),
    [*((bus, "directsync", True) for bus in BUSES), ("nvme", "none", False)],
)
def test_each_write_is_flushed_when_asked_and_only_then(
    tmp_path: Path, bus: str, cache: str, flushed: bool
) -> None:
    levels = {"format": "raw", "preallocation": "full", "cache": cache, "bus": bus}
    with start_drive(tmp_path / "images", frontend="guest", **levels) as drive:
        with start_traced(drive.facts.pids[0], tmp_path, CALLS) as log:
            done = run_fio(drive)
        calls = re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE)
        writes = read_ios(done, "write")
    assert sum(call.startswith("pwrite") for call in calls) == writes == 64
    assert sum("sync" in call for call in calls) == (writes if flushed else 0)
