"""The kinds of columns: how they keep what a record says, and what they refuse to keep.

Foreign files and guests bring anything, and every reader trusts a store: what goes in is bounded,
and what comes out is decoded with care, for a store may come from a stranger.
"""

import dataclasses
import json
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Double,
    Integer,
    LargeBinary,
    Table,
    Text,
)
from sqlalchemy.types import TypeDecorator, TypeEngine

from diskproof.errors import UsageError
from diskproof.records import Check, Dropped, Status
from diskproof.records.tiles import Phase
from diskproof.records.verdicts import Durability, Fault, TraceEvent

MAX_BLOB = 256 << 20
MAX_NAME = 200
MAX_LEVEL = 1000
MAX_TEXT = 4 << 20
MAX_FREE_TEXT = 64 << 10
MAX_PER_RUN = 1000
MAX_PARTS = 10_000
MAX_TILES = 1000
MAX_ARRAY = 5_000_000
MAX_NUMBER = (1 << 31) - 1
MAX_COUNT = (1 << 63) - 1

_Find = Callable[[Any], str | None]


class Written(TypeDecorator[Any]):
    """A column that gives values another form when they are written."""

    impl = Text
    cache_ok = True

    def __init__(self, kept: TypeEngine[Any], encode: Callable[[Any], Any]) -> None:
        super().__init__()
        self.kept = kept
        self.encode = encode

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return self.kept

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return None if value is None else self.encode(value)


class Encoded(Written):
    """A column whose values are decoded when they are read. Raises UsageError for damage."""

    cache_ok = True

    def __init__(
        self, kept: TypeEngine[Any], encode: Callable[[Any], Any], decode: Callable[[Any], Any]
    ) -> None:
        super().__init__(kept, encode)
        self.decode = decode

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        try:
            return self.decode(value)
        except (ValueError, TypeError, AttributeError, RecursionError, zlib.error) as error:
            raise UsageError("the store holds damaged data", f"{error}") from None


@dataclass(frozen=True)
class ColumnKind:
    """``find_flaw`` says why a value cannot be kept in such a column, and None for one that can."""

    type: TypeEngine[Any]
    find_flaw: _Find = lambda value: None

    def __call__(
        self, *names: str, nullable: bool = False, **options: Any
    ) -> Iterator[Column[Any]]:
        for name in names:
            info = {"find_flaw": self.find_flaw}
            yield Column(name, self.type, nullable=nullable, info=info, **options)


def require_storable(table: Table, values: Mapping[str, Any], label: str) -> None:
    """Raises UsageError when a column of the table refuses its value."""
    for name, nullable, find_flaw in _flaws_of(table):
        if name not in values or (nullable and values[name] is None):
            continue
        if flaw := find_flaw(values[name]):
            raise refusal(f"{name} of {label}", flaw)


@cache
def _flaws_of(table: Table) -> Sequence[tuple[str, bool, _Find]]:
    columns = [column for column in table.c if "find_flaw" in column.info]
    return [(column.key, bool(column.nullable), column.info["find_flaw"]) for column in columns]


def require(holds: bool, what: str, why: str) -> None:
    if not holds:
        raise refusal(what, why)


def refusal(what: str, why: str) -> UsageError:
    return UsageError(f"cannot be stored: {what}", why)


# -- text -----------------------------------------------------------------------------------


def _flaw_of_name(text: str) -> str | None:
    return _flaw_of_label(text) if text else "is empty"


def _flaw_of_label(text: str) -> str | None:
    if len(text) > MAX_NAME:
        return f"longer than {MAX_NAME} characters"
    return None if text.isprintable() else f"cannot be printed: {text!r:.60}"


def _one_of(words: object) -> ColumnKind:
    known = get_args(words)
    return ColumnKind(Text(), lambda word: None if word in known else f"unknown: {word!r:.40}")


def clean_text(text: str, limit: int = MAX_FREE_TEXT) -> str:
    """Free text as every database can hold it: no NUL, no lone surrogates, bounded.

    A guest's console may hold anything; that is no reason to lose the run.
    """
    cleaned = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return cleaned if len(cleaned) <= limit else cleaned[:limit] + " [cut]"


# Names are short, printable and not empty; they become column heads and file names.
NAME = ColumnKind(Text(), _flaw_of_name)
LABEL = ColumnKind(Text(), _flaw_of_label)
FREE_TEXT = ColumnKind(Written(Text(), clean_text))
FILE_TEXT = ColumnKind(
    Written(Text(), lambda text: clean_text(text, MAX_TEXT)),
    lambda text: None if len(text) <= MAX_TEXT else f"longer than {MAX_TEXT} characters",
)
STATUS, FAULT, DURABILITY, PHASE = map(_one_of, (Status, Fault, Durability, Phase))


# -- numbers --------------------------------------------------------------------------------


def _flaw_of_reals(values: Iterable[float]) -> str | None:
    try:
        finite = all(map(math.isfinite, values))
    except (OverflowError, TypeError):
        finite = False
    return None if finite else "holds a value that is not a finite number"


def _between(least: int, most: int) -> _Find:
    why = f"is not between {least} and {most}"
    return lambda number: None if least <= number <= most else f"{number} {why}"


