"""The guest frontend: a real guest on every bus, read back, loaded with fio, killed.

Requires the built guest (``diskproof guest build``), qemu-system-x86_64, qemu-img.
"""

import dataclasses
import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from diskproof.drive import Drive
from diskproof.errors import RunFailure
from diskproof.frontends import load_frontend
from diskproof.frontends.guest import GuestDrive
from support.disks import SIZE, make_cell, read_ios, run_fio, start_context, start_drive

BUSES = ("virtio-blk", "virtio-scsi", "ide", "ahci", "nvme")


def wrong(drive: Drive) -> list[str]:
    return [check.name for check in drive.read_back() if not check.ok]


@pytest.mark.parametrize("cache", ["writeback", "directsync"])
@pytest.mark.parametrize("bus", BUSES)
def test_every_bus_with_and_without_write_through(tmp_path: Path, bus: str, cache: str) -> None:
    levels = {"format": "qcow2", "cache": cache, "bus": bus, "cluster_size": "64K"}
    with start_drive(tmp_path / "images", frontend="guest", **levels) as drive:
        assert wrong(drive) == []
        done = run_fio(drive)
        assert done.returncode == 0, done.stderr
        assert read_ios(done, "write") == 64
        assert list(done.files) == ["out.json"]
        assert wrong(drive) == []
    assert list(tmp_path.iterdir()) == []
    assert psutil.Process().children() == []


@pytest.mark.parametrize("bus", ["virtio-blk", "virtio-scsi"])
def test_iothread_processors_and_memory(tmp_path: Path, bus: str) -> None:
    levels = {"bus": bus, "iothread": "on", "vcpus": "2", "memory": "384M", "aio": "io_uring"}
    with start_drive(tmp_path / "images", frontend="guest", format="raw", **levels) as drive:
        found = {check.name: check.effective for check in drive.read_back()}
        assert wrong(drive) == []
        assert (found["vcpus"], found["memory"], found["iothread"]) == ("2", str(384 << 20), "on")
        assert run_fio(drive).returncode == 0


OTHERS = [
    ({"cache": "writethrough"}, {"write-through", "guest: write_cache"}),
    ({"cache": "none"}, {"O_DIRECT", "disk: cache.direct"}),
    ({"cache": "unsafe"}, {"disk: cache.no-flush", "file: cache.no-flush"}),
    ({"bus": "ahci"}, {"guest: driver"}),
    ({"iothread": "on"}, {"iothread"}),
]


def test_a_guest_that_runs_with_something_else_is_found_out(tmp_path: Path) -> None:
    """As if a setting had not arrived: the drive is asked about another cell than it runs."""
    given = {"frontend": "guest", "format": "raw", "cache": "writeback", "bus": "virtio-blk"}
    with start_drive(tmp_path / "images", **given) as drive:
        assert isinstance(drive, GuestDrive)
        context = drive.context
        for other, expected in OTHERS:
            drive.context = dataclasses.replace(context, cell=make_cell(**(given | other)))
            assert expected <= set(wrong(drive))


def test_files_status_and_time_of_a_command(tmp_path: Path) -> None:
    with start_drive(tmp_path / "images", frontend="guest", format="raw") as drive:
        done = drive.execute(
            ["cp", "in/a", "b"], timeout=60, files={"in/a": b"x"}, collect=["b", "c"]
        )
        assert (done.returncode, done.files) == (0, {"b": b"x"})
        assert drive.execute(["cp", "a", "b"], timeout=60).returncode == 1
        assert isinstance(drive, GuestDrive)
        run_dir = drive.context.run_dir
        assert [path.name for path in run_dir.iterdir() if path.stat().st_mode & 0o077] == []
        with pytest.raises(RunFailure) as caught:
            drive.execute(["sleep", "600"], timeout=1)
        assert caught.value.kind == "timeout"
        with pytest.raises(ValueError, match="scratch"):
            drive.execute(["true"], timeout=60, files={"../a": b""})
        assert drive.execute(["true"], timeout=60).returncode == 0
        assert drive.facts.size == SIZE


def test_a_killed_qemu_is_a_failure_with_its_artefacts(tmp_path: Path) -> None:
    cell = make_cell(frontend="guest", format="raw")
    frontend = load_frontend("guest")
    with start_context(tmp_path / "images", cell) as context:
        with pytest.raises(RunFailure, match="killed by signal 9") as caught:
            with frontend.start(context) as drive:
                os.kill(drive.facts.pids[0], signal.SIGKILL)
                run_fio(drive)
        assert caught.value.kind == "qemu"
        assert {"console", "qemu.log"} <= dict(caught.value.evidence).keys()
        kept = {artefact.name: artefact.content for artefact in frontend.artefacts(context)}
        assert kept.keys() == {"qemu.argv.json", "qemu.log", "console.log"}
        assert any("qemu-system" in part for part in json.loads(kept["qemu.argv.json"]))


def test_qemu_refuses_and_its_words_are_the_reason(tmp_path: Path) -> None:
    levels = {"format": "raw", "cache": "writeback", "aio": "native"}
    with pytest.raises(RunFailure, match="QEMU ended") as caught:
        with start_drive(tmp_path / "images", frontend="guest", **levels):
            pass
    assert caught.value.kind == "qemu"
    assert "aio=native" in caught.value.why
