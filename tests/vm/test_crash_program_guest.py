"""Anybody's program in a real guest under a real recorder, judged in fresh ones.

Requires the built guest, root and /dev/fuse.
"""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.cli.crash_in_guest import GuestCall, make_study, recipe_call
from diskproof.crash.record import Recorded
from diskproof.crash.writers.guest_disk import PROMISING
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import start_guest
from diskproof.guest.ours.build import build_guest, require_guest
from diskproof.process.native import require_native
from diskproof.process.owner import admit
from diskproof.process.start import run
from diskproof.qemu.machine import GuestMachine
from diskproof.recording.folder import start_recording
from diskproof.recording.log import ACKNOWLEDGE, read_frames
from diskproof.records import Cell
from diskproof.study.crash import extra_of
from diskproof.study.load import parse_study
from support.recording import needs_fuse
from support.stopping import stop_whole
from support.written import make_cell, read_acks, run_check, start_written

pytestmark = [needs_fuse, pytest.mark.long]
PUT = """#!/bin/sh
# Rows, each in a file of its own; those that are promised have been made durable.
for n in $(seq "$1"); do
    echo "row $n" > new.$n
    sync new.$n
    mv new.$n row.$n
    sync .
    echo "$n"
done
$2
"""
LOOK = """#!/bin/sh
lost=0
for n in $(cat "$DISKPROOF_ACKNOWLEDGED"); do
    [ "$(cat row.$n)" = "row $n" ] || lost=$((lost + 1))
done
[ $lost = 0 ] || { echo $lost; exit 1; }
eval "$1"
"""
STUDY = """
[crash]
writers = ["program"]
size = "64MiB"
filesystem = "{on}"
seconds = "{seconds}s"
[crash.program]
folder = "app"
writer = "./put {writer}"
check = "./look {check}"
"""


def program_cell(
    room: Path,
    writer: str,
    check: str = "",
    on: str = "ext4",
    cache: str = "none",
    seconds: int = 200,
) -> Cell:
    app = room / "app"
    app.mkdir()
    for name, text in (("put", PUT), ("look", LOOK)):
        (app / name).write_text(text)
        (app / name).chmod(0o755)
    (app / "more").mkdir()
    (app / "more" / "large").write_bytes(bytes(range(256)) * 8000)  # in several pieces
    rules = parse_study(
        STUDY.format(writer=writer, check=check, on=on, seconds=seconds), folder=room
    ).crash
    return make_cell("program", "guest", rules, cache=cache, bus="virtio-blk")


def test_what_is_promised_is_judged_by_the_programs_own_check(tmp_path: Path) -> None:
    cell = program_cell(tmp_path, "5", "'test $(wc -c < more/large) = 2048000'")
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        assert acks == ["1", "2", "3", "4", "5"]
        assert recorded.summary.counts["flushes"] >= 10

        def check(folder: Path, lines: list[str]) -> tuple[int, str]:
            done = run_check(cell, folder, lines, recorded.room)
            return done.returncode, done.text.strip()

        assert check(recorded.files, acks) == (0, "0")
        assert check(recorded.files, [*acks, "6", "7"]) == (1, "2")
        assert check(recorded.base, []) == (0, "0")  # nothing was promised
        corrupt = run_check(cell, recorded.base, acks, recorded.room)
        assert corrupt.returncode == 2 and "cannot be mounted" in corrupt.error_text


def test_a_file_system_that_the_host_need_not_have(tmp_path: Path) -> None:
    """f2fs is in the guest with the tools of storage."""
    build_guest(extra="storage")
    cell = program_cell(tmp_path, "3", on="f2fs")
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        assert acks == ["1", "2", "3"]
        kept = run_check(cell, recorded.files, acks, recorded.room)
        assert kept.returncode == 0, kept.error_text
        lost = run_check(cell, recorded.files, [*acks, "4"], recorded.room)
        assert (lost.returncode, lost.text.strip()) == (1, "1")
        corrupt = run_check(cell, recorded.base, acks, recorded.room)
        assert corrupt.returncode == 2 and "cannot be mounted" in corrupt.error_text


def test_a_program_that_goes_on_is_killed_and_judged(tmp_path: Path) -> None:
    cell = program_cell(tmp_path, "3 'sleep 1000'", seconds=20)
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        assert acks == ["1", "2", "3"]
        assert run_check(cell, recorded.files, acks, recorded.room).returncode == 0


