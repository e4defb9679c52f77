"""Writes whose source comes page by page (tests/support/litmus/slow_source). Requires root."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.litmus.operations import perform
from support.litmus.slow_source import write_slowly
from support.litmus.writeback import DRAWN

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="userfaultfd of the kernel's own reads")


def test_between_two_pages_no_file_is_whole(tmp_path: Path) -> None:
    """How far it is by then is the file system's choice: it may ask for more than it copies."""
    paths = [tmp_path / name for name in ("a", "b", "c")]
    seen: list[set[int]] = []
    with ExitStack() as stack:
        handles = [stack.enter_context(path.open("wb")).fileno() for path in paths]
        look = lambda: seen.append({path.stat().st_size for path in paths})  # noqa: E731
        write_slowly(handles, b"x" * 9000, 1000, look)
    assert len(seen) == 2 and all(max(lengths) <= 8192 for lengths in seen)
    assert {path.read_bytes() for path in paths} == {bytes(1000) + b"x" * 9000}


def test_a_write_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    with (tmp_path / "a").open("rb") as stream, pytest.raises(OSError, match="Bad file"):
        write_slowly([stream.fileno()], b"x" * 5000, 0, lambda: None)


@pytest.mark.parametrize("way", DRAWN)
def test_all_copies_of_a_program_end_the_same(tmp_path: Path, way: str) -> None:
    folders = [tmp_path / name for name in ("0", "1", "2")]
    for folder in folders:
        folder.mkdir()
    operations = [
        {"do": "creat", "path": "foo"},
        {"do": "write", "path": "foo", "offset": 0, "bytes": 12288, "fill": "A"},
        {"do": "mmapwrite", "path": "foo", "offset": 0, "bytes": 8192, "fill": "B"},
        {"do": "rename", "path": "foo", "to": "bar"},
    ]
    said: list[str] = []
    perform(operations, folders, said.append, way)
    assert said == sorted(said) and {"1", "2", "3", "4"} <= set(said)
    assert said.count("1") > 2, "also while the write is under way"
    assert {(folder / "bar").read_bytes() for folder in folders} == {b"B" * 8192 + b"A" * 4096}
