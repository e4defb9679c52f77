"""Who asked for an operation, and where in its program. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

MAX_FRAMES = 5
_MAX_WORD = 48


@dataclass(frozen=True)
class SourcePlace:
    """A call in a program; what is not known is empty, or 0.

    With a line ``function`` is that of the source, else that of a table of symbols, with the bytes
    behind its begin: ``save+0x1c``. ``offset`` is the address in the file ``module``.
    """

    module: str
    offset: int
    function: str
    file: str
    line: int


@dataclass(frozen=True)
class Caller:
    """The thread that asked for an operation; ``name`` is the thread's as Linux has it (comm).

    ``frames`` are the program's own calls that led to it, the innermost first, with those of a
    script's standard library; empty where nobody knows.
    """

    process: int
    thread: int
    name: str
    frames: tuple[SourcePlace, ...] = field(default=(), compare=False)
    place: SourcePlace | None = None
    """The innermost of its calls that is not the standard library's."""


def read_caller(content: Mapping[str, Any] | None) -> Caller | None:
    """A caller as the explorer tells it."""
    if content is None:
        return None
    frames = tuple(map(_read_place, (content.get("frames") or [])[:MAX_FRAMES]))
    place = int(content.get("place") or 0)
    return Caller(
        int(content["process"]),
        int(content["thread"]),
        printable(str(content["name"])[:64]),
        frames,
        frames[place] if 0 <= place < len(frames) else None,
    )


def _read_place(content: Mapping[str, Any]) -> SourcePlace:
    module, function, file = (
        printable(str(content[name])[:4096]) for name in ("module", "function", "file")
    )
    return SourcePlace(module, int(content["offset"]), function, file, int(content["line"]))


def printable(name: str) -> str:
    """Anybody may have given it; it is shown in terminals."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in name
    )


# -- words ----------------------------------------------------------------------------------


def caller_words(callers: Iterable[Caller | None]) -> str:
    """Who did all of it, in the order of the log: ``by sqlite3 (12345), at pager.c:12 (sync)``;
    empty where nobody is known."""
    places: dict[str, dict[str, None]] = {}
    for each in callers:
        if each:
            told = places.setdefault(_caller_word(each), {})
            told |= {place_word(each.place): None} if each.place else {}
    words = (f"{who}, at {' and '.join(at)}" if at else who for who, at in places.items())
    return f"by {' and '.join(words)}" if places else ""


def _caller_word(caller: Caller) -> str:
    thread = "" if caller.thread == caller.process else f", thread {caller.thread}"
    return f"{caller.name} ({caller.process}{thread})"


def place_word(place: SourcePlace) -> str:
    """``app.c:12 (save)``; without a line ``save+0x1c in app``, without a symbol ``app+0x11f4``."""
    file, module = (PurePosixPath(path).name for path in (place.file, place.module))
    function = place.function
    if len(function) > _MAX_WORD:
        function = f"{function[: _MAX_WORD - 3]}..."
    if file and place.line:
        return f"{file}:{place.line}" + (f" ({function})" if function else "")
    if function:
        return f"{function} in {file or module}"
    return f"{module}+{place.offset:#x}"


def is_by_several(callers: Iterable[Caller | None]) -> bool:
    """Whether it is worth telling of each who did it, and where."""
    return len({each for each in callers if each}) > 1
