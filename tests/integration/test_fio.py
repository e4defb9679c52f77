"""Every preset and users' jobs with real fio. Requires fio (nbd), qemu-storage-daemon, qemu-img."""

import json
from pathlib import Path

import pytest

from diskproof.process.start import find_tool
from diskproof.records import RunRecord
from diskproof.study.presets import PRESETS, Preset
from support.running import artefacts, execute, make_job_spec, make_spec

_MISSING = [tool for tool in ("qemu-storage-daemon", "qemu-img", "fio") if not find_tool(tool)]
pytestmark = [pytest.mark.skipif(bool(_MISSING), reason=f"needs {_MISSING}"), pytest.mark.long]

NAMES = {
    "read": {"read"},
    "randread": {"read"},
    "write": {"write"},
    "randwrite": {"write"},
    "randrw": {"read", "write"},
}


def values(record: RunRecord) -> dict[str, float]:
    return {metric.name: metric.value for metric in record.metrics}


def points(record: RunRecord) -> dict[str, int]:
    return {each.name: len(each.times) for each in record.series if each.source == "fio"}


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_every_preset_measures_what_it_says(tmp_path: Path, preset: Preset) -> None:
    levels = {"frontend": "daemon", "format": "qcow2", "cache": "writeback", "aio": "threads"}
    record = execute(tmp_path / "images", make_spec(preset.name, runtime="3s"), **levels)
    assert record.failure is None
    found = values(record)
    (primary,) = (metric for metric in record.metrics if metric.primary)
    assert primary.name == preset.primary
    assert primary.value > 0
    assert found["latency_p50"] <= found["latency_p99"] <= found["latency_p99.9"]
    written = NAMES[preset.rw]
    flushed = {"flush"} if preset.fsync else set()
    assert {each.name for each in record.histograms} == written | flushed
    assert ("flush_p99" in found) is bool(preset.fsync)
    assert ("drain_seconds" in found) is ("write" in written)
    rates = {"iops"} if len(written) == 1 else {"read_iops", "write_iops"}
    assert points(record).keys() == rates
    assert min(points(record).values()) >= 2


def test_the_answer_is_kept_whole_and_the_figures_are_its_own(tmp_path: Path) -> None:
    record = execute(tmp_path / "images", make_spec("sync-write-4k"), frontend="host")
    kept = artefacts(record)
    (job,) = json.loads(kept["fio.json"])["jobs"]
    assert job["write"]["iops"] == pytest.approx(values(record)["iops"])
    counted = {each.name: sum(each.counts) for each in record.histograms}
    assert counted["write"] == job["write"]["clat_ns"]["N"]
    assert counted["flush"] == job["sync"]["total_ios"]
    assert b"[sync-write-4k]" in kept["fio.job"]
    assert json.loads(kept["audit.json"])["after"]["total_seconds"] > 0


def test_host_samples_lie_around_the_measured_part(tmp_path: Path) -> None:
    record = execute(tmp_path / "images", make_spec("rand-read-4k-d1", ramp="1s"), frontend="host")
    times = next(each.times for each in record.series if each.source == "host")
    gaps = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    assert times[0] < -0.9  # the ramp is in it
    assert times[-1] > 0.5
    assert sorted(gaps)[len(gaps) // 2] <= 1.0


JOBS = """
[global]
ioengine=libaio
direct=1
group_reporting

[reader]
rw=randread
bs=8k
iodepth=4
numjobs=2

[log writer]
rw=write
bs=4k
fdatasync=1
"""


@pytest.mark.parametrize("frontend", ["host", "daemon"])
def test_jobs_of_a_user_run_together_and_are_told_apart(tmp_path: Path, frontend: str) -> None:
    record = execute(tmp_path / "images", make_job_spec(tmp_path, JOBS), frontend=frontend)
    assert record.failure is None
    found = values(record)
    assert found["iops"] == pytest.approx(found["reader.iops"] + found["log writer.iops"])
    assert found["log writer.flush_p99"] > 0
    assert points(record).keys() == {"reader.iops", "log writer.iops"}
    depth = [check for check in record.checks if check.name == "reader: queue depth"]
    assert [check.requested for check in depth] == ["4"]
    (job,) = [m for m in record.metrics if m.primary]
    assert job.name == "iops"


def test_what_nbd_does_not_know_fails_the_run(tmp_path: Path) -> None:
    spec = make_job_spec(tmp_path, "[a]\nrw=write\nsync=1\n")
    record = execute(tmp_path / "images", spec, frontend="daemon")
    assert record.failure is not None
    assert (record.failure.kind, record.status) == ("workload", "failed")
    assert "a: sync" in record.failure.what
    assert record.metrics == ()
    assert execute(tmp_path / "images", spec, frontend="host").failure is None


def test_a_queue_that_cannot_be_filled_fails_the_run(tmp_path: Path) -> None:
    """A synchronous engine has one operation under way, whatever the job asks for."""
    spec = make_job_spec(tmp_path, "[a]\nrw=randread\niodepth=16\nioengine=psync\n")
    record = execute(tmp_path / "images", spec, frontend="host")
    assert record.failure is not None
    assert record.failure.what == "a: queue depth: not what was asked for"
    assert "reached by" in record.failure.why
    assert "fio.json" in artefacts(record)
