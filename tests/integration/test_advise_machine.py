"""A line for a machine that runs here. Requires QEMU; the machine is started and never boots."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.cli.advise_verb import find_target
from diskproof.errors import UsageError
from diskproof.process.start import run, start_process
from support.qemus import await_open

NAME = "diskproof-advised"


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Path]:
    """The disk of a QEMU that has begun: its process has opened it."""
    disk = tmp_path / "disk.qcow2"
    run(["qemu-img", "create", "-q", "-f", "qcow2", str(disk), "16M"], timeout=30)
    drive = f"file={disk},if=virtio,format=qcow2,cache=writeback"
    argv = ["qemu-system-x86_64", "-name", NAME, "-S", "-nodefaults", "-display", "none"]
    argv += ["-accel", "tcg", "-m", "64", "-monitor", "none", "-drive", drive]
    with start_process(argv, name="qemu", log=tmp_path / "log") as machine:
        await_open(machine, disk)
        yield disk


def test_the_line_is_for_the_machine_s_own_disk(image: Path) -> None:
    target = find_target("qemu", "", NAME, "")
    assert target.image == str(image) and target.machine == NAME
    other = find_target("qemu", "/other.qcow2", NAME, target.disk)
    assert other.image == "/other.qcow2"


def test_a_disk_that_the_machine_has_not_is_refused(image: Path) -> None:
    with pytest.raises(UsageError, match="has no disk scsi9"):
        find_target("qemu", "", NAME, "scsi9")


def test_a_machine_of_another_manager_is_not_taken(image: Path) -> None:
    assert find_target("proxmox", "", NAME, "scsi0").existing == ""
