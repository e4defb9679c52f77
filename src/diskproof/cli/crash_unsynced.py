"""``diskproof crash unsynced``: what is not durable while a program runs, by file."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.live import Live

from diskproof.cli.terminal import console, note, print_json, progress_console
from diskproof.crash import gallery
from diskproof.crash.listing import list_unsynced
from diskproof.crash.program import NO_FLUSH, run_writer, split_command
from diskproof.crash.record import copy_folder
from diskproof.errors import Exit, UsageError
from diskproof.lab.deadline import Deadline
from diskproof.process.scratch import start_scratch_dir
from diskproof.recording.folder import Recording, require_fuse, start_recording
from diskproof.records.operations import UnsyncedJson
from diskproof.report.crash.table import render_unsynced

_COPY_SECONDS = 3600.0


def tell_unsynced(
    folder: Path | None, app: str | None, writer: str | None, seconds: float, as_json: bool
) -> int:
    """Exit code 1 when something is not durable at the end. Raises UsageError."""
    if (app is None) == (writer is None) or (folder is None) != (app is not None):
        why = "a recipe has its writer and its folder"
        raise UsageError("--writer and a folder, or --app alone, are needed", why)
    require_fuse()
    with _prepared(folder, app, writer) as (source, argv):
        found = _watch(source, argv, seconds)
    if found["promises"] and not found["flushes"]:
        note(NO_FLUSH)
    if as_json:
        print_json(found)
    else:
        console().print(render_unsynced(found))
    return Exit.FELL_SHORT if any(each["changes"] for each in found["files"]) else Exit.OK


@contextmanager
def _prepared(
    folder: Path | None, app: str | None, writer: str | None
) -> Iterator[tuple[Path, Sequence[str]]]:
    """The folder that the program starts with, and its command."""
    if app is not None:
        application = gallery.find_application(app)
        gallery.ask_version(application)
        with gallery.start_prepared(application) as made:
            yield made, split_command("--app", shlex.join(application.writer))
    elif folder is not None and writer is not None:
        if not folder.is_dir():
            raise UsageError(f"{folder} is no folder", "the program's data is copied from it")
        yield folder, split_command("--writer", writer)


def _watch(source: Path, argv: Sequence[str], seconds: float) -> UnsyncedJson:
    """Run a program on a copy of a folder, under record."""
    with start_scratch_dir(large=True) as room:
        (room / "files").mkdir()
        copy_folder(source, room / "files", Deadline(_COPY_SECONDS))
        with start_recording(room / "files", room) as recording:
            with _looking(recording, room) as look:
                heard = [*recording.hearing_syncs(), *argv]
                run_writer(heard, recording, recording.folder, room, seconds, look)
        return list_unsynced(recording.log, room)


@contextmanager
def _looking(recording: Recording, room: Path) -> Iterator[Callable[[], None] | None]:
    """On a terminal the table is renewed while the program runs."""
    if not sys.stderr.isatty():
        yield None
        return
    with Live(console=progress_console(), auto_refresh=False, transient=True) as live:

        def look() -> None:
            found = list_unsynced(recording.log, room, live=True)
            live.update(render_unsynced(found), refresh=True)

        yield look
