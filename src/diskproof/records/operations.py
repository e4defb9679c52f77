"""What the records of a log did, by operation and path, and the words for it. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypedDict

from diskproof.records.callers import Caller, caller_words, printable, read_caller

ACKNOWLEDGE = "acknowledge"
FLUSHES = frozenset({"fsync", "fdatasync", "msync", "sync"})
CONTENT = frozenset({"write", "truncate", "allocate", "zero"})
LIST_SECONDS = 600.0


@dataclass(frozen=True)
class Operation:
    """One record. ``to`` is the second path of a rename or link, the name of an extended attribute;
    the ``path`` of an acknowledgement is its text. Times are nanoseconds of the log's clock.

    ``presence`` is what became of a change in the state that was asked about: ``there``,
    ``missing`` or ``torn``; empty without a state, and for what is no change. ``by`` is None where
    the log does not say who.
    """

    sequence: int
    kind: str
    path: str
    to: str = ""
    offset: int | None = None
    bytes: int | None = None
    durable: bool = False
    begin: int = 0
    end: int = 0
    presence: str = ""
    by: Caller | None = None

    @property
    def is_absent(self) -> bool:
        return self.presence in ("missing", "torn")


class ExposedJson(TypedDict):
    """A file of which something is not durable, or was not for a while (native ``Exposed``)."""

    path: str
    changes: int
    bytes: int
    names: int
    oldest_ns: int
    longest_ns: int
    most_bytes: int


class UnsyncedJson(TypedDict):
    """A log of so many ``seconds``, at its end."""

    seconds: float
    promises: int
    flushes: int
    files: list[ExposedJson]


def read_operation(content: Mapping[str, Any]) -> Operation:
    """An operation as the explorer tells it."""
    numbers = [content.get(name) for name in ("offset", "bytes")]
    offset, size = (None if number is None else int(number) for number in numbers)
    return Operation(
        int(content["sequence"]),
        str(content["operation"]),
        printable(str(content["path"])),
        printable(str(content.get("to") or "")),
        offset,
        size,
        bool(content.get("durable")),
        int(content["begin_ns"]),
        int(content["end_ns"]),
        str(content.get("presence") or ""),
        read_caller(content.get("by")),
    )


# -- words ----------------------------------------------------------------------------------


def operation_words(operation: Operation) -> str:
    """An operation as a thing that is there or not: ``rename a -> b``, ``512 bytes of a at 0``."""
    path, kind = operation.path, operation.kind
    where = f"of {path} at {operation.offset or 0:,}"
    words = {
        "write": f"{count_bytes(operation.bytes or 0)} {where}",
        "zero": f"{operation.bytes or 0:,} zeros {where}",
        "truncate": f"truncate {path} to {count_bytes(operation.bytes or 0)}",
        "allocate": f"allocate {path} to {count_bytes(operation.bytes or 0)}",
        "setattr": f"mode or owner of {path}",
        "setxattr": f"attribute {operation.to} of {path}",
        "removexattr": f"removal of attribute {operation.to} of {path}",
        "sync": "sync of everything",
        ACKNOWLEDGE: path,
    }
    arrow = f" -> {operation.to}" if operation.to else ""
    return words.get(kind, f"{kind} {path}{arrow}")


def by_words(operations: Iterable[Operation]) -> str:
    """Who did all of it, and where; empty where nobody is known."""
    return caller_words(each.by for each in operations)


def count_bytes(number: int) -> str:
    return f"{number:,} byte{'' if number == 1 else 's'}"


def merged(operations: Sequence[Operation]) -> Iterator[Operation]:
    """The same, with writes that follow each other in a file as one."""
    last: Operation | None = None
    for each in operations:
        if last is not None and _continues(last, each):
            last = replace(last, bytes=(last.bytes or 0) + (each.bytes or 0))
            continue
        if last is not None:
            yield last
        last = each
    if last is not None:
        yield last


def _continues(one: Operation, two: Operation) -> bool:
    same = (one.kind, one.path, one.presence, one.by)
    if same != (two.kind, two.path, two.presence, two.by) or one.kind != "write":
        return False
    return (one.offset or 0) + (one.bytes or 0) == two.offset


def absence_words(operation: Operation, moves: Iterable[Operation]) -> str:
    """What is missing, and which later name gives it away: ``mkdir d is missing``, ``rename a -> b
    is there, 512 bytes of a at 0 are not``. ``moves`` are the state's renames and links."""
    verb = "are" if operation.kind in ("write", "zero") and operation.bytes != 1 else "is"
    words = operation_words(operation)
    torn = operation.presence == "torn"
    if torn and operation.kind == "rename":
        return f"{words} is there, and the old name is, too"
    there = _find_later_name(operation, moves) if operation.kind in CONTENT else None
    if there is None:
        return f"{words} {verb} {'torn' if torn else 'missing'}"
    how = f"{verb} torn" if torn else f"{verb} not"
    return f"{operation_words(there)} is there, {words} {how}"


def _find_later_name(operation: Operation, moves: Iterable[Operation]) -> Operation | None:
    """The last name that the file of a change got afterwards, if that is there."""
    found, path = None, operation.path
    for other in moves:
        later = other.sequence > operation.sequence and other.path == path
        if later and not other.is_absent:
            found = other
            path = other.to if other.kind == "rename" else path
    return found


def absences(operations: Sequence[Operation]) -> Iterator[str]:
    """All that is missing or torn in a state, oldest first."""
    moves = [each for each in operations if each.kind in ("rename", "link")]
    return (absence_words(each, moves) for each in operations if each.is_absent)


def until(operations: Iterable[Operation], cut: int) -> Iterator[Operation]:
    """Those up to a record, and with a state what was under way there."""
    return takewhile(lambda each: each.sequence <= cut or bool(each.presence), operations)
