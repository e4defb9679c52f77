"""A Debian with QEMU's own guest agent, as a machine of the user's.

Requires the built guest, qemu-system-x86_64, qemu-img, mmdebstrap (once), e2fsprogs.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT
from diskproof.drive import RunContext
from diskproof.errors import RunFailure
from diskproof.frontends.own_guest import FRONTEND, OwnGuestDrive
from diskproof.guest.ours.build import GuestFiles
from diskproof.guest.own.image import require_firmware
from diskproof.lab.setup import LabSetup
from diskproof.measure.run import start_lab
from diskproof.qemu.images import create_image
from diskproof.records import BackingSpec, Cell, WorkloadSpec
from diskproof.study.guest import OwnGuest
from diskproof.study.load import Study, parse_study
from support.own_guests import OwnDebian, build_own_debian, find_efi_kernel
from support.running import assert_nothing_left, plan_run

pytestmark = pytest.mark.long

LEVELS = {"frontend": "own-guest", "accel": "tcg", "format": "qcow2", "memory": "256M"}
WRITES = "dd if=/dev/zero of={disk} bs=1M count=8 conv=fsync && echo wrote 8.5"
COMMAND = """
[workloads.zero]
command = ["sh", "-c", "SCRIPT"]
pattern = 'wrote ([0-9.]+)'
figure = "written"
unit = "MiB"
[factors]
frontend = "own-guest"
[protocol]
size = "64MiB"
"""


@pytest.fixture(scope="session")
def debian(guest_files: GuestFiles) -> OwnDebian:
    return build_own_debian(guest_files)


def read_study(debian: OwnDebian, more: str = "", script: str = WRITES) -> Study:
    guest = f'[guest]\nimage = "{debian.image}"\nformat = "raw"\n{more}{debian.table}'
    return parse_study(guest + COMMAND.replace("SCRIPT", script))


@contextmanager
def started(own: OwnGuest | None, folder: Path, deadline: float = 400) -> Iterator[OwnGuestDrive]:
    levels = tuple(sorted({**LEVELS, "bus": "virtio-scsi", "cache": "none"}.items()))
    cell = Cell(levels, WorkloadSpec("none", "command"))
    image = create_image(folder, cell, 64 << 20)
    context = RunContext(cell, image, folder, "tcg", deadline, own_guest=own)
    with FRONTEND.start(context) as drive:
        assert isinstance(drive, OwnGuestDrive)
        yield drive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    made = tmp_path / "run"
    made.mkdir(mode=0o777)
    made.chmod(0o777)
    return made


def test_a_command_is_timed_and_the_image_stays_as_it_was(
    debian: OwnDebian, tmp_path: Path
) -> None:
    before = hashlib.sha256(debian.image.read_bytes()).digest()
    study, images = read_study(debian), tmp_path / "images"
    backing = BackingSpec("here", "directory", (("path", str(images)),), make=True)
    setup = LabSetup("study", "host", {"here": backing}, NO_CONSENT, "tcg", 600, study.guest)
    with start_lab(setup) as executor:
        record = executor.execute(plan_run(study.workloads[0], **LEVELS, cache="writeback"))
    assert record.failure is None, record.failure
    figures = {metric.name: metric for metric in record.metrics}
    assert figures["written"].value == 8.5 and figures["written"].primary
    assert 0 < figures["seconds"].value < 60
    checks = {check.name: check for check in record.checks}
    assert checks["guest: size"].effective == str(64 << 20)
    assert checks["guest: write_cache"].effective == "write back"
    assert checks["files of others"].ok and checks["guest agent"].ok
    assert hashlib.sha256(debian.image.read_bytes()).digest() == before
    assert_nothing_left(images)


def test_a_machine_with_uefi(debian: OwnDebian, guest_files: GuestFiles, tmp_path: Path) -> None:
    """Its firmware has started the kernel, and the variables it wrote are the run's own."""
    variables = read_firmware()
    asked = "firmware = 'uefi'\nmachine = 'q35'\n"
    # The guests' own kernel is unpacked: no firmware starts that.
    table = debian.table.replace(str(guest_files.kernel), str(find_efi_kernel(guest_files)))
    debian = replace(debian, table=table.replace("400s", "600s"))
    study = read_study(debian, asked, "test -d /sys/firmware/efi && echo wrote 1")
    backing = BackingSpec("here", "directory", (("path", str(tmp_path / "images")),), make=True)
    setup = LabSetup("study", "host", {"here": backing}, NO_CONSENT, "tcg", 400, study.guest)
    with start_lab(setup) as executor:
        record = executor.execute(plan_run(study.workloads[0], **LEVELS, cache="writeback"))
    assert record.failure is None, record.failure
    assert {metric.name: metric.value for metric in record.metrics}["written"] == 1
    assert read_firmware() == variables
    assert_nothing_left(tmp_path / "images")


def read_firmware() -> list[bytes]:
    files = require_firmware()
    return [file.read_bytes() for file in files]


def test_commands_that_fail_and_an_agent_that_stops(debian: OwnDebian, folder: Path) -> None:
    with pytest.raises(RunFailure) as caught, started(read_study(debian).guest, folder) as drive:
        assert all(check.ok for check in drive.read_back())
        done = drive.execute(["cat", "in"], timeout=60, files={"in": b"x" * 70_000})
        assert done.stdout == b"x" * 70_000
        brought = drive.execute(["cp", "/proc/version", "out"], timeout=60, collect=["out", "no"])
        assert brought.files.keys() == {"out"} and brought.files["out"].startswith(b"Linux")
        assert drive.execute(["no-such-program"], timeout=60).returncode == 127
        killed = drive.execute(["sh", "-c", "kill -9 $$"], timeout=60)
        assert killed.returncode == -9
        with pytest.raises(RunFailure, match="printed too much"):
            drive.execute(["head", "-c", "17000000", "/dev/zero"], timeout=120)
        with pytest.raises(RunFailure, match="did not end in the guest") as slow:
            drive.execute(["sleep", "1000"], timeout=1)
        assert slow.value.kind == "timeout"
        drive.execute(["sh", "-c", "kill -9 $(pidof qemu-ga)"], timeout=60)
    assert caught.value.what == "the guest agent stopped"
    assert "console" in dict(caught.value.evidence)


def test_a_guest_that_reboots_is_no_measurement(debian: OwnDebian, folder: Path) -> None:
    with pytest.raises(RunFailure) as caught, started(read_study(debian).guest, folder) as drive:
        reboot = "echo 1 > /proc/sys/kernel/sysrq; echo b > /proc/sysrq-trigger"
        drive.execute(["sh", "-c", reboot], timeout=60)
    assert caught.value.what == "the guest rebooted"


BOOTED = 40.0
"""Seconds after which the guest's kernel has mounted its root, also beside other work."""


def test_a_guest_without_an_agent_says_what_to_install(debian: OwnDebian, folder: Path) -> None:
    own = read_study(debian).guest
    assert own
    talking = own.append.replace(" quiet", "")
    silent = replace(own, append=talking + " no-agent")
    with pytest.raises(RunFailure) as caught, started(silent, folder, BOOTED):
        pass
    assert caught.value.what == "no QEMU guest agent answered"
    assert "end of its console:\n" in caught.value.why
    assert re.search(r"^\[ *\d+\.\d+\] ", caught.value.why, re.M)  # the kernel's have their time
    assert "install qemu-guest-agent" in caught.value.hint
