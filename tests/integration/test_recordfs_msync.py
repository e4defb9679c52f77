"""msync of a part: the log says which, where the recorder may look at who asks.

Requires root, /dev/fuse and the built diskproof-recordfs.
"""

import mmap
import os
from pathlib import Path

import pytest

from support.crash_logs import DATA_ONLY, Record
from support.recording import make_places, needs_fuse, start_recording

pytestmark = needs_fuse
PAGE = mmap.PAGESIZE


def parts(records: list[Record]) -> list[tuple[int, ...]]:
    """Of each flush of data what it covers; all where there is nothing."""
    flushes = [each for each in records if each.kind == "fsync"]
    assert {each.flags for each in flushes} == {DATA_ONLY}
    return [each.numbers("QQ") if each.payload else () for each in flushes]


@pytest.mark.parametrize("options", [(), ("--page-cache",)], ids=["direct", "page-cache"])
def test_the_log_has_the_part_that_was_asked_for(tmp_path: Path, options: tuple[str, ...]) -> None:
    with start_recording(make_places(tmp_path), "--callers", *options) as recording:
        (recording.mount / "file").write_bytes(b"o" * 8 * PAGE)
        with (
            (recording.mount / "file").open("r+b") as file,
            mmap.mmap(file.fileno(), 4 * PAGE, offset=2 * PAGE) as mapped,
        ):
            mapped[PAGE : PAGE + 1] = b"A"
            mapped.flush(PAGE, PAGE)
            mapped[:1] = b"B"
            mapped.flush()
            os.fdatasync(file.fileno())
        records = recording.finish()
    assert parts(records) == [(3 * PAGE, PAGE), (2 * PAGE, 4 * PAGE), ()]


def test_nobody_is_looked_at_who_was_not_asked_for(tmp_path: Path) -> None:
    with start_recording(make_places(tmp_path)) as recording:
        (recording.mount / "file").write_bytes(b"o" * 2 * PAGE)
        with (
            (recording.mount / "file").open("r+b") as file,
            mmap.mmap(file.fileno(), 2 * PAGE) as mapped,
        ):
            mapped[:1] = b"A"
            mapped.flush(0, PAGE)
        records = recording.finish()
    assert parts(records) == [()]
