"""A program in a guest once more, while the guest's file system commits between its operations.

Requires the built guest, root and /dev/fuse.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from diskproof.cli import run_command_line
from diskproof.cli.crash import WRITEBACK
from diskproof.crash.record import Recorded
from diskproof.guest.ours.build import build_guest
from diskproof.process.native import require_native
from diskproof.process.owner import admit
from diskproof.process.start import run
from diskproof.recording.log import ACKNOWLEDGE, FSYNC, read_frames
from diskproof.study.crash import beside_writeback
from diskproof.study.load import parse_study
from support.commands import left_behind, start_diskproof
from support.patience import fewest
from support.recording import needs_fuse
from support.written import ask_check, make_cell, read_acks, start_written

pytestmark = [needs_fuse, pytest.mark.long]
PUT = """#!/bin/sh
# Files that are made under another name and renamed; none is flushed.
for n in $(seq 8); do
    head -c 8192 /dev/zero | tr '\\0' x > new
    mv new "file$n"
    echo "$n"
done
"""
WHOLE_OR_MISSING = """#!/bin/sh
for file in file*; do
    [ "$file" = 'file*' ] || [ "$(tr -d '\\0' < "$file" | wc -c)" = 8192 ] || exit 2
done
"""
# The second time, which it sees by the filter of its system calls, it stays.
STAYS = f"""{PUT}
while read -r name value; do
    [ "$name $value" != "Seccomp: 2" ] || {{ echo beside; sleep 1000; }}
done < /proc/self/status
"""
STUDY = """
[crash]
writers = ["program"]
size = "{size}"
filesystem = "{on}"
seconds = "200s"
sector = 4096
[crash.program]
folder = "app"
writer = "./put"
check = "./look"
"""
SIZES = {"ext4": "32MiB", "xfs": "320MiB", "btrfs": "220MiB", "f2fs": "128MiB"}


def make_program(room: Path, put: str = PUT) -> None:
    (room / "app").mkdir()
    for name, text in (("put", put), ("look", WHOLE_OR_MISSING)):
        (room / "app" / name).write_text(text)
        (room / "app" / name).chmod(0o755)


@pytest.mark.parametrize("on", SIZES)
def test_commits_leave_names_without_data_that_a_short_run_does_not(
    tmp_path: Path, on: str
) -> None:
    """What is durable at each promise: of the program alone nothing, or all; beside commits names
    whose data nobody has flushed."""
    if on == "f2fs":
        build_guest(extra="storage")
    make_program(tmp_path)
    rules = parse_study(STUDY.format(on=on, size=SIZES[on]), folder=tmp_path).crash
    usual = make_cell("program", "guest", rules, cache="none", bus="virtio-blk")
    # A busy host may need longer for a short run than the 5 s between two commits of ext4.
    rare = {"mount": "commit=300"} if on == "ext4" else {}
    alone = make_cell("program", "guest", rules, cache="none", bus="virtio-blk", **rare)

    def flushes_alone() -> int:
        with start_written(alone, tmp_path) as recorded:
            assert read_acks(recorded) == list("12345678")
            flushes = flushes_between(recorded)
            if not flushes:
                assert set(ask_check(alone, cut_at(recorded, 3), ["1"], recorded.room)) == {"0"}
            return flushes

    # XFS writes its log out each 30 s, which a run on a busy host may meet.
    assert fewest(0, flushes_alone, tries=3) == 0
    beside = beside_writeback(usual)
    with start_written(beside, tmp_path) as recorded:
        assert read_acks(recorded) == list("12345678")
        assert flushes_between(recorded) > 0
        said = ask_check(beside, cut_at(recorded, 1), ["1"], recorded.room)
        assert "2" in said and set(said) <= {"0", "2"}, (
            said
        )  # nothing else than the check's own word


def flushes_between(recorded: Recorded) -> int:
    """Those from the first promise to the last one."""
    kinds = [frame.kind for frame in read_frames(recorded.killed)]
    first, last = kinds.index(ACKNOWLEDGE), len(kinds) - kinds[::-1].index(ACKNOWLEDGE)
    return kinds[first:last].count(FSYNC)


def cut_at(recorded: Recorded, step: int) -> list[Path]:
    """What is durable at every so many promises, as states."""
    states = []
    for frame in [f for f in read_frames(recorded.killed) if f.kind == ACKNOWLEDGE][::step]:
        state, to = f"power:4096:{frame.sequence}:nothing", recorded.room / f"cut{frame.sequence}"
        argv = ["show", str(recorded.killed), str(recorded.base), state, "--to", str(to)]
        run([str(require_native("diskproof-states")), *argv], timeout=60)
        admit(to)
        states.append(to)
    return states


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which nothing works in the end."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    deadline = time.monotonic() + 30
    while (left := working_in(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def working_in(folder: Path) -> list[str]:
    """Processes and mounts."""
    mounts = str(folder) in Path("/proc/self/mountinfo").read_text()
    return [each for each in left_behind(folder) if not each.startswith("/")] + ["mounted"] * mounts


def words(budget: str) -> list[str]:
    asked = ["--writer", "./put", "--check", "./look", "--in-guest", "cache=none"]
    return ["crash", *asked, "--budget", budget, "app"]


def test_both_runs_are_told_and_the_second_ones_loss_is_made_again(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_program(here)
    assert run_command_line([*words("240s"), "--json"]) == 1
    said = capsys.readouterr()
    rows: list[dict[str, Any]] = json.loads(said.out)
    alone = {row["fault"]: row for row in rows if "beside" not in row["cell"]}
    assert set(alone) == {"power", "qemu-kill", "guest-kill", "lying-device"}
    assert alone["power"]["verdict"] == "keeps" or alone["power"]["kept_so_far"], alone["power"]
    (beside,) = [row for row in rows if row["cell"].get("beside") == "writeback"]
    assert (beside["fault"], beside["verdict"]) == ("power", "corrupts"), beside
    assert WRITEBACK in " ".join(said.err.split())
    again = beside["reproduce"].split()[1:]
    assert run_command_line([*again, "--to", "state", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["corrupt"] is True


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_however_the_second_run_ends_nothing_goes_on(here: Path, how: signal.Signals) -> None:
    make_program(here, STAYS)
    with start_diskproof(*words("240s"), cwd=here) as running:
        deadline = time.monotonic() + 900
        while not any(b"beside\n" in log or b"beside\0" in log for log in logs_in(here)):
            assert time.monotonic() < deadline and running.poll() is None, running.read_log(4000)
            time.sleep(0.05)
        os.kill(running.pid, how)
        code = running.wait(60)
    assert code == (-how if how == signal.SIGKILL else 130)
    if how == signal.SIGINT:
        assert not [*here.glob("**/diskproof-run-*")]


def logs_in(folder: Path) -> Iterator[bytes]:
    with suppress(FileNotFoundError):  # what was looked at goes with its run
        for log in folder.glob("diskproof-images/diskproof-run-*/crash.log"):
            yield log.read_bytes()
