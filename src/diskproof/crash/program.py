"""Anybody's program as the writer: it runs on a copy of a folder; a line it prints is a promise.

Or what a disk's writes were, recorded elsewhere as a log of dm-log-writes: a mark is a promise.
"""

import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from diskproof.backings import Consent, start_disk_dir
from diskproof.crash import real_fs
from diskproof.crash.block_log_import import find_disk, import_log
from diskproof.crash.record import MARK, Recorded, copy_folder, finish_recording, make_files
from diskproof.crash.writers.command import PYTHON
from diskproof.errors import RunFailure, UsageError
from diskproof.lab.deadline import Deadline
from diskproof.lab.notes import RunNotes
from diskproof.process.start import Process, start_process
from diskproof.recording.dm_log_writes import read_entries
from diskproof.recording.folder import LOG, Recording
from diskproof.records import BackingSpec, Cell, WorkloadSpec
from diskproof.study.crash import KIND, CrashRules, beside_writeback, crash_workload

NAME = "program"
RULES = CrashRules(seed=1)
NO_FLUSH = (
    "the program was promised things and no flush of it reached the disk: no fsync, fdatasync, "
    "sync, syncfs or durable write. Of sync and syncfs nothing is heard where a sandbox or another "
    "supervisor keeps diskproof from watching its system calls; --on hears them in any case"
)
BROKEN_BEFORE = (
    "the check does not hold even of what the program left without any crash: the check or the "
    "program is wrong"
)
OF_SEARCHES = ("sector", "discard_granularity", "seed", "states")
"""Rules that shape the search for losses."""
MAX_WORDS = 1000
CHECK_SECONDS = 60.0
_LOOK_SECONDS = 1.0
_LOG = "writer.log"
_MOUNTED = "diskproof.crash.writers.mounted_state"


@dataclass(frozen=True)
class WriterProgram:
    """A writer (or the log of one) and its check as words, and the folder they start from.
    ``seconds`` is the time that the writer has: what it has written by then is judged, for
    ``explore_seconds`` a fault. ``causes_seconds`` more are for the causes of what power takes;
    ``always``: and for flushes that are not needed where nothing is lost."""

    writer: tuple[str, ...] | Path
    check: tuple[str, ...]
    folder: Path
    seconds: float
    explore_seconds: float
    causes_seconds: float
    always: bool
    stays: bool = False
    """The check is started once: a state a line on its stdin, a verdict a line on its stdout."""
    on: real_fs.RealFs | None = None
    """Where the program runs; None: in a folder, under the rules of POSIX."""
    name: str = NAME
    """Of the recipe that it is from."""
    version: str = ""


@dataclass(frozen=True)
class TimeShares:
    """Half of the ``budget`` is for the writer, the rest for so many ``faults``, and as long again
    for the ``causes`` of a loss unless their seconds are named."""

    budget: float
    faults: int
    causes: float | None = None


def make_program(
    writer: str | Path, check: str, folder: Path, times: TimeShares, *, stays: bool = False
) -> WriterProgram:
    """Commands are split as a shell would, and run without one; a path is a log's.

    Raises UsageError.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", "the program's data is copied from it")
    if isinstance(writer, Path):
        find_disk(folder)
        next(read_entries(writer), None)  # what is no log is told before anything is made
        source: tuple[str, ...] | Path = writer.resolve()
    else:
        source = split_command("--writer", writer)
    words, half = split_command("--check", check), times.budget / 2
    seconds = half, half / times.faults, times.causes or half
    always = times.causes is not None
    return WriterProgram(source, words, folder.resolve(), *seconds, always, stays)


def split_command(option: str, text: str) -> tuple[str, ...]:
    """The words of a command. One that is named by a path from here is found from anywhere.

    Only its folder is resolved: many programs ask the name they were called by who they are
    (busybox, rustup) or where (the Python of a virtual environment).
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r} cannot be read", str(error)) from None
    if not words or len(words) > MAX_WORDS or any("\0" in word for word in words):
        raise UsageError(
            f"{option} {text!r} is no command", "it is split into words, as by a shell"
        )
    program = Path(words[0])
    if shutil.which(words[0]) is None:
        raise UsageError(
            f"{option}: {words[0]} is no program that is found here",
            "it is looked for from this folder, and by its name alone on PATH",
        )
    if "/" in words[0]:
        words[0] = str(program.parent.resolve() / program.name)
    return tuple(words)


def program_cells(program: WriterProgram, rules: CrashRules = RULES) -> tuple[Cell, ...]:
    """The crash cells of a program. On a file system of its own it runs twice."""
    alone = program_cell(program, rules)
    if not program.on:
        return (alone,)
    return alone, beside_writeback(alone)


