"""dd's and iozone's manners: what is run, what is made of the answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.drive import Execution
from diskproof.errors import RunFailure, StudyError
from diskproof.records import WorkloadSpec
from diskproof.study.load import parse_study
from diskproof.study.programs import COMMAND, PROGRAMS
from diskproof.workloads import load_workload
from diskproof.workloads.dd import dd_args, parse_seconds_told
from diskproof.workloads.iozone import MAX_JOBS, plan_steps
from diskproof.workloads.tree_copy import parse_shape, require_room


def make(name: str, **keys: str) -> WorkloadSpec:
    lines = "".join(f'{key} = "{value}"\n' for key, value in keys.items())
    study = f'[workloads.{name}]\n{lines}[protocol]\nsize = "64MiB"\n'
    return parse_study(study).workloads[0]


@pytest.mark.parametrize(
    "program", [each for each in PROGRAMS if each.name != COMMAND], ids=lambda each: each.name
)
def test_every_program_has_a_module_and_a_study_can_name_it(program) -> None:  # type: ignore[no-untyped-def]
    spec = make(program.name)
    assert spec.kind == program.kind
    assert hasattr(load_workload(spec.kind), "run")
    assert dict(spec.options).keys() >= {"size", "runtime", "fill", *program.options}


def test_a_key_of_another_program_is_a_mistake() -> None:
    with pytest.raises(StudyError, match="unknown key of dd-write 'tests'"):
        make("dd-write", tests="0")
    with pytest.raises(StudyError, match="is not numbers of iozone"):
        make("iozone", tests="3")


def test_dd_goes_over_the_disk_and_flushes() -> None:
    argv = dd_args(make("dd-write", bs="4K"), "/dev/vda", 64 << 20)
    assert {"bs=4096", "count=16384", "of=/dev/vda", "conv=notrunc,fsync"} <= set(argv)
    argv = dd_args(make("dd-read", direct="on"), "/dev/vda", 64 << 20)
    assert {"if=/dev/vda", "of=/dev/null", "iflag=direct"} <= set(argv)


def told(text: bytes, code: int = 0) -> Execution:
    return Execution(code, b"", text, 1.0)


def test_dds_time_is_read() -> None:
    text = (
        b"64+0 records in\n64+0 records out\n67108864 bytes (67 MB, 64 MiB) copied, 0.5 s, 1 GB/s"
    )
    assert parse_seconds_told(told(text), 64 << 20) == 0.5


@pytest.mark.parametrize("text", [b"", b"1 bytes (1 B) copied, 0 s, 0 B/s", b"copied, 1 s"])
def test_what_is_not_dds_time_fails_the_run(text: bytes) -> None:
    with pytest.raises(RunFailure, match="how long"):
        parse_seconds_told(told(text), 1)


def test_a_full_disk_is_named() -> None:
    with pytest.raises(RunFailure) as caught:
        parse_seconds_told(told(b"dd: error writing: No space left on device", 1), 1)
    assert caught.value.kind == "space"


@given(
    st.integers(12, 26), st.integers(12, 26), st.integers(12, 26), st.integers(12, 26),
    st.integers(1, 8),
)  # fmt: skip
def test_iozones_files_do_not_overlap_and_fit(
    low: int, high: int, least: int, most: int, threads: int
) -> None:
    keys = {"min_file": 1 << low, "max_file": 1 << high, "min_record": 1 << least}
    keys |= {"max_record": 1 << most, "threads": threads}
    spec = make("iozone", **{key: str(value) for key, value in keys.items()})
    disk = 1 << 28
    try:
        steps = plan_steps(spec, disk)
    except RunFailure as failure:
        assert "need" in failure.what or "figures" in failure.what
        return
    assert 0 < len(steps) <= MAX_JOBS
    parts = sorted({(step.offset, step.file * threads, step.record) for step in steps})
    for (start, length, record), (after, *_) in zip(parts, parts[1:], strict=False):
        assert start + length <= after and record <= length
    assert parts[-1][0] + parts[-1][1] <= disk
    assert all(step.record <= step.file for step in steps)
    assert len({step.label for step in steps}) == len(steps)


def test_a_tree_shrinks_in_proportion_and_must_fit_twice() -> None:
    shape = parse_shape(make("tree-copy", scale="1/100"))
    assert shape.args() == ["--files=100", f"--bytes={round((1 << 30) / 100)}", "--depth=5"]
    full = parse_shape(make("tree-copy", scale="1"))
    assert (full.files, full.bytes) == (10_000, 1 << 30)
    assert parse_shape(make("tree-copy", files="3", depth="7")).files == 7
    require_room(shape, 32 << 20)
    with pytest.raises(RunFailure, match="two trees need 25.6 MiB, the disk has 16 MiB") as caught:
        require_room(shape, 16 << 20)
    assert caught.value.kind == "space"
    require_room(shape, 16 << 20, alone=True)
    with pytest.raises(RunFailure, match="a tree needs 12.8 MiB"):
        require_room(shape, 12 << 20, alone=True)
