"""The gallery on this host: what a power cut leaves of programs as they are installed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from diskproof.cli import run_command_line
from diskproof.errors import Exit
from support.recording import needs_fuse

pytestmark = [needs_fuse, pytest.mark.long]

POSIX = {
    "append": "keeps",
    "append-bare": "loses",
    "git": "corrupts",
    "rename": "keeps",
    "rename-bare": "corrupts",
    "sqlite": "loses",
    "sqlite-extra": "keeps",
    "sqlite-wal-normal": "loses",
}
"""What the strictest rules allow to be left."""
EXT4 = {"rename": "keeps", "append-bare": "loses", "sqlite-extra": "keeps", "rocksdb": "keeps"}


def crash(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Mapping[str, Any]:
    """What is said of a power cut."""
    capsys.readouterr()
    words = ["--budget", "40s", "--json", "--store", f"{folder}/store.sqlite"]
    run_command_line(["crash", *arguments, *words])
    rows = json.loads(capsys.readouterr().out)
    return next(row for row in rows if row["fault"] == "power")


def is_as(row: Mapping[str, Any], wanted: str) -> bool:
    """A busy host may not come to all that decides."""
    return row["verdict"] == wanted or (wanted == "keeps" and row["kept_so_far"] is True)


@pytest.mark.parametrize(("name", "wanted"), POSIX.items(), ids=POSIX)
def test_what_the_strictest_rules_leave_of_a_program(
    name: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = crash(tmp_path, capsys, "--app", name)
    assert is_as(row, wanted), row
    assert row["writer"] == name


@pytest.mark.parametrize(("name", "wanted"), EXT4.items(), ids=EXT4)
def test_what_ext4_leaves_of_a_program(
    name: str, wanted: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = crash(tmp_path, capsys, "--app", name, "--on", "ext4")
    assert is_as(row, wanted), row


def test_a_verdict_is_as_bad_as_the_worst_of_its_causes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the same time the search for causes comes to databases that do not open, the one for the
    verdict often only to lost keys."""
    row = crash(tmp_path, capsys, "--app", "rocksdb-nosync")
    causes = {cause["verdict"] for cause in row["causes"]["found"]}
    assert causes <= {"loses", "corrupts"} and row["verdict"] in ("loses", "corrupts"), row
    assert "corrupts" not in causes or row["verdict"] == "corrupts"


def test_what_a_recipe_leaves_no_room_for_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command_line(["crash", "--app", "rename", "--writer", "true"]) == Exit.USAGE
    assert "--writer goes with" in capsys.readouterr().err
