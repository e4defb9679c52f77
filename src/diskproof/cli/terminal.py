"""Where output goes: results on stdout, everything about the way there on stderr."""

from __future__ import annotations

import io
import json
import os
import select
import sys
from typing import TYPE_CHECKING, Any

from diskproof.errors import HostError

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 120


def guard_streams() -> None:
    """Make stdout and stderr bear what becomes of them: closed, full, their reader gone.

    What a test has put in their place is left alone.
    """
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass  # where a stream was closed the next file to be opened would take its number
    os.close(spare)
    for name, number in (("stdout", 1), ("stderr", 2)):
        given = getattr(sys, name)
        if given is getattr(sys, f"__{name}__"):
            encoding = given.encoding if given else "utf-8"
            # A locale without some character of a table gets a question mark, not an error.
            errors = "replace" if name == "stdout" else "backslashreplace"
            raw = io.BufferedWriter(_Stream(number, "wb", closefd=False))
            stream = io.TextIOWrapper(raw, encoding=encoding, errors=errors, line_buffering=True)
            setattr(sys, name, stream)


class _Stream(io.FileIO):
    """What a reader that has seen enough (head, less) does not take is dropped: the exit code
    stays what it would have been. A result that cannot be written otherwise is an error."""

    given_up = False

    def write(self, data: Any) -> int:
        try:
            if not self.given_up:
                return super().write(data)
        except OSError as error:
            self.given_up = True
            if self.fileno() == 1 and not isinstance(error, BrokenPipeError):
                raise HostError("stdout cannot be written", error.strerror or "") from None
        return len(data)


def has_reader() -> bool:
    """Whether somebody still reads stdout."""
    poll = select.poll()
    poll.register(1, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def console() -> Console:
    """Results for people. A pipe or a file has no width of its own, unless COLUMNS gives one."""
    from rich.console import Console

    if sys.stdout.isatty():
        return Console(highlight=False)
    width = None if "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(file=_Trimmed(), width=width, highlight=False)


class _Trimmed(io.StringIO):
    """Stdout as a pipe or a file gets it: a table's lines end with their last character."""

    def write(self, text: str) -> int:
        sys.stdout.write("\n".join(line.rstrip(" ") for line in text.split("\n")))
        return len(text)

    def flush(self) -> None:
        sys.stdout.flush()


def progress_console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def note(text: str) -> None:
    """One line about the way there."""
    print(text, file=sys.stderr, flush=True)


def print_json(content: object, indent: int | None = 1) -> None:
    """JSON without the numbers that it does not have (NaN, infinities)."""
    print(json.dumps(content, indent=indent, allow_nan=False), flush=True)
