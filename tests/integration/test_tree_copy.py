"""A tree copied on the bare backing. Requires cp, sync, cachestat(2), qemu-img, the monitor."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from diskproof.drive import Execution
from diskproof.records import BackingSpec, RunRecord, WorkloadSpec
from diskproof.study.load import parse_study
from diskproof.workloads import tree_copy
from support.running import assert_nothing_left, execute

ROOM = Path("/var/tmp")  # a tmpfs cannot be cold


def make(**keys: str) -> WorkloadSpec:
    chosen = {"files": "300", "bytes": "8MiB", "scale": "1/2", **keys}
    lines = "".join(f'{key} = "{value}"\n' for key, value in chosen.items())
    other = '[backings.other]\nkind = "directory"\npath = "other"\n'
    text = f'[workloads.tree-copy]\n{lines}[protocol]\nsize = "32MiB"\n{other}'
    return parse_study(text).workloads[0]


@pytest.fixture
def images() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="diskproof-tree-", dir=ROOM) as folder:
        yield Path(folder, "images")


def require_good(record: RunRecord) -> dict[str, float]:
    assert record.failure is None
    return {metric.name: metric.value for metric in record.metrics}


@pytest.mark.parametrize("source", ["disk", "memory"])
def test_a_tree_is_copied_and_compared(images: Path, source: str) -> None:
    record = execute(images, make(source=source), frontend="host")
    told = require_good(record)
    assert told["bandwidth"] == pytest.approx(4 / told["seconds"])
    assert told["file_rate"] == pytest.approx(150 / told["seconds"])
    assert 0 < told["sync_seconds"] < told["seconds"]
    state, copy = (
        check for check in record.checks if check.source in ("cachestat", tree_copy.PROGRAM)
    )
    assert state.name == ("source: cold" if source == "disk" else "source: in memory")
    assert copy.effective == "every file compared"


def test_a_tree_is_copied_from_another_backing(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source is in a folder of the run's there, which is gone after it."""
    real, seen = tree_copy.Site.do, []

    def do(site: tree_copy.Site, *argv: str) -> Execution:
        seen.extend(argv[2:] if argv[0] == "cp" else [])
        return real(site, *argv)

    monkeypatch.setattr(tree_copy.Site, "do", do)
    other = BackingSpec("other", "directory", (("path", str(images.parent / "other")),), make=True)
    record = execute(images, make(source_on="other"), others=[other], frontend="host")
    require_good(record)
    source, target = (Path(path) for path in seen)
    assert source.parents[1] == images.parent / "other"
    assert target.parents[1] == images
    assert not source.parents[1].exists()


def test_a_copy_that_lost_something_fails_the_run(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tree_copy.Site.do

    def do(site: tree_copy.Site, *argv: str) -> Execution:
        done = real(site, *argv)
        if argv[0] == "cp":
            file = next(path for path in Path(argv[-1]).rglob("f*") if path.is_file())
            file.write_bytes(b"\0" * file.stat().st_size)
        return done

    monkeypatch.setattr(tree_copy.Site, "do", do)
    record = execute(images, make(), frontend="host")
    assert record.failure is not None and record.failure.kind == "workload"
    assert "diskproof-tree failed with status 1" in record.failure.what
    assert "differs from byte 0 on" in record.failure.why


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_a_full_file_system_is_a_failure_of_space(images: Path) -> None:
    small = BackingSpec("here", "tmpfs", (("size", str(6 << 20)),))
    record = execute(images, make(source="memory"), on=small, frontend="host")
    assert record.failure is not None and record.failure.kind == "space"
    assert_nothing_left(images)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
def test_what_is_always_in_memory_cannot_be_cold(images: Path) -> None:
    memory = BackingSpec("here", "tmpfs", (("size", str(64 << 20)),))
    record = execute(images, make(), on=memory, frontend="host")
    assert record.failure is not None and record.failure.kind == "cache"
    assert 'source = "memory"' in record.failure.hint
