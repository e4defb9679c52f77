"""A Debian that boots from the disk under test, in a real QEMU.

Requires the built guest, qemu-system-x86_64, qemu-img, mmdebstrap (once), debugfs.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.drive import DiskImage, RunContext
from diskproof.frontends import boots
from diskproof.guest.debian.system import build_system
from diskproof.guest.ours.build import GuestFiles
from diskproof.process.start import run
from diskproof.qemu import images
from diskproof.qemu.images import clone_image
from diskproof.qemu.machine import GuestMachine
from diskproof.records import Cell, WorkloadSpec
from diskproof.store import open_store
from diskproof.study.boots import block_bytes, disk_bytes
from diskproof.study.load import parse_study
from support.commands import diskproof
from support.running import artefacts, execute

pytestmark = pytest.mark.long

STUDY = Path(__file__).parents[2] / "studies" / "boots-small.toml"
SCALE = 1 / 1024
GUEST = {"frontend": "guest", "bus": "virtio-blk", "accel": "tcg", "memory": "256M"}


@pytest.fixture(scope="session")
def base(guest_files: GuestFiles) -> None:
    build_system(make_spec())


def make_spec(reads: int = 0) -> WorkloadSpec:
    keys = f'scale = "1/1024"\nreads = {reads}\nwrites = 0\ncold = "on"\n'
    protocol = f'[protocol]\nsize = "{disk_bytes(SCALE)}"\n'
    return parse_study(f"[workloads.boots]\n{keys}{protocol}").workloads[0]


@pytest.fixture
def spoil(base: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have debugfs change every clone before it boots."""

    def spoil_clones(commands: str) -> None:
        def clone(*given: object, **named: object) -> DiskImage:
            image: DiskImage = clone_image(*given, **named)  # type: ignore[arg-type]
            script = image.path.with_name("debugfs-commands")
            script.write_text(commands)
            run(["debugfs", "-w", "-f", str(script), str(image.path)], timeout=30)
            return image

        monkeypatch.setattr(images, "clone_image", clone)

    return spoil_clones


def test_the_small_study_runs_and_tells_its_boots(base: None, tmp_path: Path) -> None:
    done = diskproof("run", STUDY, "--store", "boots.sqlite", cwd=tmp_path, timeout=900, fresh=True)
    assert done.returncode == 0, done.error_text
    with open_store(f"sqlite:///{tmp_path}/boots.sqlite") as store:
        (study,) = store.studies()
        (run,) = store.runs(study.id)
        details = store.run(run.id)
    series = {each.name: each.values for each in details.series}
    figures = {metric.name: metric.value for metric in details.metrics}
    writes = series["write_boot_seconds"]
    assert len(writes) == 2 and figures["write_seconds"] == sum(writes) / 2
    assert series["read_boot_seconds"] == (figures["read_seconds"],)
    assert 0 < figures["write_zeroes_seconds"] < figures["write_seconds"]
    kept = {artefact.name: artefact.content for artefact in details.artefacts}
    told = json.loads(kept["boots.json"])
    assert [boot["report"]["boots"] for boot in told] == [2, 3, 4]
    assert told[1]["report"]["written_bytes"] >= 6 * block_bytes(1 / 512)
    names = {check.name for check in details.checks}
    assert names >= {"guest: write_cache", "write-through", "O_DIRECT", "walked", "unpacked"}
    assert names >= {"image preallocation", "page cache"}
    assert kept["console.log"].count(b"reboot: Power down") == 4
    said = diskproof("stability", "--store", "boots.sqlite", cwd=tmp_path, fresh=True)
    assert "first write boot" in said.text
    assert list(tmp_path.glob("diskproof-images/*")) == []


def test_a_clone_without_an_init_panics_and_that_is_stored(
    tmp_path: Path, spoil: Callable[[str], None]
) -> None:
    spoil("rm /sbin/init\n")
    record = execute(tmp_path / "images", make_spec(), format="raw", **GUEST)
    assert record.failure is not None and record.failure.kind == "guest"
    assert "panicked" in record.failure.what
    assert b"Kernel panic" in artefacts(record)["console"]


def test_a_guest_that_never_switches_itself_off_is_stored_with_its_console(
    tmp_path: Path, spoil: Callable[[str], None]
) -> None:
    spoil("rm /usr/local/sbin/diskproof-boot\nsymlink /usr/local/sbin/diskproof-boot /bin/cat\n")
    record = execute(tmp_path / "images", make_spec(), timeout=60, format="raw", **GUEST)
    assert record.failure is not None
    assert (record.failure.kind, record.failure.what) == ("guest", "the guest was not off in time")
    assert artefacts(record).keys() >= {"console", "qemu.log"}


def test_a_step_that_fails_in_the_guest_fails_the_run(
    tmp_path: Path, spoil: Callable[[str], None]
) -> None:
    spoil("rm /srv/payload.tar\n")
    record = execute(tmp_path / "images", make_spec(reads=1), format="raw", **GUEST)
    assert record.failure is not None and record.failure.kind == "workload"


def test_a_setting_that_is_not_in_force_fails_the_run(
    tmp_path: Path, base: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = boots.guest_machine

    def other(context: RunContext, parameters: tuple[str, ...]) -> GuestMachine:
        wrong = dict(context.cell.levels) | {"cache": "unsafe"}
        cell = Cell(tuple(sorted(wrong.items())), context.cell.workload)
        return real(replace(context, cell=cell), parameters)

    monkeypatch.setattr(boots, "guest_machine", other)
    record = execute(tmp_path / "images", make_spec(), format="raw", cache="writeback", **GUEST)
    assert record.failure is not None and record.failure.kind == "mismatch"
    assert "no-flush" in record.failure.what
