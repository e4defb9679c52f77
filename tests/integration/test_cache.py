"""The page cache of a real file: dropped, and not dropped when somebody holds it.

Requires a directory on a disk (tmp_path) and a tmpfs at /dev/shm.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.errors import RunFailure
from diskproof.host.cache import count_resident, drop_cache

SIZE = 4 << 20
HOLD = """
import mmap, sys
with open(sys.argv[1], "r+b") as stream:
    pages = mmap.mmap(stream.fileno(), 0)
    touched = sum(pages[start] for start in range(0, len(pages), mmap.PAGESIZE))
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process_has_it_mapped(path: Path) -> Iterator[None]:
    """Another process maps the file and touches every page until its stdin closes."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdin and child.stdout
        assert child.stdout.readline() == b"held\n"
        yield
        child.stdin.close()


def resident(path: Path) -> int:
    with path.open("rb") as stream:
        return count_resident(stream.fileno())


def make_file(path: Path) -> Path:
    path.write_bytes(os.urandom(SIZE))
    return path


def test_a_dirty_file_is_written_back_and_dropped(tmp_path: Path) -> None:
    path = make_file(tmp_path / "file")
    assert resident(path) == SIZE
    drop = drop_cache(path)
    assert (drop.before_bytes, drop.after_bytes) == (SIZE, 0)
    assert drop.as_check().ok
    assert resident(path) == 0


def test_looking_does_not_load(tmp_path: Path) -> None:
    path = make_file(tmp_path / "file")
    drop_cache(path)
    assert [resident(path), resident(path)] == [0, 0]
    with path.open("rb", buffering=0) as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
        stream.read(1)
    assert resident(path) == os.sysconf("SC_PAGESIZE")


def test_an_empty_file_has_nothing_to_drop(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert drop_cache(path).after_bytes == 0


def test_pages_that_another_process_holds_are_found_out(tmp_path: Path) -> None:
    path = make_file(tmp_path / "file")
    with another_process_has_it_mapped(path):
        with pytest.raises(RunFailure) as caught:
            drop_cache(path)
    assert caught.value.kind == "cache"
    assert str(SIZE) in caught.value.why
    assert drop_cache(path).after_bytes == 0


def test_memory_is_called_memory() -> None:
    path = make_file(Path("/dev/shm") / f"diskproof-test-{os.getpid()}")
    try:
        drop = drop_cache(path)
    finally:
        path.unlink()
    assert drop.medium == "tmpfs"
    assert "nothing to drop" in drop.as_check().effective


def test_a_missing_file_is_a_failed_run(tmp_path: Path) -> None:
    with pytest.raises(RunFailure) as caught:
        drop_cache(tmp_path / "missing")
    assert caught.value.kind == "cache"
