"""What each cache mode does with writes and flushes, seen in the daemon's system calls.

Requires qemu-storage-daemon, fio with its nbd engine, strace and the right to trace. This is the
evidence for write-through of an export, which no QEMU reports.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.drive import Drive, RunContext
from diskproof.frontends import load_frontend
from diskproof.process.run_user import require_run_user
from diskproof.process.start import find_tool
from diskproof.qemu.images import create_image, ensure_fill_source, fill_image
from diskproof.records import Cell, WorkloadSpec
from support.running import start_traced

_TOOLS = ("qemu-storage-daemon", "qemu-img", "fio", "strace")
_MISSING = [tool for tool in _TOOLS if find_tool(tool) is None]
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=f"needs {_MISSING}")

SIZE = 8 << 20
WRITES = 40
DEADLINE = 30.0
_CALLS = "fdatasync,fsync,sync_file_range,pwrite64,pwritev,pwritev2,io_submit,io_uring_enter"

# Cache mode, and flushes that reach the host for WRITES writes: without a client's flush, and with
# one after each write.
MODES = [
    ("none", 0, WRITES),
    ("writeback", 0, WRITES),
    ("writethrough", WRITES, WRITES),
    ("directsync", WRITES, WRITES),
    ("unsafe", 0, 0),
]


@contextmanager
def daemon_drive(folder: Path, **levels: str) -> Iterator[Drive]:
    """A drive on a filled image: no write allocates, so no flush orders metadata."""
    cell = Cell(tuple(sorted(levels.items())), WorkloadSpec("w", "fio"))
    if os.geteuid() == 0:
        os.chown(folder, require_run_user(), require_run_user())
    image = create_image(folder, cell, SIZE)
    fill_image(image, ensure_fill_source(folder, SIZE))
    with load_frontend("daemon").start(RunContext(cell, image, folder, "tcg")) as drive:
        yield drive


def write_blocks(drive: Drive, fsync: int) -> None:
    """fio writes; ``fsync`` is writes per flush, 0 for none."""
    options = {
        "rw": "write",
        "bs": "4k",
        "size": f"{4 * WRITES}k",
        "fsync": str(fsync),
        "end_fsync": str(fsync),
        "thread": "1",
    }
    job = [f"--{name}={value}" for name, value in (options | dict(drive.facts.fio)).items()]
    done = drive.execute(["fio", "--name=writes", *job], timeout=DEADLINE)
    assert done.returncode == 0, done.stderr


def count_calls(drive: Drive, folder: Path, load: Callable[[], None]) -> Counter[str]:
    """System calls of the daemon while ``load`` runs."""
    with start_traced(drive.facts.pids[0], folder, _CALLS) as log:
        load()
    return Counter(re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.MULTILINE))


@pytest.mark.parametrize("form", ["raw", "qcow2"])
@pytest.mark.parametrize(("cache", "alone", "asked"), MODES, ids=[mode[0] for mode in MODES])
def test_flushes_that_reach_the_host(
    tmp_path: Path, form: str, cache: str, alone: int, asked: int
) -> None:
    with daemon_drive(tmp_path, format=form, cache=cache, aio="threads") as drive:
        for fsync, expected in ((0, alone), (1, asked)):
            calls = count_calls(drive, tmp_path, lambda fsync=fsync: write_blocks(drive, fsync))
            written = calls["pwrite64"] + calls["pwritev"] + calls["pwritev2"]
            assert written == WRITES
            assert calls["fdatasync"] + calls["fsync"] == expected


@pytest.mark.parametrize(
    ("cache", "alone"), [("writeback", 0), ("writethrough", WRITES)], ids=["back", "through"]
)
def test_flushes_through_io_uring(tmp_path: Path, cache: str, alone: int) -> None:
    """Flushes go through the ring as well: each is one more call to enter it."""
    with daemon_drive(tmp_path, format="raw", cache=cache, aio="io_uring") as drive:
        calls = count_calls(drive, tmp_path, lambda: write_blocks(drive, 0))
        assert calls["io_uring_enter"] == WRITES + alone
        assert calls["fdatasync"] + calls["pwrite64"] + calls["pwritev"] == 0


@pytest.mark.parametrize(("cache", "alone"), [("none", 0), ("directsync", WRITES)])
def test_flushes_through_linux_aio(tmp_path: Path, cache: str, alone: int) -> None:
    with daemon_drive(tmp_path, format="raw", cache=cache, aio="native") as drive:
        calls = count_calls(drive, tmp_path, lambda: write_blocks(drive, 0))
        assert calls["io_submit"] == WRITES
        assert calls["fdatasync"] == alone