_flaw_of_count = _between(0, MAX_COUNT)
FLAG = ColumnKind(Boolean())
NUMBER = ColumnKind(Integer(), _between(0, MAX_NUMBER))
TILES = ColumnKind(Integer(), _between(1, MAX_TILES))
EXIT_STATUS = ColumnKind(Integer(), _between(-MAX_NUMBER, MAX_NUMBER))
COUNT = ColumnKind(BigInteger(), _flaw_of_count)
REAL = ColumnKind(Written(Double(), float), lambda value: _flaw_of_reals((value,)))
DURATION = ColumnKind(
    REAL.type, lambda value: REAL.find_flaw(value) or ("is below 0" if value < 0 else None)
)


# -- arrays and files -----------------------------------------------------------------------


def _array(item: str, find_flaw: _Find) -> ColumnKind:
    """Little-endian numbers of 8 bytes, compressed; ``item`` is their letter in ``struct``."""

    def pack(values: Sequence[float]) -> bytes:
        return zlib.compress(struct.pack(f"<{len(values)}{item}", *values))

    def unpack(blob: bytes) -> tuple[Any, ...]:
        raw = _unpack_bytes(blob)
        return struct.unpack(f"<{len(raw) // 8}{item}", raw[: len(raw) // 8 * 8])

    def find(values: Sequence[float]) -> str | None:
        too_long = len(values) > MAX_ARRAY
        return f"has more than {MAX_ARRAY} values" if too_long else find_flaw(values)

    return ColumnKind(Encoded(LargeBinary(), pack, unpack), find)


def _unpack_bytes(blob: bytes) -> bytes:
    """Decompress at most MAX_BLOB bytes."""
    decompressor = zlib.decompressobj()
    content = decompressor.decompress(blob, MAX_BLOB)
    if not decompressor.eof:
        raise ValueError(f"a compressed column ends early or is larger than {MAX_BLOB} bytes")
    return content


def _flaw_of_counts(counts: Sequence[int]) -> str | None:
    extremes = (min(counts, default=0), max(counts, default=0))
    return next(filter(None, map(_flaw_of_count, extremes)), None)


FLOATS = _array("d", _flaw_of_reals)
COUNTS = _array("Q", _flaw_of_counts)
CONTENT = ColumnKind(
    Encoded(LargeBinary(), zlib.compress, _unpack_bytes),
    lambda content: None if len(content) <= MAX_BLOB else f"larger than {MAX_BLOB} bytes",
)


# -- JSON -----------------------------------------------------------------------------------


def render_json(content: object) -> str:
    """Plain ASCII JSON (no text can break a database's encoding). Raises ValueError for NaN."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(content: Any) -> object:
    """Records in JSON are lists of their fields."""
    return dict(content) if isinstance(content, Mapping) else dataclasses.astuple(content)


def _json(decode: Callable[[Any], Any], find_flaw: _Find = lambda content: None) -> ColumnKind:
    return ColumnKind(
        Encoded(Text(), render_json, lambda text: decode(json.loads(text))), find_flaw
    )


def _list(decode: Callable[[Any], Any], most: int, find_flaw: _Find) -> ColumnKind:
    """A list of at most so many records; ``find_flaw`` is asked of each."""

    def find(items: Sequence[Any]) -> str | None:
        too_many = len(items) > most
        return f"more than {most}" if too_many else next(filter(None, map(find_flaw, items)), None)

    return _json(lambda content: tuple(map(decode, content)), find)


def _flaw_of_object(content: Mapping[str, object]) -> str | None:
    try:
        text = render_json(content)
    except (TypeError, ValueError, RecursionError) as error:
        return f"not plain JSON: {error}"
    return None if len(text) <= MAX_TEXT else f"longer than {MAX_TEXT} characters"


def _flaw_of_tally(tally: Mapping[str, int]) -> str | None:
    flaws = (_flaw_of_name(name) or _flaw_of_count(count) for name, count in tally.items())
    return next(filter(None, flaws), None)


def _flaw_of_check(check: Check) -> str | None:
    length = sum(map(len, (check.name, check.requested, check.effective, check.source)))
    return None if length <= MAX_FREE_TEXT else f"one is longer than {MAX_FREE_TEXT} characters"


def _pair(content: Any) -> tuple[str, str]:
    name, level = content
    return str(name), str(level)


def _pairs(most: int) -> ColumnKind:
    def find_flaw(pair: tuple[str, str]) -> str | None:
        name, level = pair
        too_long = f"{name!r} is longer than {most} characters" if len(level) > most else None
        return _flaw_of_name(name) or too_long

    return _list(_pair, MAX_PER_RUN, find_flaw)


def _phase(content: Any) -> tuple[str, float]:
    name, seconds = content
    return str(name), float(seconds)


def _event(content: Any) -> TraceEvent:
    seconds, kind, state, text = content
    return TraceEvent(float(seconds), str(kind), str(state), str(text))


def _dropped(content: Any) -> Dropped:
    reason, count, example = content
    return Dropped(str(reason), int(count), tuple(map(_pair, example)))


LEVELS, OPTIONS = _pairs(MAX_LEVEL), _pairs(MAX_TEXT)
PHASES = _list(_phase, MAX_PER_RUN, lambda phase: _flaw_of_reals(phase[1:]))
CHECKS = _list(lambda content: Check(*content), MAX_PARTS, _flaw_of_check)
EVENTS = _list(_event, MAX_PARTS, lambda event: _flaw_of_reals((event.seconds,)))
NUMBERS = _list(int, MAX_PARTS, _flaw_of_count)
DROPPED = _json(lambda content: tuple(map(_dropped, content)))
TEXTS = _json(lambda content: tuple(map(str, content)))
TALLY = _json(lambda content: {str(name): int(n) for name, n in content.items()}, _flaw_of_tally)
OBJECT = _json(lambda content: content, _flaw_of_object)
