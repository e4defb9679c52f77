"""Where a program's promises stand in the log: exactly where it printed them.

Requires root, /dev/fuse and the native programs.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diskproof.crash.program import run_writer
from diskproof.errors import RunFailure
from diskproof.recording.folder import Recording, start_recording
from support.crash_logs import Record, read_log
from support.recording import DEADLINE, needs_fuse

pytestmark = needs_fuse
HEAD = "import os, subprocess, sys, time\n"


@contextmanager
def recorded(room: Path) -> Iterator[Recording]:
    (room / "files").mkdir()
    with start_recording(room / "files", room) as recording:
        yield recording


def write(room: Path, text: str, seconds: float = 10 * DEADLINE) -> list[Record]:
    """What the log of a program holds."""
    with recorded(room) as recording:
        argv = [sys.executable, "-c", HEAD + text]
        run_writer(argv, recording, recording.folder, room, seconds)
    return read_log(recording.log)


def promises(records: list[Record]) -> list[str | None]:
    return [record.text for record in records if record.kind == "acknowledge"]


def test_what_is_flushed_after_a_promise_stands_behind_it(tmp_path: Path) -> None:
    records = write(
        tmp_path,
        "file = os.open('f', os.O_WRONLY | os.O_CREAT)\n"
        "for number in range(200):\n"
        "    os.write(file, b'x')\n"
        "    os.write(1, b'%d\\n' % number)\n"
        "    os.fsync(file)\n",
    )
    told = [each.kind for each in records if each.kind in ("write", "acknowledge", "fsync")]
    assert told == ["write", "acknowledge", "fsync"] * 200
    assert promises(records) == [str(number) for number in range(200)]


def test_lines_may_come_in_pieces_and_the_last_one_without_its_end(tmp_path: Path) -> None:
    pieces = "for part in (b'o', b'ne\\n\\ntw', b'o\\nthr', b'ee'): os.write(1, part)"
    assert promises(write(tmp_path, pieces)) == ["one", "", "two", "three"]


def test_half_a_line_of_a_killed_program_is_no_promise(tmp_path: Path) -> None:
    cut = "os.write(1, b'commit 11\\ncommit 1'); time.sleep(1000)"
    assert promises(write(tmp_path, cut, 8.0)) == ["commit 11"]


def test_stdout_is_opened_again_by_name(tmp_path: Path) -> None:
    """As shells do for ``> /dev/stdout``, which truncates it; by another user, too."""
    again = "subprocess.run(['sh', '-c', 'echo one; echo two > /dev/stdout; echo three'])"
    assert promises(write(tmp_path, again)) == ["one", "two", "three"]


def test_a_program_in_the_background_ends_with_its_parent(tmp_path: Path) -> None:
    """What it printed until then is promised, and nobody waits for it."""
    left = (
        "subprocess.Popen(['sh', '-c', 'echo child; : > begun; sleep 1000'])\n"
        "while not os.path.exists('begun'): time.sleep(0.01)\n"
        "print('end')"
    )
    assert sorted(map(str, promises(write(tmp_path, left)))) == ["child", "end"]


def test_a_line_that_is_too_long_is_an_error_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(RunFailure, match="ended with status 1") as failed:
        write(tmp_path, "os.write(1, b'x' * 5000 + b'\\n')")
    assert "Message too long" in str(failed.value)


def test_bytes_that_are_no_text_are_promised_as_they_are(tmp_path: Path) -> None:
    with recorded(tmp_path) as recording:
        argv = [sys.executable, "-c", HEAD + "os.write(1, bytes(range(256)) + b'\\n')"]
        run_writer(argv, recording, recording.folder, tmp_path, DEADLINE)
    content = recording.log.read_bytes()
    assert bytes(range(10)) in content and bytes(range(11, 256)) in content
