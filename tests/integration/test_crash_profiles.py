"""``diskproof crash --profiles``: one recording, judged by the rules of several file systems.

Requires root, /dev/fuse and the native programs.
"""

import json
from pathlib import Path

import pytest

from diskproof.cli import run_command_line
from support.recording import needs_fuse

pytestmark = needs_fuse
# A file that is there and durable is replaced, and nothing of the new one is flushed.
WRITER = """
import os
with open("new", "wb") as file:
    file.write(b"x" * 900)
os.rename("new", "data")
print("replaced", flush=True)
"""
CHECK = """
import pathlib, sys
sys.exit(0 if len(set(pathlib.Path("data").read_bytes())) == 1 else 2)
"""
# Each promise rests on sync(2) alone: of what is appended, or written over in place.
SYNCING = """
import os, sys
for number in b"123":
    with open("data", "ab" if sys.argv[1] == "append" else "r+b", buffering=0) as file:
        file.write(bytes([number]) * 4096)
    os.sync()
    print(number - 48, flush=True)
"""
COUNTING = """
import os, pathlib, sys
promised = len(open(os.environ["DISKPROOF_ACKNOWLEDGED"]).read().split())
found = max(0, max(pathlib.Path("data").read_bytes()) - 48)
if found < promised:
    print(promised - found)
    sys.exit(1)
"""


def test_the_same_recording_is_judged_by_the_rules_that_were_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With data=journal ext4 brings the data with the rename, else its length or nothing."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("folder/data").write_bytes(b"o" * 900)
    Path("writer.py").write_text(WRITER)
    Path("check.py").write_text(CHECK)
    commands = [f"python3 {tmp_path}/{name}.py" for name in ("writer", "check")]
    argv = ["crash", "--writer", commands[0], "--check", commands[1], "--budget", "4m"]
    profiles = "f2fs,xfs,ext4-writeback,ext4-journal,ext4"
    code = run_command_line([*argv, "--causes", "1s", "--profiles", profiles, "folder", "--json"])
    told = capsys.readouterr()
    rows = {row["fault"]: row for row in json.loads(told.out)}
    said = "posix, ext4, ext4-writeback, xfs, f2fs: corrupts; ext4-journal: keeps"
    assert code == 1 and said in told.err
    both = [rows[f"power-{each}"]["verdict"] for each in ("ext4-journal", "ext4")]
    assert both == ["keeps", "corrupts"]
    assert rows["power-xfs"]["reproduce"].endswith("--fault power-xfs")
    assert [fault for fault, row in rows.items() if row["causes"]] == ["power"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("append", "posix, ext4, xfs, btrfs: keeps"),
        ("replace", "posix, ext4, btrfs: keeps; xfs: loses 3"),
    ],
)
def test_a_program_that_syncs_everything(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    how: str,
    said: str,
) -> None:
    """XFS may not have the disk flush where its log has nothing to write: a cause of its own."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("folder/data").write_bytes(b"." * 4096)
    Path("writer.py").write_text(SYNCING)
    Path("check.py").write_text(COUNTING)
    commands = [f"python3 {tmp_path}/writer.py {how}", f"python3 {tmp_path}/check.py"]
    argv = ["crash", "--writer", commands[0], "--check", commands[1], "--budget", "2m"]
    argv += ["--causes", "1s", "--profiles", "ext4,xfs,btrfs", "folder", "--json"]
    code = run_command_line(argv)
    told = capsys.readouterr()
    assert said in told.err and "no flush" not in told.err
    rows = {row["fault"]: row for row in json.loads(told.out)}
    assert code == (0 if how == "append" else 1)
    assert not any(row["kept_so_far"] for row in rows.values())
    searched = [fault for fault, row in rows.items() if row["causes"]]
    assert searched == ["power", "power-xfs"][: 1 + code]


@pytest.mark.parametrize(("named", "why"), [("ext4,zfs", "zfs"), ("", "nothing")])
def test_rules_that_nobody_knows_are_refused(
    tmp_path: Path, named: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["crash", "--writer", "true", "--check", "true", "--profiles", named, str(tmp_path)]
    assert run_command_line(argv) == 2
    assert f"no rules of {why} are known" in capsys.readouterr().err
