"""Loop devices that go with their last user. Requires root and loop devices."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from diskproof.backings.loop import find_loops, start_loop
from diskproof.errors import HostError
from diskproof.process.start import run
from support.patience import await_true
from support.volumes import HERE, MIB

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
OWNER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from diskproof.backings.loop import start_loop
with start_loop(Path(sys.argv[2])) as loop:
    print(loop.path, flush=True)
    sys.stdin.read()
"""


def make_file(path: Path) -> Path:
    path.write_bytes(b"")
    os.truncate(path, MIB)
    return path


def test_it_goes_at_the_end_and_its_file_is_found(tmp_path: Path) -> None:
    file = make_file(tmp_path / "a file with spaces")
    with start_loop(file) as loop:
        loop.path.write_bytes(b"through the device")
        assert find_loops(tmp_path) == (loop.path.name,)
        assert find_loops(tmp_path / "a file") == ()
        listed = run(
            ["losetup", "--noheadings", "--output", "AUTOCLEAR,DIO", str(loop.path)], timeout=60
        )
        assert listed.text.split() == ["1", "1" if loop.direct else "0"]
        assert loop.words.endswith("direct I/O" if loop.direct else "page cache")
        file.unlink()
        assert find_loops(tmp_path) == (loop.path.name,)
    await_true(lambda: find_loops(tmp_path) == ())  # whoever looks at it holds it, too


def test_it_goes_with_its_last_user_only(tmp_path: Path) -> None:
    with start_loop(make_file(tmp_path / "file")) as loop:
        user = os.open(loop.path, os.O_RDONLY)
    assert find_loops(tmp_path) == (loop.path.name,)
    os.close(user)
    await_true(lambda: find_loops(tmp_path) == ())


def test_it_goes_with_a_killed_owner(tmp_path: Path) -> None:
    file = make_file(tmp_path / "file")
    argv = [sys.executable, "-c", OWNER, str(HERE.parent / "src"), str(file)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout and owner.stdout.readline().startswith(b"/dev/loop")
        assert len(find_loops(tmp_path)) == 1
        owner.kill()
    await_true(lambda: find_loops(tmp_path) == ())


def test_what_cannot_be_had_says_why(tmp_path: Path) -> None:
    for wrong in (tmp_path / "missing", tmp_path):
        with pytest.raises(HostError, match="no loop device") as caught, start_loop(wrong):
            pytest.fail("there is nothing to make it of")
        assert str(wrong) in caught.value.why
    os.mkfifo(tmp_path / "pipe")
    await_true(lambda: find_loops(tmp_path) == ())
