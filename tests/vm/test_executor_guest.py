"""One cell in a real guest through the executor.

Requires the built guest (``diskproof guest build``), qemu-system-x86_64, qemu-img, the sampler.
"""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from diskproof.process.start import run
from support.running import (
    artefacts,
    execute,
    has_written,
    make_job_spec,
    make_spec,
    mounted,
    under_load,
)

GUEST = {"frontend": "guest", "format": "qcow2", "cache": "none", "bus": "virtio-blk"}


def test_a_guest_cell_is_made_proved_and_measured(tmp_path: Path) -> None:
    record = execute(tmp_path / "images", make_spec("mixed-70-30"), **GUEST)
    assert record.failure is None
    assert [check.name for check in record.checks if not check.ok] == []
    names = {check.name for check in record.checks}
    assert {"accel", "guest: size", "page cache", "mixed-70-30: queue depth"} <= names
    kept = artefacts(record)
    assert {"fio.json", "fio.job", "qemu.argv.json", "console.log", "audit.json"} <= kept.keys()
    assert json.loads(kept["fio.json"])["jobs"][0]["jobname"] == "mixed-70-30"
    fio = {each.name for each in record.series if each.source == "fio"}
    assert fio == {"read_iops", "write_iops"}
    host = next(each for each in record.series if each.source == "host")
    assert host.times[0] < 0 < host.times[-1]


def test_a_users_job_goes_through_the_guests_page_cache_if_it_wants(tmp_path: Path) -> None:
    spec = make_job_spec(tmp_path, "[app]\nrw=randwrite\nbs=4k\ndirect=0\nioengine=psync\n")
    record = execute(tmp_path / "images", spec, **GUEST)
    assert record.failure is None
    assert [metric.name for metric in record.metrics if metric.primary] == ["iops"]


def test_a_qemu_that_dies_under_load_is_told_with_console_and_log(tmp_path: Path) -> None:
    images = tmp_path / "images"

    def kill(qemu: psutil.Process) -> None:
        qemu.send_signal(signal.SIGKILL)

    with under_load("qemu-system-x86_64", kill, lambda _: has_written(images, 4 << 20)):
        record = execute(images, make_spec("seq-write", runtime="60s"), **GUEST)
    assert record.failure is not None
    assert record.failure.kind == "qemu"
    assert "killed by signal 9" in record.failure.what
    assert {"console", "qemu.log", "qemu.argv.json", "fio.job"} <= artefacts(record).keys()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
@pytest.mark.parametrize("bus", ["virtio-blk", "nvme"])
def test_a_full_disk_does_not_stop_the_guest_for_ever(
    tmp_path: Path, bus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from diskproof.measure import run as executor

    folder, real = tmp_path / "small", executor.drop_cache

    def drop(path: Path) -> object:
        run(["fallocate", "-l", "140M", str(folder / "other")], timeout=30)
        return real(path)

    monkeypatch.setattr(executor, "drop_cache", drop)
    levels = {**GUEST, "format": "raw", "cache": "writeback", "bus": bus}
    with mounted(folder, "-t", "tmpfs", "-o", "size=160M", "diskproof-test"):
        record = execute(folder / "images", make_spec("seq-write"), **levels)
    assert record.failure is not None
    assert record.failure.kind == "space"
    assert "is full" in record.failure.why
    assert {"fio.json", "qemu.log"} <= artefacts(record).keys()
