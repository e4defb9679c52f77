"""The host's file system fills up under a guest.

Requires root, the built guest, qemu-system-x86_64, qemu-img, fio in the guest, the monitor.
"""

import json
import os
from pathlib import Path

import pytest

from diskproof.drive import SteeredMachine
from diskproof.records import BackingSpec, Metric, WorkloadSpec
from diskproof.study.load import parse_study
from diskproof.workloads import out_of_space
from support.running import artefacts, execute

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
GUEST = {"frontend": "guest", "bus": "virtio-blk", "cache": "writeback"}
SMALL = BackingSpec("here", "tmpfs", (("size", str(160 << 20)),))


def make_spec(**keys: str) -> WorkloadSpec:
    lines = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    text = f'[workloads.out-of-space]\n{lines}[protocol]\nsize = "32MiB"\n'
    return parse_study(text).workloads[0]


def test_the_guest_pauses_goes_on_and_has_lost_nothing(tmp_path: Path) -> None:
    record = execute(tmp_path / "images", make_spec(), on=SMALL, format="qcow2", **GUEST)
    assert record.failure is None
    metrics = {metric.name: metric.value for metric in record.metrics}
    assert metrics["verified"] == 32
    assert 0 < metrics["written_before"] < 32
    events = json.loads(artefacts(record)["qmp-events.json"])
    assert [event["event"] for event in events][-1] == "STOP"
    assert events[0]["data"]["nospace"] is True
    assert {check.name for check in record.checks} >= {"guest", "data"}


def test_without_room_the_run_ends_with_the_pause(tmp_path: Path) -> None:
    spec = make_spec(free="off")
    record = execute(tmp_path / "images", spec, on=SMALL, format="raw", **GUEST)
    assert record.failure is None
    assert "pause_seconds" in {metric.name for metric in record.metrics}
    assert "verified" not in {metric.name for metric in record.metrics}


def test_a_block_that_is_not_what_was_written_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = out_of_space.resume

    def resume_and_spoil(machine: SteeredMachine, *rest: object) -> tuple[Metric, ...]:
        metrics = real(machine, *rest)  # type: ignore[arg-type]
        with machine.image.path.open("r+b") as stream:
            stream.seek(20 << 20)
            stream.write(b"spoilt" * 100)
        return metrics

    monkeypatch.setattr(out_of_space, "resume", resume_and_spoil)
    record = execute(tmp_path / "images", make_spec(), on=SMALL, format="raw", **GUEST)
    assert record.failure is not None and record.failure.kind == "workload"
