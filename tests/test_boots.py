"""Studies of boots: what is planned, what a guest's report says, what is made of it."""

import hashlib
import socket
import tarfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.drive import Command, Drive, DriveFacts, Execution
from diskproof.errors import RunFailure, StudyError
from diskproof.guest.debian.one_boot import BootReport, boot_parameters, parse_report, read_all
from diskproof.guest.debian.system import write_payload
from diskproof.plan import estimate_seconds, make_plan
from diskproof.records import Check, WorkloadSpec
from diskproof.study.boots import (
    block_bytes,
    disk_bytes,
    memory_bytes,
    parse_scale,
    payload_bytes,
    payload_members,
)
from diskproof.study.load import parse_study
from diskproof.workloads.boots import WORKLOAD
from support.planning import facts_with

SCALE = "1/1024"
ZEROED = 2 * block_bytes(1 / 1024)
MEMBERS = payload_members(1 / 1024)
READ = {"walked": ["4000 120000000"] * 2, "listed": [str(MEMBERS)] * 2}
WRITE = {"zeroed": [str(ZEROED)] * 3, "unpacked": [str(MEMBERS)]}


def say(kind: str, number: int, counts: Mapping[str, Sequence[str]], **changed: str) -> bytes:
    """A guest's report of one boot."""
    fields = {
        "kernel": "6.1.0-1-amd64",
        "started": "3.20",
        "write_cache": "write back",
        "size": "786432",
        "boots": str(number),
        "step.walk1": "3.30 4.00",
        "step.walk2": "4.00 4.50",
        "stat": f"10 0 800 5 10 0 {3 * ZEROED // 512} 5 0 5 5",
        **changed,
    }
    lines = [f"{key}={value}" for key, value in fields.items()]
    lines += [f"{key}={value}" for key, values in counts.items() for value in values]
    return "\n".join([*lines, f"done={kind}"]).encode()


class Recorded(Drive):
    """A drive that answers each boot with a report and a time."""

    def __init__(self, answers: Sequence[tuple[bytes, float]]) -> None:
        super().__init__(DriveFacts(384 << 20, fio={}))
        self.answers = list(answers)
        self.asked: list[str] = []

    def read_back(self) -> tuple[Check, ...]:
        return ()

    def run(self, command: Command) -> Execution:
        self.asked.append(command.argv[1])
        said, seconds = self.answers.pop(0)
        return Execution(0, said, b"", seconds)


def make(text: str = "") -> WorkloadSpec:
    return parse_study(f'[workloads.boots]\nscale = "{SCALE}"\n{text}').workloads[0]


RIGHT = (
    (say("read", 2, READ), 6.0),
    (say("write", 3, WRITE), 12.0),
    (say("write", 4, WRITE), 10.0),
)


def test_a_run_has_the_mean_of_its_boots_and_every_single_time() -> None:
    drive = Recorded(RIGHT)
    result = WORKLOAD.run(make("reads = 1\nwrites = 2\n"), drive)
    assert drive.asked == ["read", "write", "write"]
    figures = {metric.name: metric.value for metric in result.metrics}
    assert figures["write_seconds"] == 11.0
    assert figures["read_seconds"] == 6.0
    assert figures["read_walk_seconds"] == pytest.approx(1.2)
    assert [metric.name for metric in result.metrics if metric.primary] == ["write_seconds"]
    series = {each.name: each for each in result.series}
    assert series["write_boot_seconds"].values == (12.0, 10.0)
    assert series["write_boot_seconds"].times == (18.0, 28.0)
    assert all(check.ok for check in result.checks)
    assert {check.name for check in result.checks} == {
        *("walked", "listed", "zeroed", "unpacked", "written")
    }


def test_without_write_boots_reads_are_ranked() -> None:
    result = WORKLOAD.run(make("reads = 1\nwrites = 0\n"), Recorded(RIGHT[:1]))
    assert [metric.name for metric in result.metrics if metric.primary] == ["read_seconds"]


@pytest.mark.parametrize(
    "counts, name",
    [
        ({**WRITE, "zeroed": [str(ZEROED)] * 2}, "zeroed"),
        ({**WRITE, "zeroed": [str(ZEROED - 512)] * 3}, "zeroed"),
        ({**WRITE, "unpacked": [str(MEMBERS - 1)]}, "unpacked"),
    ],
)
def test_work_that_was_not_done_is_a_wrong_check(
    counts: Mapping[str, Sequence[str]], name: str
) -> None:
    answers = [(say("write", 2, counts), 1.0)]
    result = WORKLOAD.run(make("reads = 0\nwrites = 1\n"), Recorded(answers))
    assert [check.name for check in result.checks if not check.ok] == [name]


def test_zeroes_that_never_reached_the_disk_are_a_wrong_check() -> None:
    said = say("write", 2, WRITE, stat="10 0 800 5 10 0 8 5 0 5 5")
    result = WORKLOAD.run(make("reads = 0\nwrites = 1\n"), Recorded([(said, 1.0)]))
    assert [check.name for check in result.checks if not check.ok] == ["written"]


def test_a_boot_out_of_turn_fails_the_run() -> None:
    with pytest.raises(RunFailure, match="boot 2 is not the read boot"):
        WORKLOAD.run(make("reads = 1\nwrites = 0\n"), Recorded([(say("read", 3, READ), 1.0)]))


