"""What a log holds by paths, asked of the explorer, who knows every name."""

import json
import time
from pathlib import Path

from diskproof.errors import RunFailure
from diskproof.process.native import require_native
from diskproof.process.start import start_process
from diskproof.records.operations import Operation, UnsyncedJson, read_operation

LIST_SECONDS = 600.0


def list_operations(log: Path, base: Path, state: str, room: Path) -> tuple[Operation, ...]:
    """The operations of a log in order; those that a ``state`` knows, if one is named.

    ``room`` takes what the explorer says. Raises RunFailure ``tool``.
    """
    lines = _ask(["operations", str(log), str(base), *([state] if state else [])], room)
    with lines.open("rb") as stream:
        return tuple(read_operation(json.loads(line)) for line in stream)


def list_unsynced(log: Path, room: Path, *, live: bool = False) -> UnsyncedJson:
    """What a power cut at the end of a log would take, by file; ``live`` of one that is being
    written, now. Raises RunFailure ``tool``."""
    told = _ask(["unsynced", str(log), *(["--live"] if live else [])], room)
    found: UnsyncedJson = json.loads(told.read_bytes())
    found.pop("type")  # type: ignore[typeddict-item]  # of the line
    return found


def _ask(words: list[str], room: Path) -> Path:
    """The file in ``room`` with what the explorer says of a log. Raises RunFailure ``tool``."""
    told, messages = room / f"{words[0]}.jsonl", room / f"{words[0]}.log"
    argv = [str(require_native("diskproof-states")), *words]
    deadline = time.monotonic() + LIST_SECONDS
    with told.open("wb") as stdout:
        with start_process(argv, name="states", log=messages, cwd=room, stdout=stdout) as process:
            status = process.wait(max(0.1, deadline - time.monotonic()))
            if status:
                tail = process.read_log(2000).decode("utf-8", "replace").strip()
                raise RunFailure("tool", "the explorer did not tell what a log holds", tail)
            if status is None:
                raise RunFailure("timeout", "the explorer did not tell in time what a log holds")
    return told
