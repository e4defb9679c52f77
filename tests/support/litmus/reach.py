"""The trees that a crash of a litmus program can leave, by how many of its operations had
returned: on a real file system, from the states of its disk, or in a folder, by the explorer's
rules."""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from diskproof.crash.real_fs import DISK, SECTOR, RealFs, alone_args, make_disk, start_recording_on
from diskproof.crash.record import MARK, copy_folder, cut_at_mark
from diskproof.lab.deadline import Deadline
from diskproof.process.native import require_native
from diskproof.process.start import run
from support.litmus.operations import Litmus, perform, sync_file_system

Trees = Mapping[int, frozenset[str]]


@dataclass(frozen=True)
class Budget:
    states: int = 20000
    seconds: float = 600.0


@dataclass(frozen=True)
class Reached:
    """``trees`` by operations that had returned; ``counts`` and ``complete`` as the explorer has
    them, ``timed_out`` among them."""

    trees: Trees
    counts: Mapping[str, object]


def reach(
    program: Litmus, on: RealFs | None, room: Path, budget: Budget, profile: str = ""
) -> Reached:
    """Record the program in a new folder ``room``, and see every state. Needs root."""
    files, base, source = (room / each for each in ("files", "base", "source"))
    for each in (files, base, source):
        each.mkdir(parents=True)
    perform(program.setup, source, lambda number: None)
    deadline = Deadline(600)
    if on:
        make_disk(on, source, files / DISK, room, deadline)
    else:
        copy_folder(source, files, deadline)
    copy_folder(files, base, deadline)
    with start_recording_on(on, files, room) as (recording, folder):
        perform(program.operations, folder, recording.acknowledge)
        if on:  # the kernel would, some seconds later; nobody has been told
            sync_file_system(folder)
        recording.acknowledge(MARK)
    cut_at_mark(recording.log, room / "killed.log")
    return _explore(room, on, budget, profile)


def _explore(room: Path, on: RealFs | None, budget: Budget, profile: str) -> Reached:
    out = room / "trees"
    out.touch()
    argv = [sys.executable, "-P", "-m", "support.litmus.observe", str(out)]
    if on:
        argv = [*alone_args(), *argv, on.kind, on.options]
    check = {"kind": "command", "argv": argv, "timeout_seconds": 60, "stays": True}
    request = {
        "log": str(room / "killed.log"),
        "base": str(room / "base"),
        "fault": "power",
        "sector": SECTOR,
        "check": {**check, "share_reads": False},
        "budget": {"states": budget.states, "seconds": budget.seconds, "minimise": 0},
        "threads": 1 if on else os.cpu_count(),
        **({"profile": profile} if profile else {}),
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
    counts = {**summary["states"], "timed_out": summary["timed_out"], "seconds": summary["seconds"]}
    found = _read_trees(out.read_text().splitlines())
    shutil.rmtree(room)
    return Reached(found, counts)


def _read_trees(lines: Iterable[str]) -> Trees:
    found: dict[int, set[str]] = {}
    for returned, text in map(json.loads, lines):
        found.setdefault(returned, set()).add(text)
    return {returned: frozenset(texts) for returned, texts in sorted(found.items())}