def test_a_program_that_fails_says_why(tmp_path: Path) -> None:
    cell = program_cell(tmp_path, "1 'cat nothing'")
    with pytest.raises(RunFailure, match="the writer program ended with status 1") as failed:
        with start_written(cell, tmp_path):
            pass
    assert "nothing: No such file" in failed.value.why


def test_a_check_that_crashes_has_found_a_corrupt_state(tmp_path: Path) -> None:
    cell = program_cell(tmp_path, "2", "'kill -SEGV $$'")
    with start_written(cell, tmp_path) as recorded:
        done = run_check(cell, recorded.files, read_acks(recorded), recorded.room)
        assert done.returncode == 2 and "the check crashed with SIGSEGV" in done.error_text


def make_power_cut(recorded: Recorded, to: Path) -> Path:
    """What a power cut at the last promise leaves, of all that was not durable then nothing."""
    frames = [f for f in read_frames(recorded.killed) if f.kind == ACKNOWLEDGE]
    last = max(frame.sequence for frame in frames)
    log, base, state = str(recorded.killed), str(recorded.base), f"power:512:{last}:nothing"
    run(
        [str(require_native("diskproof-states")), "show", log, base, state, "--to", str(to)],
        timeout=60,
    )
    admit(to)
    return to


def test_a_recipe_in_the_guest_has_its_packages(tmp_path: Path) -> None:
    """Git with every flush on ext4 in qcow2: with writeback a power cut takes nothing."""
    call = GuestCall("", "", Path(), "cache=writeback,format=qcow2", None, None, None)
    rules = replace(make_study(recipe_call("git-synced", call), 600).crash, seconds=200.0)
    cell = make_cell("program", "guest", rules, cache="writeback", format="qcow2", bus="virtio-blk")
    assert cell.workload.name == "git-synced" and extra_of(cell.workload) == ":git"
    build_guest(extra=":git")
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        assert acks and all(len(commit) == 40 for commit in acks)
        cut = make_power_cut(recorded, tmp_path / "cut")
        kept = run_check(cell, cut, acks, recorded.room)
        assert kept.returncode == 0, kept.error_text
        lost = run_check(cell, cut, [*acks, "0" * 40], recorded.room)
        assert (lost.returncode, lost.text.strip()) == (1, "1")


def test_unsafe_loses_what_a_program_has_flushed(tmp_path: Path) -> None:
    cell = program_cell(tmp_path, "3", cache="unsafe")
    with start_written(cell, tmp_path) as recorded:
        acks = read_acks(recorded)
        cut = make_power_cut(recorded, tmp_path / "cut")
        corrupt = run_check(cell, cut, acks, recorded.room)
        assert corrupt.returncode == 2 and "cannot be mounted" in corrupt.error_text


def test_a_promise_is_in_the_log_before_its_write_returns(tmp_path: Path) -> None:
    """A recorder that stands still holds up who writes in the guest."""
    (tmp_path / "files").mkdir()
    line, went_on = "x" * 3000, threading.Event()
    with (
        start_recording(tmp_path / "files", tmp_path) as recording,
        recording.open_promises() as promises,
        start_guest(
            require_guest(), GuestMachine("tcg", promises=promises.descriptor), run_dir=tmp_path
        ) as guest,
    ):

        def go_on() -> None:
            went_on.set()
            os.kill(recording.process.pid, signal.SIGCONT)

        stop_whole(recording.process.pid)
        threading.Timer(5.0, go_on).start()
        argv = ["sh", "-euc", PROMISING, "sh", "echo", line]
        done = guest.channel.exec(argv, timeout=100)
        assert went_on.is_set() and done.exit.code == 0, done.stderr
    frames = (frame for frame in read_frames(recording.log) if frame.kind == ACKNOWLEDGE)
    assert [frame.payload.decode() for frame in frames] == [line]


def test_what_the_guest_lacks_is_told(tmp_path: Path) -> None:
    cell = program_cell(tmp_path, "3")
    options = {**dict(cell.workload.options), "check": "gitt fsck"}
    spec = replace(cell.workload, options=tuple(sorted(options.items())))
    with pytest.raises(RunFailure, match="the guest has no program gitt") as failed:
        with start_written(replace(cell, workload=spec), tmp_path):
            pass
    assert "--packages" in failed.value.hint
