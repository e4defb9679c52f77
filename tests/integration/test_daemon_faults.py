"""A storage daemon that ends under load. Requires qemu-storage-daemon, qemu-img, fio (nbd)."""

import os
import signal
import threading
from pathlib import Path

import pytest

from diskproof.errors import RunFailure
from support.disks import run_fio, start_drive


def test_killed_under_load_is_named_as_the_cause(tmp_path: Path) -> None:
    with start_drive(tmp_path / "images", frontend="daemon", format="raw") as drive:
        kill = threading.Timer(2.0, os.kill, (drive.facts.pids[0], signal.SIGKILL))
        kill.start()
        with pytest.raises(RunFailure, match="killed by signal 9") as caught:
            run_fio(drive, time_based="1", runtime="60")
        assert caught.value.kind == "qemu"
        assert {"stdout", "stderr"} < dict(caught.value.evidence).keys()
    assert list(tmp_path.iterdir()) == []


def test_clients_come_and_go(tmp_path: Path) -> None:
    with start_drive(tmp_path / "images", frontend="daemon", format="qcow2") as drive:
        assert [run_fio(drive).returncode for _ in range(3)] == [0, 0, 0]


def test_an_iothread_works_or_the_abort_of_qemu_is_the_stored_reason(tmp_path: Path) -> None:
    """QEMU 7.2.22 aborts when a client leaves an export that has an iothread."""
    levels = {"format": "raw", "iothread": "on"}
    with start_drive(tmp_path / "images", frontend="daemon", **levels) as drive:
        assert [check.effective for check in drive.read_back() if check.name == "iothread"] == [
            "on"
        ]
        try:
            assert run_fio(drive).returncode == 0
        except RunFailure as failure:
            assert failure.kind == "qemu"
            assert "nbd_blockdev_client_closed" in failure.why
