"""Where output goes: results on stdout, everything about the way there on stderr."""

from __future__ import annotations

import json
import sys
import time

from rich.console import Console

from diskproof.units import render_seconds

PIPE_WIDTH = 120


def console() -> Console:
    """Results for people. A pipe or a file has no width of its own."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def progress_console() -> Console:
    return Console(stderr=True, highlight=False)


def note(text: str) -> None:
    """One line about the way there."""
    print(text, file=sys.stderr, flush=True)


def count_text(done: int, total: int, left: str, began: float) -> str:
    """How far an experiment is: ``[2/3, at most 20 s left]``, at its end ``[3/3, took 42 s]``.

    ``began`` is when this call began, of time.monotonic().
    """
    took = f"took {render_seconds(time.monotonic() - began)}"
    return f"[{done}/{total}, {f'{left} left' if done < total else took}]"


def print_json(content: object, indent: int | None = 1) -> None:
    """JSON without the numbers that it does not have (NaN, infinities)."""
    print(json.dumps(content, indent=indent, allow_nan=False), flush=True)
