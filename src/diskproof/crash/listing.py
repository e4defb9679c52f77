"""The operations of a log by their paths, asked of the explorer, who knows every name."""

import json
import time
from pathlib import Path

from diskproof.errors import RunFailure
from diskproof.process.native import require_native
from diskproof.process.start import start_process
from diskproof.records.operations import Operation, read_operation

LIST_SECONDS = 600.0


def list_operations(log: Path, base: Path, state: str, room: Path) -> tuple[Operation, ...]:
    """The operations of a log in order; those that a ``state`` knows, if one is named.

    ``room`` takes what the explorer says. Raises RunFailure ``tool``.
    """
    listed, messages = room / "operations.jsonl", room / "operations.log"
    argv = [str(require_native("diskproof-states")), "operations", str(log), str(base)]
    deadline = time.monotonic() + LIST_SECONDS
    with listed.open("wb") as stdout:
        argv += [state] if state else []
        with start_process(argv, name="states", log=messages, cwd=room, stdout=stdout) as process:
            status = process.wait(max(0.1, deadline - time.monotonic()))
            if status:
                tail = process.read_log(2000).decode("utf-8", "replace").strip()
                raise RunFailure("tool", "the explorer did not tell what a log holds", tail)
            if status is None:
                raise RunFailure("timeout", "the explorer did not tell in time what a log holds")
    with listed.open("rb") as lines:
        return tuple(read_operation(json.loads(line)) for line in lines)
