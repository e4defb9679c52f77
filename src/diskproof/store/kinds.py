"""The kinds of columns: how they keep what a record says, and what they refuse to keep.

Foreign files and guests bring anything, and a store may come from a stranger: what goes in is
bounded, and ``store/gate.py`` asks the same of all that comes out.
"""

import math
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
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
from diskproof.records import Numbers, Status
from diskproof.records.tiles import Phase
from diskproof.records.verdicts import Durability, Fault
from diskproof.store.budget import current_budget

MAX_BLOB = 256 << 20
MAX_NAME = 200
MAX_LEVEL = 1000
MAX_TEXT = 4 << 20
MAX_FREE_TEXT = 64 << 10
MAX_PER_RUN = 1000
MAX_PARTS = 10_000
MAX_TILES = 1000
MAX_ARRAY = 5_000_000
MAX_BINS = 100_000
SMALL = 64 << 10
"""What is no larger is decoded without asking how much memory is left."""
MAX_NUMBER = (1 << 31) - 1
MAX_COUNT = (1 << 63) - 1

Find = Callable[[Any], str | None]


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


def _no_flaw(value: Any) -> str | None:
    return None


@dataclass(frozen=True)
class ColumnKind:
    """``find_flaw`` says why a value cannot be kept in such a column, and None for one that can.

    ``kept`` are the types that a database gives; ``decode`` makes of one what a record holds. Many
    values for which ``are_good`` holds, which may raise TypeError, need not be asked one by one. A
    value takes ``most_bytes`` of its row at most.
    """

    type: TypeEngine[Any]
    kept: Set[Any]
    find_flaw: Find = _no_flaw
    decode: Callable[[Any], Any] | None = None
    are_good: Callable[[Sequence[Any]], bool] = lambda values: False
    most_bytes: int = 4 * MAX_NAME

    def __call__(
        self, *names: str, nullable: bool = False, **options: Any
    ) -> Iterator[Column[Any]]:
        for name in names:
            yield Column(name, self.type, nullable=nullable, info={"kind": self}, **options)

    def read(self, values: Sequence[Any]) -> Sequence[Any]:
        """What values of such a column stand for. Raises one of FLAWS for any that is none."""
        with suppress(TypeError):
            if self.are_good(values):
                return values
        if not set(map(type, values)) <= self.kept:
            raise TypeError("is of another type than was written")
        read = values if self.decode is None else tuple(map(self.decode, values))
        flaws = map(self.find_flaw, read) if self.find_flaw is not _no_flaw else ()
        if flaw := next(filter(None, flaws), None):
            raise ValueError(flaw)
        return read


FLAWS = (
    *(ValueError, TypeError, AttributeError, LookupError),
    *(RecursionError, ArithmeticError, zlib.error),
)
"""What reading damaged values raises."""


def require_storable(table: Table, values: Mapping[str, Any], label: str) -> None:
    """Raises UsageError when a column of the table refuses its value."""
    for name, nullable, find_flaw in _flaws_of(table):
        if name not in values or (nullable and values[name] is None):
            continue
        if flaw := find_flaw(values[name]):
            raise refusal(f"{name} of {label}", flaw)


@cache
def _flaws_of(table: Table) -> Sequence[tuple[str, bool, Find]]:
    columns = [column for column in table.c if "kind" in column.info]
    return [
        (column.key, bool(column.nullable), column.info["kind"].find_flaw) for column in columns
    ]


def require(holds: bool, what: str, why: str) -> None:
    if not holds:
        raise refusal(what, why)


def refusal(what: str, why: str) -> UsageError:
    return UsageError(f"cannot be stored: {what}", why)


# -- text -----------------------------------------------------------------------------------


def flaw_of_name(text: str) -> str | None:
    return _flaw_of_label(text) if text else "is empty"


def _flaw_of_label(text: str) -> str | None:
    if len(text) > MAX_NAME:
        return f"longer than {MAX_NAME} characters"
    return None if text.isprintable() else f"cannot be printed: {text!r:.60}"


def _are_labels(texts: Sequence[str]) -> bool:
    """Of many texts few are different."""
    different = set(texts)
    return "".join(different).isprintable() and max(map(len, different)) <= MAX_NAME


def _one_of(words: object) -> ColumnKind:
    known = get_args(words)
    return ColumnKind(
        Text(), TEXT_ONLY, lambda word: None if word in known else f"unknown: {word!r:.40}"
    )


def clean_text(text: str, limit: int = MAX_FREE_TEXT) -> str:
    """Free text as every database can hold it: no NUL, no lone surrogates, bounded.

    A guest's console may hold anything; that is no reason to lose the run.
    """
    cleaned = text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return cleaned if len(cleaned) <= limit else cleaned[:limit] + _CUT


