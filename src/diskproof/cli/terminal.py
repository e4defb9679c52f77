"""Where output goes: results on stdout, everything about the way there on stderr."""

from __future__ import annotations

import json
import sys

from rich.console import Console

PIPE_WIDTH = 120


def console() -> Console:
    """Results for people. A pipe or a file has no width of its own."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, highlight=False)


def progress_console() -> Console:
    return Console(stderr=True, highlight=False)


def note(text: str) -> None:
    """One line about the way there."""
    print(text, file=sys.stderr, flush=True)


def print_json(content: object, indent: int | None = 1) -> None:
    """JSON without the numbers that it does not have (NaN, infinities)."""
    print(json.dumps(content, indent=indent, allow_nan=False), flush=True)
