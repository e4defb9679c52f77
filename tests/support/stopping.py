"""Programs that hang, since they were stopped."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_SECONDS = 30.0


def stop_whole(pid: int) -> None:
    """SIGSTOP, and wait for every thread: the signal wakes one of them, which stops the others.
    Until it has a CPU, and on a busy machine that takes a while, the others go on and answer."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _SECONDS
    while states := {state for state in _states(pid) if state != "T"}:
        assert time.monotonic() < deadline, f"{pid} has threads in state {states}"
        time.sleep(0.005)


def _states(pid: int) -> list[str]:
    """proc(5): after the name, which may hold anything, in parentheses."""
    found = []
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile
            found.append(stat.read_text().rpartition(")")[2].split()[0])
    return found