_CUT = " [cut]"
TEXT_ONLY = frozenset({str})
# Names are short, printable and not empty; they become column heads and file names.
NAME = ColumnKind(
    Text(), TEXT_ONLY, flaw_of_name, None, lambda names: all(names) and _are_labels(names)
)
LABEL = ColumnKind(Text(), TEXT_ONLY, _flaw_of_label, are_good=_are_labels)
FREE_TEXT = ColumnKind(
    Written(Text(), clean_text),
    TEXT_ONLY,
    decode=lambda text: clean_text(text, MAX_FREE_TEXT + len(_CUT)),
    most_bytes=4 * (MAX_FREE_TEXT + len(_CUT)),
)
FILE_TEXT = ColumnKind(
    Written(Text(), lambda text: clean_text(text, MAX_TEXT)),
    TEXT_ONLY,
    lambda text: None if len(text) <= MAX_TEXT else f"longer than {MAX_TEXT} characters",
    most_bytes=4 * MAX_TEXT,
)
STATUS, FAULT, DURABILITY, PHASE = map(_one_of, (Status, Fault, Durability, Phase))


# -- numbers --------------------------------------------------------------------------------


def flaw_of_reals(values: Iterable[float]) -> str | None:
    try:
        finite = all(map(math.isfinite, values))
    except (OverflowError, TypeError):
        finite = False
    return None if finite else "holds a value that is not a finite number"


def _between(least: int, most: int) -> Find:
    why = f"is not between {least} and {most}"
    return lambda number: None if least <= number <= most else f"{number} {why}"


def _are_finite(values: Sequence[float]) -> bool:
    return math.isfinite(sum(values)) and set(map(type, values)) == _REAL


def _whole(kept: TypeEngine[Any], least: int, most: int) -> ColumnKind:
    def are_good(values: Sequence[int]) -> bool:
        different = set(values)
        ints = set(map(type, different)) == _INT
        return ints and least <= min(different) and max(different) <= most

    return ColumnKind(kept, _INT, _between(least, most), None, are_good)


_INT, _REAL = frozenset({int}), frozenset({float})
flaw_of_count = _between(0, MAX_COUNT)
FLAG = ColumnKind(Boolean(), frozenset({int, bool}), decode={0: False, 1: True}.__getitem__)
NUMBER = _whole(Integer(), 0, MAX_NUMBER)
TILES = _whole(Integer(), 1, MAX_TILES)
EXIT_STATUS = _whole(Integer(), -MAX_NUMBER, MAX_NUMBER)
COUNT = _whole(BigInteger(), 0, MAX_COUNT)
REAL = ColumnKind(
    Written(Double(), float), _REAL, lambda value: flaw_of_reals((value,)), None, _are_finite
)
DURATION = replace(
    REAL,
    find_flaw=lambda value: REAL.find_flaw(value) or ("is below 0" if value < 0 else None),
    are_good=lambda values: False,
)


# -- arrays and files -----------------------------------------------------------------------


def _array(item: str, find_flaw: Find, most: int) -> ColumnKind:
    """At most so many little-endian numbers of 8 bytes, compressed; ``item`` is their letter in
    ``array``."""

    def pack(values: Sequence[float]) -> bytes:
        return zlib.compress(_little_endian(Numbers(item, values)).tobytes())

    def unpack(blob: bytes) -> Numbers:
        raw = _unpack_bytes(blob, 8 * most)
        if len(raw) > SMALL:
            current_budget().require(len(raw))
        return _little_endian(Numbers(item, raw))

    def find(values: Sequence[float]) -> str | None:
        too_long = len(values) > most
        return f"has more than {most} values" if too_long else find_flaw(values)

    return _blob(pack, unpack, find)


def _little_endian(numbers: Numbers) -> Numbers:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _blob(
    pack: Callable[[Any], bytes], unpack: Callable[[bytes], Any], find_flaw: Find
) -> ColumnKind:
    kept, most = Written(LargeBinary(), pack), MAX_BLOB + MAX_TEXT
    return ColumnKind(kept, frozenset({bytes}), find_flaw, unpack, most_bytes=most)


def _unpack_bytes(blob: bytes, most: int = MAX_BLOB) -> bytes:
    """Decompress at most so many bytes, and no more than may be held thrice: in pieces, joined by
    zlib, and joined here."""
    decompressor = zlib.decompressobj()
    start = decompressor.decompress(blob, SMALL)
    if not (more := decompressor.unconsumed_tail) and decompressor.eof:
        return start
    budget = current_budget()
    budget.require()
    within = max(1, min(most - SMALL, budget.left // 3))
    rest = decompressor.decompress(more, within)
    if not decompressor.eof:
        if decompressor.unconsumed_tail and within < most - SMALL:
            # Asked again, the kernel may tell of a little less than is held.
            raise budget.excess(budget.left + 1)
        raise ValueError(f"a compressed column ends early or is larger than {most} bytes")
    return start + rest


def _flaw_of_counts(counts: Sequence[int]) -> str | None:
    extremes = (min(counts, default=0), max(counts, default=0))
    return next(filter(None, map(flaw_of_count, extremes)), None)


SAMPLES = _array("d", flaw_of_reals, MAX_ARRAY)
EDGES, COUNTS = _array("d", flaw_of_reals, MAX_BINS), _array("Q", _flaw_of_counts, MAX_BINS)
CONTENT = _blob(
    zlib.compress,
    _unpack_bytes,
    lambda content: None if len(content) <= MAX_BLOB else f"larger than {MAX_BLOB} bytes",
)