def program_cell(program: WriterProgram, rules: CrashRules = RULES) -> Cell:
    """The bare host, with the commands in its options."""
    options = dict(crash_workload(rules, program.name, "host").options)
    writer = program.writer
    source = {"log": str(writer)} if isinstance(writer, Path) else {"writer": shlex.join(writer)}
    named = {
        **source,
        "check": shlex.join(program.check),
        "folder": str(program.folder),
        "seconds": f"{program.seconds:g}",
        "explore_seconds": f"{program.explore_seconds:g}",
        # What is missing on a disk are blocks, and no operations of the program.
        "causes_seconds": "0" if program.on else f"{program.causes_seconds:g}",
        "causes_of": "all" if program.always else "losses",
        **{name: options[name] for name in OF_SEARCHES if name in options},
        **({"stays": "on"} if program.stays else {}),
        **({"version": program.version} if program.version else {}),
    }
    spec = WorkloadSpec(program.name, KIND, tuple(sorted(named.items())))
    on = (("on", str(program.on)),) if program.on else ()
    return Cell((("backing", "directory"), ("frontend", "host"), *on), spec)


def is_program(cell: Cell) -> bool:
    """Whether a crash cell's writer brings its own check, which judges folders of this host."""
    return bool(cell.workload.option("check")) and cell.level("frontend") == "host"


def sent_no_flush(counts: Mapping[str, int]) -> bool:
    """Whether a recorded program took nothing of what it promised to the disk."""
    flushes = counts.get("flushes", 0) + counts.get("sync_writes", 0)
    return counts.get("acknowledgements", 0) > 0 and flushes == 0


def program_check(cell: Cell) -> dict[str, object]:
    """The check as the explorer's request takes it."""
    argv = shlex.split(cell.workload.option("check"))
    if on := real_fs.find_real_fs(cell):
        real_fs.require_root(on)
        argv = [*real_fs.alone_args(), *PYTHON, _MOUNTED, on.kind, on.options, *argv]
        return {"kind": "command", "argv": argv, "timeout_seconds": CHECK_SECONDS, "stays": True}
    stays = {"stays": True} if cell.workload.option("stays") else {}
    return {"kind": "command", "argv": argv, "timeout_seconds": CHECK_SECONDS, **stays}


@contextmanager
def start_recorded_program(
    cell: Cell, backing: BackingSpec, consent: Consent, deadline: Deadline, notes: RunNotes
) -> Iterator[Recorded]:
    """Record a program on a copy of its folder, or read what was recorded elsewhere; the copy is
    there for the length of the block.

    Raises RunFailure ``workload`` when the program fails, ``space``, ``log`` or ``timeout``.
    """
    spec, on = cell.workload, real_fs.find_real_fs(cell)
    with start_disk_dir(backing, consent) as room:
        files, source_folder = make_files(room), Path(spec.option("folder"))
        with notes.phase("copy"):
            if on:
                real_fs.make_disk(on, source_folder, files / real_fs.DISK, room, deadline)
            else:
                copy_folder(source_folder, files, deadline)
            copy_folder(files, room / "base", deadline)
        if source := spec.option("log"):
            log = room / LOG
            with notes.phase("import"):
                import_log(Path(source), find_disk(files), log, MARK)
        else:
            with (
                notes.phase("record"),
                real_fs.start_recording_on(on, files, room) as (recording, folder),
            ):
                prefix = real_fs.writer_args(cell) if on else recording.hearing_syncs()
                argv = [*prefix, *shlex.split(spec.option("writer"))]
                seconds = min(float(spec.option("seconds")), deadline.left())
                run_writer(argv, recording, folder, room, seconds)
                recording.acknowledge(MARK)
            log = recording.log
        yield finish_recording(room, files, log, notes)


def run_writer(
    argv: Sequence[str],
    recording: Recording,
    folder: Path,
    room: Path,
    seconds: float,
    look: Callable[[], None] | None = None,
) -> None:
    """Run a program in a recorded folder; each line on its stdout is a promise, which is in the
    log when its write(2) returns. Now and then somebody may ``look``.

    One that is still writing after ``seconds`` is killed: that is what it is recorded for.
    Raises RunFailure ``workload`` when it ends badly by itself.
    """
    with recording.open_promises() as promises:
        starting = start_process(
            argv, name="writer", log=room / _LOG, cwd=folder, stdout=promises.descriptor
        )
        with starting as process:
            status = _await_end(process, time.monotonic() + seconds, look)
            tail = process.read_log(4000).decode("utf-8", "replace").strip()
            process.kill()
        promises.cut() if status is None else promises.finish()
    if status:
        recording.require_room()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        why = "\n".join(tail.splitlines()[-5:])
        raise RunFailure("workload", f"the writer {how}", why, evidence=((_LOG, tail.encode()),))


def _await_end(process: Process, deadline: float, look: Callable[[], None] | None) -> int | None:
    """Its exit status, None when time is up."""
    while (left := deadline - time.monotonic()) > 0:
        status = process.wait(min(left, _LOOK_SECONDS) if look else left)
        if status is not None:
            return status
        if look:
            look()
    return None
