"""Verbs that are native programs: they take our place, at the cost of a bare interpreter.

Only the standard library's cheapest parts are imported here.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself would cost milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

MONITOR = "diskproof-monitor"
PROGRAMS = {
    ("sync", "drop"): "diskproof-sync-drop",
    ("sync", "trace"): "diskproof-sync-trace",
    ("nocache",): "diskproof-nocache",
    ("monitor",): MONITOR,
}

HELD = "DISKPROOF_HELD_SIGNALS"
"""Tells the program what to unblock; it takes the variable away (``session/src/early.rs``)."""

PAGE_OPTIONS = ("--html", "--parquet", "--from")
"""Options of ``monitor`` that make something of a recording: our own job, as is to explain them."""


def hand_over(arguments: Sequence[str]) -> None:
    """Become the native program that a command line names; returns when it names none.

    It also returns when the program is not installed: the verb then says so.
    """
    for words in (1, 2):
        program, rest = PROGRAMS.get(tuple(arguments[:words])), arguments[words:]
        if program is None or (program == MONITOR and is_ours(rest)):
            continue
        path = f"{sys.prefix}/bin/{program}"
        if os.access(path, os.X_OK):
            become(path, rest)


def is_ours(arguments: Sequence[str]) -> bool:
    """Whether a command line of ``monitor`` has an option of ours, or asks for help."""
    ours = (*PAGE_OPTIONS, "--help", "-h")
    return any(argument.partition("=")[0] in ours for argument in arguments)


def become(path: str, arguments: Sequence[str]) -> NoReturn:
    """Replace this process: exit code, signals and terminal are the program's own."""
    # The core of `signal`, whose enumerations alone would double the start-up.
    import _signal as signal  # type: ignore[import-not-found]

    # Python ignores these two, and what is ignored stays so in the program and its command.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    # Neither our handlers nor its own would hear what comes between: it waits there.
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    held = " ".join(str(int(each)) for each in stops if each not in before)
    try:
        os.execve(path, [path, *arguments], {**os.environ, HELD: held})
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
