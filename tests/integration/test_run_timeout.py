"""``run_timeout`` bounds the whole of a run: a part that hangs, wherever that is, ends as a failed
run with its phase named, and nothing is left.

What hangs is a real program that was stopped (SIGSTOP) as it started, or while it worked.
Requires fio, qemu-img and recordfs; some tests root.
"""

import os
import signal
import time
from pathlib import Path

import pytest

from diskproof.backings import NO_CONSENT
from diskproof.crash.run import CrashLab
from diskproof.lab import deadline as room
from diskproof.lab.setup import LabSetup
from diskproof.process.start import find_tool
from diskproof.records import BackingSpec, Cell
from diskproof.study.crash import CrashRules, crash_workload
from support.crashing import assert_nothing_of
from support.running import assert_nothing_left, execute, make_spec, under_load
from support.tile_runs import LONE, ignore, make_cell, make_lab

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount")
SECONDS = 1.0


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "HARD_SECONDS", 1.0)


def stop_at_start(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """The program stops before it has done anything."""
    tool = find_tool(program)
    if tool is None:
        pytest.skip(f"needs {program}")
    (folder / "bin").mkdir()
    (folder / "bin").chmod(0o755)
    shadow = folder / "bin" / program
    shadow.write_text(f'#!/bin/sh\nkill -STOP $$\nexec {tool} "$@"\n')
    shadow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shadow.parent}:{os.environ['PATH']}")


@needs_root
@pytest.mark.parametrize(
    ("program", "phase"),
    [
        ("mkfs.ext4", "folder"),
        ("qemu-img", "create"),
        ("sync", "create"),
        ("fio", "workload"),
    ],
)
def test_a_program_that_never_goes_on(
    tmp_path: Path,
    public_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: str,
    phase: str,
) -> None:
    stop_at_start(public_file.parent, monkeypatch, program)  # some run as somebody else
    disk = BackingSpec("here", "filesystem", (("fs", "ext4"), ("size", str(256 << 20))))
    began = time.monotonic()
    record = execute(
        tmp_path / "images",
        make_spec("seq-write"),
        timeout=15.0 if program == "fio" else 3 * SECONDS,
        on=disk if program == "mkfs.ext4" else None,
        frontend="host",
    )
    assert record.failure and record.failure.kind == "timeout", record.failure
    assert f"in the phase {phase}" in record.failure.why
    assert time.monotonic() - began < 60


def test_tiles_whose_disks_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stop_at_start(tmp_path, monkeypatch, "qemu-img")
    run = make_lab(tmp_path / "images", LONE, SECONDS).execute(make_cell(), 1, 1, ignore)
    assert run.failure and run.failure.kind == "timeout"
    assert "in the phase create" in run.failure.why
    assert_nothing_left(tmp_path / "images")


@needs_root
def test_a_recording_that_stops(tmp_path: Path) -> None:
    """The writer stands still."""
    (tmp_path / "images").mkdir()
    rules = CrashRules(seconds=60.0, records=20_000, flush_every=1, size=64 << 20)
    named = (("backing", "here"), ("cache", "writeback"), ("frontend", "host"))
    cell = Cell(named, crash_workload(rules, "ledger", "host"))
    backing = BackingSpec("here", "directory", (("path", str(tmp_path / "images")),))
    lab = CrashLab(LabSetup("s", "h", {"here": backing}, NO_CONSENT, "tcg", 2.0))
    with under_load(
        "diskproof-ledger",
        lambda process: process.send_signal(signal.SIGSTOP),
        ready=lambda children: "diskproof-ledger" in children,  # it works as soon as it is there
    ):
        run = lab.execute(cell, ("power",), lambda activity: None)
    assert run.failure and run.failure.kind == "timeout", run.failure
    assert "in the phase" in run.failure.why
    assert_nothing_of(tmp_path)
