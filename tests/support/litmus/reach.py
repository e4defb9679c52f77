"""The trees that a crash of a litmus program can leave, by how many of its operations had
returned: on a real file system, from the states of its disk, or in a folder, by the explorer's
rules."""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diskproof.crash.real_fs import (
    DISK,
    FOLDER,
    SECTOR,
    RealFs,
    alone_args,
    make_disk,
    start_recording_on,
)
from diskproof.crash.record import MARK, copy_folder, cut_at_mark
from diskproof.lab.deadline import Deadline
from diskproof.process.native import require_native
from diskproof.process.start import run
from support.litmus.operations import Litmus, perform
from support.litmus.writeback import DRAWN, WRITEBACKS, writebacks_of

Trees = Mapping[int, frozenset[str]]
COPIES = 32
SPREAD = 64
"""Of so many states of a disk with copies one is mounted."""
COUNTS = ("timed_out", "unsteady", "seconds")


@dataclass(frozen=True)
class Budget:
    """``threads`` of None: the explorer's own choice."""

    states: int = 20000
    seconds: float = 600.0
    writebacks: tuple[str, ...] = WRITEBACKS
    threads: int | None = None


@dataclass(frozen=True)
class Reached:
    """``trees`` by operations that had returned; ``counts`` are the explorer's, ``timed_out``,
    ``unsteady`` and ``seconds`` among them, one for each writeback."""

    trees: Trees
    counts: Mapping[str, Mapping[str, Any]]


def reach(
    program: Litmus, on: RealFs | None, room: Path, budget: Budget, profile: str = ""
) -> Reached:
    """Record the program in new folders below ``room``, and see every state. Needs root.

    The budget is for each writeback; in a folder there is none, and to a program that writes
    nothing the front of its writes is nothing of its own.
    """
    merged: dict[int, frozenset[str]] = {}
    counts = {}
    for writeback in writebacks_of(program.operations, budget.writebacks) if on else ("",):
        place = room / (writeback or "folder")
        copies = [str(number) for number in range(COPIES if writeback in DRAWN else 1)]
        base = room / f"base-{len(copies)}"
        with _uninterrupted():
            if not base.exists():
                _make_base(program, on, base, copies)
            _record(program, on, base, place, (writeback, copies))
        trees, counts[writeback] = _explore(place, base, on, budget, profile, len(copies))
        for returned, texts in trees.items():
            merged[returned] = merged.get(returned, frozenset()) | texts
        shutil.rmtree(place)
    return Reached(dict(sorted(merged.items())), counts)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C is heard at the end of the block: between a mount and the note that there is one, it
    would leave a folder that cannot be removed."""
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        raise KeyboardInterrupt


def _make_base(program: Litmus, on: RealFs | None, base: Path, copies: Sequence[str]) -> None:
    """What is durable before the program: a folder of folders, or one with the disk."""
    source = base.parent / f"source-{len(copies)}"
    folders = [source / copy for copy in copies]
    for each in (*folders, base):
        each.mkdir(parents=True)
    perform(program.setup, folders, lambda number: None)
    if on:
        make_disk(on, source, base / DISK, base.parent, Deadline(600))
    else:
        copy_folder(source, base, Deadline(600))


def _record(
    program: Litmus, on: RealFs | None, base: Path, room: Path, how: tuple[str, Sequence[str]]
) -> None:
    writeback, copies = how
    files = room / "files"
    files.mkdir(parents=True)
    copy_folder(base, files, Deadline(600))
    with start_recording_on(on, files, room) as (recording, folder):
        folders = [folder / copy for copy in copies]
        perform(program.operations, folders, recording.acknowledge, writeback)
        recording.acknowledge(MARK)
    cut_at_mark(recording.log, room / "killed.log")


def _explore(
    room: Path, base: Path, on: RealFs | None, budget: Budget, profile: str, copies: int
) -> tuple[Trees, Mapping[str, Any]]:
    out = room / "trees"
    out.touch()
    python = [sys.executable, "-P", "-m"]
    argv = [*python, "support.litmus.observe", str(out)]
    if on:
        words = [str(out), DISK, FOLDER, on.kind, on.options]
        argv = [*alone_args(), *python, "support.litmus.observe_mounted", *words]
    check = {"kind": "command", "argv": argv, "timeout_seconds": 60, "stays": True}
    # Of many copies a state by chance shows more than one that lacks a single change.
    spread = SPREAD if copies > 1 else 1
    request = {
        "log": str(room / "killed.log"),
        "base": str(base),
        "fault": f"power-{profile}" if profile else "power",
        "sector": SECTOR,
        "check": check,
        "shard": f"1/{spread}",
        "budget": {"states": budget.states * spread, "seconds": budget.seconds, "minimise": 0},
        # btrfs mounts one disk of a number at a time.
        "threads": 1 if on and on.kind == "btrfs" else budget.threads,
    }
    explorer = [str(require_native("diskproof-states")), "explore"]
    modules = os.pathsep.join(map(os.path.abspath, sys.path))
    answer = run(
        explorer,
        timeout=budget.seconds + 120,
        stdin=json.dumps(request).encode(),
        cwd=room,
        env={**os.environ, "PYTHONPATH": modules},
    )
    summary = json.loads(answer.text.splitlines()[-1])
    counts = summary["states"] | {each: summary[each] for each in COUNTS}
    return _read_trees(out.read_text().splitlines()), counts


def _read_trees(lines: Iterable[str]) -> Trees:
    found: dict[int, set[str]] = {}
    for returned, text in map(json.loads, lines):
        found.setdefault(returned, set()).add(text)
    return {returned: frozenset(texts) for returned, texts in found.items()}
