"""Database writers as programs: ``python -m diskproof.crash.writers.NAME write|check FOLDER``.

``check`` is what the explorer calls in a state's folder. It works on a copy, so that a recovery
changes no state; exits 0 (keeps), 1 (loses, their number on stdout), 2 (corrupts) or 3 (the check
itself failed); and takes the promises up to the cut from ``--acks`` or DISKPROOF_ACKNOWLEDGED (a
file), else from stdin. With ``--stay`` it is asked by lines, of one state after the other, and
works in the states themselves: who asks throws them away.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

from diskproof.crash.writers import WriterContext
from diskproof.crash.writers import promised_rows as rows
from diskproof.crash.writers.promised_rows import FAILED, Found
from diskproof.errors import DiskproofError
from diskproof.process.scratch import start_scratch_dir
from diskproof.process.start import run

_START = """
import runpy, sys
try:
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
except Exception as error:
    sys.exit(print(error, file=sys.stderr) or 3)
"""
PYTHON = (sys.executable, "-P", "-c", _START)
"""How a module is started as a check: with -P no file of a state is a module of Python's, and a
module that is not there is no lost promise, as Python's own exit code 1 would have it."""
ACKNOWLEDGED = "DISKPROOF_ACKNOWLEDGED"
"""The variable in which the explorer names the file with the promises."""
EACH_STATE = "DISKPROOF_EACH_STATE"
"""The variable by which the explorer asks a check that stays to judge each state by itself."""
MAX_ACKS = 64 << 20
USAGE = 64
_MAX_ROWS = 1 << 20
_COPY_SECONDS = 600.0


class Database(Protocol):
    """A database in a folder of its own below the recorded one."""

    name: str

    def write(
        self,
        folder: Path,
        promise: Callable[[int], None],
        limit: Limit,
        settings: Mapping[str, str],
    ) -> None:
        """Commit row after row, each promised when its commit has returned."""
        ...

    def check(self, folder: Path, promised: int) -> Found:
        """What is left in a copy of the folder."""
        ...


class Limit:
    """When a writer ends: after so many rows or seconds."""

    def __init__(self, rows: int, seconds: float) -> None:
        self._rows, self._end = min(rows, _MAX_ROWS), time.monotonic() + seconds

    def numbers(self) -> Iterator[int]:
        """The rows to write."""
        for number in range(1, self._rows + 1):
            if time.monotonic() >= self._end:
                return
            yield number


def write_database(context: WriterContext, module: str, place: Path, *settings: str) -> None:
    """Have a module write its rows to ``place``. Raises RunFailure ``space`` or ``workload``."""
    from diskproof.crash.writers.program_end import require_written
    from diskproof.recording.folder import ACK_FILE

    spec = context.cell.workload
    limits = ["--records", spec.option("records"), "--seconds", spec.option("seconds")]
    sets = [word for each in settings for word in ("--set", each)]
    acks = ["--acks", str(context.recording.folder / ACK_FILE)]
    argv = [*PYTHON, module, "write", str(place), *limits, *sets, *acks]
    done = run(argv, timeout=context.seconds, check=False)
    require_written(spec.name, done.returncode, done.stderr)


def main(database: Database, arguments: Sequence[str]) -> int:
    """The program; gives its exit code."""
    try:
        options = _parse(database.name, arguments)
    except SystemExit as end:  # argparse's 2 would say that a state is corrupt
        return USAGE if end.code else 0
    try:
        if options.verb == "write":
            return _write(database, options)
        if options.stay:
            answer_lines(
                lambda state, acks: _check(database, state / options.folder, acks, nullcontext)
            )
            return 0
        return tell(_check(database, options.folder, options.acks, copied))
    except Exception as error:  # noqa: BLE001 - Python's own exit code 1 would say: lost
        return fail(error)


def _parse(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=name)
    verbs = parser.add_subparsers(dest="verb", required=True)
    write, check = verbs.add_parser("write"), verbs.add_parser("check")
    write.add_argument("folder", type=Path)
    write.add_argument("--acks", type=Path, required=True)
    write.add_argument("--records", type=int, default=256)
    write.add_argument("--seconds", type=float, default=10.0)
    write.add_argument("--set", type=_setting, action="append", default=[], metavar="NAME=VALUE")
    check.add_argument("folder", type=Path)
    check.add_argument("--acks", type=Path)
    check.add_argument("--stay", action="store_true")
    return parser.parse_args(arguments)


def _setting(text: str) -> tuple[str, str]:
    """A setting of the database: words only, for they become part of what it is told."""
    if not re.fullmatch(r"\w+=\w+", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    name, _, value = text.partition("=")
    return name, value


def _write(database: Database, options: argparse.Namespace) -> int:
    acks = os.open(options.acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def promise(number: int) -> None:
        os.write(acks, f"{rows.promise_line(database.name, number)}\n".encode())

    try:
        folder = options.folder.absolute()
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)  # no database does that: its own folder's name is the caller's
        limit = Limit(options.records, options.seconds)
        database.write(folder, promise, limit, dict(options.set))
    finally:
        os.close(acks)
    return 0


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def answer_lines(judge: Callable[[Path, Path], Found]) -> None:
    """A line in: a state and the file with its promises; a line out: code, number lost, why."""
    for line in sys.stdin:
        state, _, acks = line.rstrip("\n").partition("\t")
        found = judge(Path(state), Path(acks))
        lost = [str(found.lost)] if found.code == rows.LOSES else []
        sys.stdout.write(" ".join((str(found.code), *lost, *found.why.split())) + "\n")
        sys.stdout.flush()


def _check(
    database: Database,
    folder: Path,
    acks: Path | None,
    place: Callable[[Path], AbstractContextManager[Path]],
) -> Found:
    promised = rows.read_promised(read_acks(acks), database.name)
    if promised == 0:
        return Found(rows.KEEPS)
    if not folder.is_dir():
        return rows.all_lost(promised, f"{folder.name} is not there")
    with place(folder) as here:
        return database.check(here, promised)


def read_acks(acks: Path | None) -> list[str]:
    """The promises up to the cut, one a line."""
    named = os.environ.get(ACKNOWLEDGED)
    path = acks or (Path(named) if named else None)
    if path is None:
        content = sys.stdin.buffer.read(MAX_ACKS)
    else:
        with path.open("rb") as stream:
            content = stream.read(MAX_ACKS)
    return content.decode("utf-8", "replace").splitlines()


@contextmanager
def copied(folder: Path) -> Iterator[Path]:
    """A copy with the same owners to work on, removed at the end; others may pass its parent."""
    with start_scratch_dir(large=True) as room:
        room.chmod(0o711)
        source = folder.absolute()
        copy = room / "copy" / source.name
        copy.parent.mkdir()
        copy.parent.chmod(0o711)
        argv = ["cp", "-a", "--reflink=auto", "--sparse=always", "--", str(source), str(copy)]
        run(argv, timeout=_COPY_SECONDS)
        yield copy


def fail(error: Exception) -> int:
    """Say why there is no verdict; gives the exit code. A defect shows where it is."""
    expected = isinstance(error, (DiskproofError, OSError))
    text = str(error) if expected else "".join(traceback.format_exception(error))
    sys.stderr.write(f"{text.rstrip()}\n")
    return FAILED


def tell(found: Found) -> int:
    """Print the verdict as the explorer wants it; gives the exit code."""
    if found.why:
        sys.stderr.write(f"{found.why}\n")
    if found.code == rows.LOSES:
        sys.stdout.write(f"{found.lost}\n")
    return found.code
