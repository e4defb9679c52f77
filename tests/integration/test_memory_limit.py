"""The page cache of a run, bounded by a control group of this host and counted afterwards.

Requires root, fio, qemu-storage-daemon, and a memory controller.
"""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.errors import RunFailure
from diskproof.host import memory_limit
from diskproof.host.memory import GROUPS, SECOND
from diskproof.host.memory_limit import PREFIX, find_limit_obstacle, start_memory_limit
from diskproof.process.start import run
from diskproof.records import WorkloadSpec
from diskproof.study.workloads import CACHE_LIMIT
from support.running import execute, make_spec

needs_limit = pytest.mark.skipif(bool(find_limit_obstacle()), reason=find_limit_obstacle())
LIMIT = 48 << 20


def bounded(name: str, limit: int, **protocol: str) -> WorkloadSpec:
    spec = make_spec(name, size="128MiB", **protocol)
    options = {**dict(spec.options), CACHE_LIMIT: str(limit), "bs": "1m"}
    return replace(spec, options=tuple(sorted(options.items())))


def groups() -> list[Path]:
    found = [Path(top, name) for top, names, _ in os.walk(GROUPS) for name in names]
    own = [path for path in found if path.name.startswith(PREFIX)]
    return [path for path in own if path.name.endswith(str(os.getpid()))]


@needs_limit
@pytest.mark.parametrize("cache", ["writeback", "none"])
def test_a_run_leaves_no_more_in_the_page_cache_than_its_bound(tmp_path: Path, cache: str) -> None:
    levels = {"frontend": "daemon", "format": "raw", "cache": cache, "aio": "threads"}
    levels |= {"discard": "ignore", "detect-zeroes": "off", "iothread": "off"}
    record = execute(tmp_path, bounded("seq-read", LIMIT), **levels, preallocation="off")
    assert record.status == "ok", record.failure
    (check,) = [check for check in record.checks if check.name == "bounded cache"]
    resident = int(check.effective.split()[0])
    assert check.source == "mincore" and resident <= LIMIT
    assert resident > 0 if cache == "writeback" else resident == 0
    assert groups() == []


@needs_limit
def test_a_cache_that_is_not_bounded_fails_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What runs is in the group, and the group has more than was asked for."""
    asked = memory_limit.start_memory_limit
    monkeypatch.setattr("diskproof.measure.run.start_memory_limit", lambda limit: asked(4 * limit))
    levels = {"frontend": "daemon", "format": "raw", "cache": "writeback", "aio": "threads"}
    record = execute(tmp_path, bounded("seq-read", LIMIT), **levels)
    assert record.failure and record.failure.kind == "cache"
    assert "bounded cache" in record.failure.what


@needs_limit
def test_what_is_started_is_in_the_group_and_nothing_is_left_of_it() -> None:
    before = run(["cat", "/proc/self/cgroup"], timeout=10).text
    with start_memory_limit(LIMIT):
        inside = run(["cat", "/proc/self/cgroup"], timeout=10).text
        limits = [(path / "memory.limit_in_bytes") for path in groups()]
        limits += [(path / SECOND.limit) for path in groups()]
        assert str(LIMIT) in {path.read_text().strip() for path in limits if path.exists()}
    assert f"{PREFIX}{os.getpid()}" in inside and PREFIX not in before
    assert groups() == []


@needs_limit
def test_groups_of_the_dead_are_taken_away() -> None:
    with start_memory_limit(LIMIT):
        (mine,) = groups()
        dead = mine.parent / f"{PREFIX}999999999"
        dead.mkdir()
    with start_memory_limit(LIMIT):
        assert not dead.exists()


def test_where_no_group_can_be_had_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_limit, "GROUPS", tmp_path)
    assert find_limit_obstacle() == "no control group of this host bounds memory"
    with pytest.raises(RunFailure, match="cannot be bounded"), start_memory_limit(LIMIT):
        pass
