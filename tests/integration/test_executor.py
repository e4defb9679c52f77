"""One cell for real, through the host and daemon frontends.

Requires fio (nbd), qemu-storage-daemon, qemu-img and the native sampler.
"""

from pathlib import Path

import pytest

from diskproof.errors import RunFailure
from diskproof.lab.deadline import BoundedDrive, Deadline
from diskproof.measure.run import choose_interval, may_write
from diskproof.process.start import find_tool
from support.running import (
    artefacts,
    assert_nothing_left,
    execute,
    make_spec,
    plan_run,
    start_executor,
)

_MISSING = [tool for tool in ("qemu-storage-daemon", "qemu-img", "fio") if not find_tool(tool)]
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=f"needs {_MISSING}")

CELLS = [
    {"frontend": "host"},
    {"frontend": "daemon", "format": "raw", "cache": "none", "aio": "native"},
    {"frontend": "daemon", "format": "raw", "cache": "writethrough", "preallocation": "full"},
    {"frontend": "daemon", "format": "qcow2", "cache": "unsafe", "aio": "io_uring"},
    {"frontend": "daemon", "format": "qcow2", "cache": "directsync", "cluster_size": "128K"},
    {"frontend": "daemon", "format": "qed", "cache": "writeback"},
]


@pytest.mark.parametrize("levels", CELLS, ids=lambda levels: "-".join(levels.values()))
def test_a_run_is_made_proved_measured_and_gone(tmp_path: Path, levels: dict[str, str]) -> None:
    record = execute(tmp_path / "images", make_spec("rand-read-4k-d32"), **levels)
    assert (record.status, record.failure) == ("ok", None)
    assert [check.name for check in record.checks if not check.ok] == []
    assert "0 bytes resident" in {c.name: c.effective for c in record.checks}["page cache"]
    assert [metric.name for metric in record.metrics if metric.primary] == ["iops"]
    phases = [name for name, _ in record.phases]
    before = ["folder", "create", "make_data", "fill", "drop", "start", "read_back"]
    assert phases == [*before, "workload", "stop", "remove"]
    assert record.ended - record.started >= sum(seconds for _, seconds in record.phases)
    kept = artefacts(record)
    assert {"fio.json", "fio.job", "audit.json"} <= kept.keys()
    assert ("qemu-storage-daemon.argv.json" in kept) is (levels["frontend"] == "daemon")


def test_data_is_made_once_for_disks_of_one_size(tmp_path: Path) -> None:
    images = tmp_path / "images"
    with start_executor(images) as executor:
        small, large = make_spec("seq-read"), make_spec("seq-read", size="80MiB")
        for spec in (small, small, large):
            assert executor.execute(plan_run(spec, frontend="host")).failure is None
            kept = list(images.glob("diskproof-run-*/fill-*.raw"))
            assert [path.stat().st_size for path in kept] == [int(spec.option("size"))]
    assert_nothing_left(images)


def test_a_setting_that_did_not_arrive_fails_the_run_before_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon is started for another cache mode than the cell's."""
    from diskproof.frontends import daemon

    real = daemon.daemon_args
    wrong = plan_run(make_spec("seq-write"), frontend="daemon", cache="unsafe").cell
    monkeypatch.setattr(daemon, "daemon_args", lambda _, *args, **fds: real(wrong, *args, **fds))
    record = execute(tmp_path / "images", make_spec("seq-write"), frontend="daemon", cache="none")
    assert record.failure is not None
    assert record.failure.kind == "mismatch"
    assert "O_DIRECT: asked on, in force off" in record.failure.why
    assert record.phases[-1][0] == "read_back"
    assert record.metrics == ()
    assert "qemu-storage-daemon.argv.json" in artefacts(record)


def test_a_run_ends_at_its_deadline_with_what_is_known(tmp_path: Path) -> None:
    spec = make_spec("seq-write", runtime="1h")
    record = execute(tmp_path / "images", spec, timeout=25.0, frontend="daemon")
    assert record.failure is not None
    assert record.failure.kind == "timeout"
    assert "fio did not end within" in record.failure.what
    kept = artefacts(record)
    assert {"fio.job", "stdout", "stderr", "qemu-storage-daemon.log", "audit.json"} <= kept.keys()
    assert b"connected to NBD server" in kept["stderr"] + kept["stdout"]
    assert record.ended - record.started < 90


def test_no_command_is_started_after_the_deadline(tmp_path: Path) -> None:
    from support.disks import start_drive

    with start_drive(tmp_path / "images", frontend="host") as drive:
        late = BoundedDrive(drive, Deadline(0.0))
        assert late.facts.size == drive.facts.size
        with pytest.raises(RunFailure, match="did not end within") as caught:
            late.execute(["true"], timeout=60)
        assert caught.value.kind == "timeout"
        assert "run_timeout" in caught.value.hint


def test_samples_come_at_least_once_a_second_and_more_often_in_short_runs() -> None:
    assert choose_interval(make_spec("seq-read", runtime="1s")) == pytest.approx(0.1)
    assert choose_interval(make_spec("seq-read", runtime="10m")) == 0.5
    assert [may_write(make_spec(name)) for name in ("seq-read", "zipf-read", "mixed-70-30")] == [
        False,
        False,
        True,
    ]