def test_the_report_of_a_boot() -> None:
    report = parse_report(say("read", 7, READ))
    assert report.boots == 7 and report.kind == "read" and report.size == 384 << 20
    assert report.counts["walked"] == ((4000, 120000000),) * 2
    assert report.steps == {"walk1": pytest.approx(0.7), "walk2": pytest.approx(0.5)}
    assert report.read_bytes == 800 * 512 and report.failed == ""


@pytest.mark.parametrize(
    "said, why",
    [
        (b"", "ends before"),
        (say("read", 2, READ)[:-10], "ends before|not key"),
        (b"\xff=1\ndone=read", "not key=value"),
        (say("read", 2, READ, boots="-1"), "not a number"),
        (say("read", 2, READ, boots="9" * 400), "not a number"),
        (say("read", 2, READ, started="nan"), "not a time"),
        (say("read", 2, READ, stat="1 2"), "lacks its numbers"),
        (say("read", 2, READ, **{"step.walk1": "9.00 1.00"}), "before it began"),
        (say("read", 2, READ, **{f"step.s{n}": "1.00 2.00" for n in range(30)}), "too many"),
    ],
)
def test_nonsense_of_a_guest_is_refused(said: bytes, why: str) -> None:
    with pytest.raises(RunFailure) as caught:
        parse_report(said)
    assert caught.value.kind == "guest"
    assert any(part in caught.value.why for part in why.split("|"))


@given(st.binary(max_size=300))
def test_any_bytes_are_a_report_or_a_failure(data: bytes) -> None:
    try:
        assert isinstance(parse_report(data), BootReport)
    except RunFailure as failure:
        assert failure.kind == "guest"


@pytest.mark.parametrize("text", ['scale = "2"', 'scale = "0"', "reads = 100", 'cold = "maybe"'])
def test_mistakes_in_a_study_are_named(text: str) -> None:
    with pytest.raises(StudyError, match="study.toml"):
        parse_study(f"[workloads.boots]\n{text}\n")


def test_the_plan_gives_the_disk_the_size_that_its_scale_needs() -> None:
    study = parse_study('[workloads.boots]\nscale = "1/64"\n[factors]\nfrontend = "guest"\n')
    (cell,) = make_plan(study, facts_with()).cells
    assert int(cell.workload.option("size")) == disk_bytes(1 / 64)
    none = [("reads", "0"), ("writes", "0")]
    options = tuple({**dict(cell.workload.options), **dict(none)}.items())
    setup_only = replace(cell, workload=replace(cell.workload, options=options))
    assert estimate_seconds(cell) == 11 * estimate_seconds(setup_only) > 0


def test_a_guest_that_cannot_hold_a_block_is_left_out_with_the_reason() -> None:
    text = '[workloads.boots]\nscale = "1"\n[factors]\nfrontend = "guest"\n'
    text += 'memory = ["512M", "2G"]\n'
    plan = make_plan(parse_study(text), facts_with())
    assert [cell.level("memory") for cell in plan.cells] == ["2G"]
    assert "holds a whole block of zeroes" in plan.dropped[0].reason
    assert memory_bytes(1.0) > 1 << 30


def test_no_boots_are_nothing_to_measure() -> None:
    text = '[workloads.boots]\nreads = 0\nwrites = 0\n[factors]\nfrontend = "guest"\n'
    with pytest.raises(StudyError, match="neither read nor write boots"):
        make_plan(parse_study(text), facts_with())


def test_only_guests_boot() -> None:
    text = '[workloads.boots]\n[factors]\nfrontend = ["guest", "daemon"]\n'
    plan = make_plan(parse_study(text), facts_with())
    assert {cell.level("frontend") for cell in plan.cells} == {"guest"}
    assert "frontend=guest only" in plan.dropped[0].reason


def test_the_payload_is_the_same_everywhere_and_fits(tmp_path: Path) -> None:
    for name in ("one.tar", "two.tar"):
        write_payload(tmp_path / name, 1 / 256)
    one, two = ((tmp_path / name).read_bytes() for name in ("one.tar", "two.tar"))
    assert one == two
    assert hashlib.sha256(one).hexdigest().startswith(PAYLOAD_HASH)
    assert len(one) <= payload_bytes(1 / 256)
    with tarfile.open(tmp_path / "one.tar") as tar:
        assert len(tar.getnames()) == payload_members(1 / 256)


PAYLOAD_HASH = "511c3f635c6d12d5"


@given(st.integers(min_value=1, max_value=9999))
def test_every_scale_has_a_disk_with_room(part: int) -> None:
    scale = parse_scale(f"1/{part}")
    assert scale == 1 / part
    assert disk_bytes(scale) > 2 * payload_bytes(scale) + 2 * block_bytes(scale)
    assert block_bytes(scale) % (1 << 20) == 0 < block_bytes(scale)


def test_the_full_scale_is_the_published_one() -> None:
    assert (parse_scale("1"), block_bytes(1.0)) == (1.0, 1 << 30)
    assert 38_000 <= payload_members(1.0) <= 40_000


def test_what_the_guest_is_told() -> None:
    told = boot_parameters("nvme", ("nvme", "ext4"), "write", 8 << 20)
    assert set(told) == {
        *("root=/dev/nvme0n1", "ro", "diskproof.drivers=nvme,ext4"),
        *("diskproof.boot=write", "diskproof.block=8388608"),
    }


def test_a_guest_that_never_stops_talking_is_cut_off() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"boots=1\n" * 3000)
        with pytest.raises(RunFailure, match="says too much"):
            read_all(ours, time.monotonic() + 30)


def test_a_guest_that_says_nothing_meets_the_deadline() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(RunFailure, match="not off in time"):
        read_all(ours, time.monotonic())
