"""Where in a TOML text a key or value stands, so that an error can name its line.

tomllib keeps no positions. This scan is tolerant: it reads headers and ``key =`` at the start of
lines, which is how people write study files, and answers with the nearest line it is sure of.
"""

import difflib
import os
import re
import select
import stat
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from diskproof.errors import StudyError

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]#]+?)\s*\]\]?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=""")

Location = tuple[str | int, ...]


def read_text(file: Path, most: int, seconds: float = 5.0) -> str:
    """A file's text, as ``read_bytes`` has it."""
    return read_bytes(file, most, seconds).decode()


def read_bytes(file: Path, most: int, seconds: float = 5.0) -> bytes:
    """At most so many bytes of a file; a pipe has so many ``seconds`` for all of it.

    Raises OSError, or ValueError for a device, for more bytes, and when a pipe does not end.
    """
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb", buffering=0) as stream:
        if not stat.S_ISREG(mode := os.fstat(handle).st_mode) and not stat.S_ISFIFO(mode):
            raise ValueError("it is not a file")
        ready, data = select.poll(), bytearray()
        ready.register(handle, select.POLLIN)
        ends = time.monotonic() + seconds
        while len(data) <= most:
            # A file may lie on a slow network; a pipe's writer may not want to end.
            left = seconds if stat.S_ISREG(mode) else ends - time.monotonic()
            if left <= 0 or not ready.poll(1000 * left):
                raise ValueError(f"it did not end within {seconds:g} s")
            if not (chunk := stream.read(most + 1 - len(data))):
                break
            data += chunk
    if len(data) > most:
        raise ValueError(f"larger than {most >> 10} KiB")
    return bytes(data)


def parse_toml(text: str, file: str, hint: str = "") -> dict[str, Any]:
    """A file's content. Raises StudyError, with ``hint`` where it is about ``workloads``."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number may be too long for Python
        line = re.search(r"at line (\d+)", str(error))
        where = f"{file}:{line[1]}" if line else file
        hint = hint if "workloads" in str(error) else ""
        raise StudyError(f"{where}: not valid TOML", str(error), hint) from None


def find_line(text: str, path: Sequence[str | int], value: object = None) -> int | None:
    """Line number (from 1) of ``path`` such as ``("factors", "cache")`` or ``("only", 1, "bus")``.

    With ``value`` the first line from there on that shows it. None when nothing matches.
    """
    wanted = [str(part) for part in path]
    best: tuple[int, int] | None = None  # (matched parts, line)
    for number, key in _keys(text):
        depth = _shared(wanted, key)
        if depth and (best is None or depth > best[0]):
            best = (depth, number)
    if best is None:
        return None
    return _find_value(text, best[1], value) or best[1]


def _keys(text: str) -> list[tuple[int, list[str]]]:
    """Every header and key with its full path; arrays of tables count from 0."""
    found: list[tuple[int, list[str]]] = []
    table: list[str] = []
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _split(header[2])
            if header[1] == "[[":
                name = ".".join(table)
                counts[name] = counts.get(name, -1) + 1
                table = [*table, str(counts[name])]
            found.append((number, table))
        elif key := _KEY.match(line):
            found.append((number, [*table, *_split(key[1])]))
    return found


def _split(dotted: str) -> list[str]:
    return [part.strip().strip("\"'") for part in dotted.split(".")]


def _shared(wanted: Sequence[str], key: Sequence[str]) -> int:
    """How many parts of ``key`` lead the way to ``wanted``; 0 when it leads elsewhere."""
    return len(key) if list(wanted[: len(key)]) == list(key) else 0


def _find_value(text: str, start: int, value: object) -> int | None:
    if value is None:
        return None
    wanted = re.compile(r"(?<![\w.-])" + re.escape(shown(value, str)) + r"(?![\w.-])")
    for number, line in enumerate(text.splitlines()[start - 1 : start + 199], start):
        if number > start and (_HEADER.match(line) and not line.lstrip().startswith('["')):
            return None
        if wanted.search(line):
            return number
    return None


# -- words of messages ----------------------------------------------------------------------


def dotted(location: Location) -> str:
    return ".".join(map(str, location))[:100] or "the file"


def shown(value: object, render: Callable[[object], str] = repr) -> str:
    """A value as a message shows it, or as the file may have it."""
    try:
        return render(value)[:70]
    except ValueError:  # Python refuses to write a number of more than 4300 digits
        return "so long a number"


def unknown(what: str, value: str, known: Iterable[str]) -> str:
    """The message for a name nobody knows, with the closest one that somebody does."""
    names = list(known)
    close = difflib.get_close_matches(value, names, 1, 0.5)
    guess = f"; did you mean {close[0]!r}?" if close else ""
    return f"unknown {what} {value[:70]!r}{guess} (known: {', '.join(names)})"
