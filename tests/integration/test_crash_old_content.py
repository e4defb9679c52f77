"""``diskproof crash --old-content``: new parts of files that hold what others left on the disk.

Requires root, /dev/fuse and the native programs.
"""

import json
from pathlib import Path

import pytest

from diskproof.cli import run_command_line
from support.recording import needs_fuse

pytestmark = [needs_fuse, pytest.mark.long]
WRITER = """
import os
with open("data", "wb") as file:
    os.fsync(file.fileno())
    folder = os.open(".", os.O_RDONLY)
    os.fsync(folder)
    file.write(b"x" * 900)
"""
# It bears an empty file and zeros, as after a crash on most file systems.
CHECK = """
import pathlib, sys
data = pathlib.Path("data")
left = set(data.read_bytes()) if data.exists() else set()
sys.exit(0 if left <= {0, 120} else 2)
"""


def test_a_check_that_bears_zeros_need_not_bear_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("writer.py").write_text(WRITER)
    Path("check.py").write_text(CHECK)
    commands = [f"python3 {tmp_path}/{name}.py" for name in ("writer", "check")]
    argv = ["crash", "--writer", commands[0], "--check", commands[1], "--budget", "60s"]
    run_command_line([*argv, "--old-content", "data", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == 4
    assert [row["fault"] for row in rows if row["verdict"] == "corrupts"] == ["old-content"]
