"""``benchmarks/litmus.py``: states of real file systems as trees, held against the rules.

Requires root, /dev/fuse, loop devices, mkfs.ext4 and our native programs.
"""

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from diskproof.backings.loop import find_loops
from diskproof.process.start import find_tool
from support.patience import await_true
from support.recording import needs_fuse

pytestmark = [
    needs_fuse,
    pytest.mark.skipif(not find_tool("mkfs.ext4"), reason="needs e2fsprogs"),
]
ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, str(ROOT / "benchmarks" / "litmus.py")]
SYMLINK, RENAME = "symlink, fsync of its directory", "replace: write, fsync, rename"


def litmus(here: Path, *words: str, ends: int = 0) -> str:
    argv = [*PROGRAM, *words]
    done = subprocess.run(argv, cwd=here, capture_output=True, text=True, env=environment(here))
    assert done.returncode == ends, done.stderr[-3000:]
    return done.stdout


def environment(here: Path) -> dict[str, str]:
    paths = f"{ROOT}/src:{ROOT}/tests"
    return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": str(here), "PYTHONPATH": paths}


def test_what_ext4_leaves_is_within_the_rules_and_what_is_not_is_told(tmp_path: Path) -> None:
    for only in (SYMLINK, RENAME):
        words = ("--of", "idioms", "others", "--only", only, "--take", "1", "--states", "60")
        litmus(tmp_path, "run", "--on", "ext4", "--out", "real", "--writeback", "end", *words)
        litmus(tmp_path, "run", "--on", "posix", "--out", "rules", *words[:-2])
    again = litmus(tmp_path, "run", "--on", "ext4", "--out", "real", "--only", SYMLINK)
    assert "1 programs, 1 of them" in again
    assert "0 trees that posix does not have" in litmus(tmp_path, "compare", "real", "rules")
    rows = {str(row["program"]["name"]): row for row in read_lines(tmp_path / "real")}
    trees = rows[SYMLINK]["trees"]
    link = "A/bar symlink links=1 to=foo"
    assert any(link not in text for text in trees["0"])
    assert len(trees["2"]) == 1 and link in trees["2"][0]
    assert len(read_lines(tmp_path / "rules")) == 2
    without = [
        {**row, "trees": {**row["trees"], "2": []}} for row in read_lines(tmp_path / "rules")
    ]
    (tmp_path / "fewer").write_text("".join(json.dumps(row) + "\n" for row in without))
    told = litmus(tmp_path, "compare", "real", "fewer", ends=1)
    assert f"ext4: {SYMLINK}: not in posix" in told
    assert trees["2"][0].splitlines()[0] in told
    assert list(find_loops(tmp_path)) == []


@pytest.mark.parametrize("words", [("posix",), ("f2fs", "--profile", "f2fs")])
def test_no_rules_are_tried_in_a_guest(tmp_path: Path, words: tuple[str, ...]) -> None:
    litmus(tmp_path, "run", "--in-guest", "--out", "rows", "--on", *words, ends=2)
    assert not (tmp_path / "rows").exists()


@pytest.mark.parametrize("moment", ["while recorded", "while explored"])
def test_nothing_is_left_of_a_run_that_is_interrupted(tmp_path: Path, moment: str) -> None:
    argv = [*PROGRAM, "run", "--on", "ext4", "--of", "idioms", "--out", "real"]
    process = subprocess.Popen(
        argv,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    pattern = "*/run/*/trees" if moment == "while explored" else "*/run/*/crash.log"
    await_true(lambda: is_there(tmp_path, pattern))
    process.send_signal(signal.SIGINT)
    process.wait(120)
    assert process.returncode == -signal.SIGINT
    await_true(lambda: not find_loops(tmp_path))
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
    assert [each for each in tmp_path.iterdir() if each.name != "real"] == []


def is_there(folder: Path, pattern: str) -> bool:
    """Something with bytes in it."""
    with suppress(FileNotFoundError):  # what was looked at goes with its run
        return any(each.stat().st_size for each in folder.glob(pattern))
    return False


def read_lines(path: Path) -> list[dict[str, dict[str, list[str]]]]:
    return [json.loads(line) for line in path.read_text().splitlines()]
