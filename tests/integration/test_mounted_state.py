"""The check that mounts a state of a disk, asked by itself.

Requires root, loop devices and e2fsprogs.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from diskproof.backings.loop import find_loops
from diskproof.crash.real_fs import alone_args
from diskproof.process.start import Completed, find_tool, run

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not find_tool("mkfs.ext4"), reason="needs root and e2fsprogs"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Whatever happens in it, no loop device stays."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    assert list(find_loops(tmp_path)) == []


def ask(folder: Path, disk: bytes, *before: str, check: Sequence[str] = ("true",)) -> Completed:
    """One question to the check that stays, about a disk."""
    (folder / "state").mkdir()
    (folder / "state" / "disk.raw").write_bytes(disk)
    module = ["-m", "diskproof.crash.writers.mounted_state", "ext4", "", *check]
    argv = [*alone_args(), *before, sys.executable, *module]
    question = f"{folder}/state\t/dev/null\n".encode()
    return run(argv, stdin=question, cwd=folder, timeout=60, check=False)


def test_a_disk_without_a_file_system_is_corrupt(folder: Path) -> None:
    done = ask(folder, bytes(1 << 20))
    assert (done.returncode, done.text) == (0, "2 it cannot be mounted: Invalid argument\n")


def test_a_state_gives_no_rights_and_ends_no_host(folder: Path) -> None:
    """Neither set-ID bits nor devices, and no panic though the disk asks for it."""
    disk = folder / "disk"
    disk.write_bytes(b"")
    os.truncate(disk, 64 << 20)
    run(["mkfs.ext4", "-q", "-F", str(disk)], timeout=60)
    run(["tune2fs", "-e", "panic", str(disk)], timeout=60)
    run(["debugfs", "-w", "-R", "mkdir data", str(disk)], timeout=60)
    done = ask(folder, disk.read_bytes(), check=("sh", "-c", "grep /mounted- /proc/mounts; exit 2"))
    code, _, point, kind, options, *_ = done.text.split()
    assert (code, kind) == ("2", "ext4") and "/mounted-" in point
    assert {"nosuid", "nodev", "errors=continue"} <= set(options.split(",")), done


def test_a_host_that_does_not_let_us_mount_is_no_verdict(folder: Path) -> None:
    done = ask(folder, bytes(1 << 20), "setpriv", "--bounding-set=-sys_admin", "--")
    assert (done.returncode, done.text) == (3, "") and "not permitted" in done.error_text


def test_it_is_the_first_of_its_processes_or_refuses(folder: Path) -> None:
    argv = [sys.executable, "-m", "diskproof.crash.writers.mounted_state", "ext4", "", "true"]
    done = run(argv, timeout=60, cwd=folder, check=False)
    assert done.returncode == 3 and "namespace of processes" in done.error_text
