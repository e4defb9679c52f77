"""Real recordings of writers, and their checks run as the explorer runs them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from diskproof.backings import NO_CONSENT
from diskproof.crash.record import Recorded, start_recorded
from diskproof.crash.writers import load_writer
from diskproof.crash.writers.command import ACKNOWLEDGED
from diskproof.crash.writers.promised_rows import LOSES
from diskproof.lab.deadline import Deadline
from diskproof.lab.notes import RunNotes
from diskproof.process.start import Completed, run
from diskproof.recording.log import ACKNOWLEDGE, read_frames
from diskproof.records import BackingSpec, Cell
from diskproof.study.crash import CrashRules, crash_workload, writer_of

RULES = CrashRules(records=48, seconds=200.0)
SECONDS = 240.0


def make_cell(
    writer: str, frontend: str, rules: CrashRules = RULES, size: int = 0, **levels: str
) -> Cell:
    """A crash cell; ``filesystem`` and ``mount`` among the levels become options of the writer."""
    spec = crash_workload(rules, writer, frontend)
    own = {name: levels.pop(name) for name in ("filesystem", "mount") if name in levels}
    if size:
        own["size"] = str(size)
    spec = replace(spec, options=tuple(sorted({**dict(spec.options), **own}.items())))
    named = {"frontend": frontend, "format": "raw", **levels}
    return Cell(tuple(sorted(named.items())), spec)


@contextmanager
def start_written(cell: Cell, folder: Path) -> Iterator[Recorded]:
    """The cell's writer has written, under record, in a folder that goes at the end."""
    backing = BackingSpec("d", "directory", (("path", str(folder)),), make=True)
    with start_recorded(
        cell, backing, NO_CONSENT, "tcg", Deadline(SECONDS), RunNotes()
    ) as recorded:
        yield recorded


def read_acks(recorded: Recorded) -> list[str]:
    """What was promised, the recorder's mark of the end left out."""
    frames = (frame for frame in read_frames(recorded.killed) if frame.kind == ACKNOWLEDGE)
    return [
        line for frame in frames if not (line := frame.payload.decode()).startswith("diskproof")
    ]


def run_check(cell: Cell, state: Path, acks: list[str], room: Path) -> Completed:
    """The writer's check in a state's folder; a ledger's raw disk by its own program."""
    file = room / "acknowledged"
    file.write_text("".join(f"{line}\n" for line in acks))
    check = load_writer(writer_of(cell.workload)).check(cell)
    if check["kind"] == "ledger":
        from diskproof.process.native import require_native

        assert check["format"] == "raw"
        program = str(require_native("diskproof-ledger"))
        argv = [program, "verify", str(check["target"]), "--acks", str(file)]
    else:
        words = check["argv"]
        assert isinstance(words, list) and words[0] == sys.executable
        argv = [str(word) for word in words]
    if check.get("stays"):
        question = f"{state}\t{file}\n".encode()
        done = run(argv, timeout=SECONDS, cwd=room, stdin=question)
        code, _, said = done.stdout.partition(b" ")
        lost, _, why = said.partition(b" ") if int(code) == LOSES else (b"0", b"", said)
        return replace(done, returncode=int(code), stdout=lost.strip() + b"\n", stderr=why)
    environment = {**os.environ, ACKNOWLEDGED: str(file)}
    return run(argv, timeout=SECONDS, cwd=state, env=environment, check=False)


def ask_check(cell: Cell, states: list[Path], acks: list[str], room: Path) -> list[str]:
    """The answers of one check that stays to one state after the other."""
    file = room / "acknowledged"
    file.write_text("".join(f"{line}\n" for line in acks))
    check = load_writer(writer_of(cell.workload)).check(cell)
    words = check["argv"]
    assert check["stays"] and isinstance(words, list)
    questions = "".join(f"{state}\t{file}\n" for state in states)
    return run(words, timeout=SECONDS, cwd=room, stdin=questions.encode()).text.splitlines()
