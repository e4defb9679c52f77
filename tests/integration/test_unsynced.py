"""``crash unsynced``: what is not durable, by file, while a program runs."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from diskproof.cli import run_command_line
from diskproof.errors import Exit
from support.recording import needs_fuse
from support.renaming import renaming_writer
from support.running import assert_nothing_left

pytestmark = needs_fuse


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "writer.py").write_text(renaming_writer(3))
    (tmp_path / "data").mkdir()
    return tmp_path


def tell(
    capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, Mapping[str, Mapping[str, Any]], str]:
    """Exit code, files by name, and what was said beside."""
    capsys.readouterr()
    code = run_command_line(["crash", "unsynced", *arguments, "--json"])
    said = capsys.readouterr()
    files = json.loads(said.out)["files"] if said.out else []
    return code, {each["path"]: each for each in files}, said.err


def test_what_was_flushed_waited_and_does_not_wait(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, files, said = tell(capsys, "--writer", f"python3 {here}/writer.py synced", "data")
    assert (code, said) == (Exit.OK, "")
    (data,) = files.values()
    assert (data["path"], data["changes"], data["names"], data["oldest_ns"]) == ("data", 0, 0, 0)
    assert data["most_bytes"] == 600 and data["longest_ns"] > 0
    assert list((here / "data").iterdir()) == []
    assert_nothing_left(here)


def test_what_was_not_flushed_is_told_by_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, files, said = tell(capsys, "--writer", f"python3 {here}/writer.py bare", "data")
    assert code == Exit.FELL_SHORT
    data = files["data"]
    assert (data["bytes"], data["most_bytes"], data["names"]) == (1800, 1800, 6)
    assert data["longest_ns"] >= data["oldest_ns"] > 0
    assert "no flush of it reached the disk" in said


def test_a_program_that_goes_on_is_ended_and_told(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = "sh -c 'echo x > a; echo one; exec sleep 600'"
    code, files, _ = tell(capsys, "--writer", writer, "data", "--budget", "8s")
    assert code == Exit.FELL_SHORT and files
    assert_nothing_left(here)


def test_a_program_that_fails_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, files, said = tell(capsys, "--writer", "sh -c 'exit 3'", "data")
    assert code == Exit.FELL_SHORT and not files
    assert "the writer ended with status 3" in said


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["data"], "--writer and a folder"),
        (["--writer", "true"], "--writer and a folder"),
        (["--app", "rename", "data"], "--writer and a folder"),
        (["--app", "rename", "--writer", "true"], "--writer and a folder"),
        (["--writer", "true", "nowhere"], "nowhere is no folder"),
        (["--app", "renam"], "did you mean rename"),
    ],
)
def test_what_cannot_be_is_said(
    words: list[str], why: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = tell(capsys, *words)
    assert code == Exit.USAGE and why in said


def test_a_terminal_shows_it_while_the_program_runs(here: Path) -> None:
    """The last line is written when the table was seen."""
    writer = "import os, time\nopen('early', 'w').write('x')\nprint(1, flush=True)\n"
    writer += f"while not os.path.exists({str(here / 'seen')!r}): time.sleep(0.05)\n"
    (here / "waits.py").write_text(writer)
    ours, theirs = pty.openpty()
    argv = [sys.executable, "-m", "diskproof", "crash", "unsynced", "data"]
    argv += ["--writer", f"python3 {here}/waits.py"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while b"early" not in shown:
            shown += os.read(ours, 4096)
        (here / "seen").touch()
        assert process.wait(120) == Exit.FELL_SHORT
    os.close(ours)
