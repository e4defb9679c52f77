"""Why a program loses something: what must be missing, what would have helped, which flushes help
nobody. As the explorer tells it (docs/crash-causes.md) and as a verdict keeps it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diskproof.records.operations import Operation, read_operation

CAUSES = "causes"
"""The key of a verdict's details for what was found of its causes."""
_CORRUPTS = {"loses": False, "corrupts": True}
ODD = (ValueError, LookupError, TypeError, AttributeError, OverflowError)


@dataclass(frozen=True)
class Cure:
    """A flush of ``path`` after each operation of one step, ``flushes`` of them; ``works``: put
    into the log, no state around them lost anything by the cause."""

    path: str
    after: int
    flushes: int
    works: bool


@dataclass(frozen=True)
class Cause:
    """Operations that must be missing or torn together for something to be lost: ``state`` holds
    all up to record ``cut`` but those. ``there``: the later name that tells of it; ``alike``: all
    operations of the log of the same steps."""

    number: int
    corrupts: bool
    lost: int
    age_seconds: float
    state: str
    cut: int
    operations: tuple[Operation, ...]
    there: Operation | None
    alike: int
    states: int
    cure: Cure | None
    text: str = ""


@dataclass(frozen=True)
class Flushes:
    """Flushes of one kind of one path, or all. ``needless`` can go together, ``alone`` by
    themselves, of ``unknown`` ones nothing was found out."""

    count: int = 0
    seconds: float = 0.0
    needless: int = 0
    needless_seconds: float = 0.0
    alone: int = 0
    unknown: int = 0
    operation: str = ""
    path: str = ""


@dataclass(frozen=True)
class Causes:
    """``finished``: all planned states were seen; ``cured``: with all cures nothing was lost, None
    where that was not looked at to the end. ``failure`` is why nothing more is known."""

    found: tuple[Cause, ...] = ()
    finished: bool = False
    cured: bool | None = None
    flushes: Flushes = Flushes()
    by_path: tuple[Flushes, ...] = ()
    failure: str = ""


def find_causes(details: Mapping[str, object]) -> Causes | None:
    """What a verdict keeps of them; None where nobody looked."""
    kept = details.get(CAUSES)
    if not isinstance(kept, Mapping):
        return None
    try:
        return read_causes(kept)
    except ODD as error:
        return Causes(failure=f"what the store holds of them cannot be read: {error}")


def read_causes(content: Mapping[str, Any]) -> Causes:
    """From the explorer's lines: its summary, with those of causes as ``found``."""
    flushes = content.get("flushes") or {}
    cured = content.get("cured")
    return Causes(
        tuple(_read_cause(each) for each in _items(content.get("found"))),
        bool(content.get("finished")),
        None if cured is None else bool(cured),
        _read_flushes(flushes),
        tuple(_read_flushes(each) for each in _items(flushes.get("by_path"))),
        str(content.get("failure") or ""),
    )


def _items(listed: object) -> Sequence[Mapping[str, Any]]:
    return listed if isinstance(listed, list) else ()


def _read_cause(content: Mapping[str, Any]) -> Cause:
    cure, there = content.get("cure"), content.get("there")
    return Cause(
        int(content["number"]),
        _CORRUPTS[content["verdict"]],
        int(content["lost"]),
        int(content.get("age_ns") or 0) / 1e9,
        str(content["state"]),
        int(content["cut"]),
        tuple(map(read_operation, _items(content["operations"]))),
        read_operation(there) if there else None,
        int(content["alike"]),
        int(content["states"]),
        _read_cure(cure) if cure else None,
        str(content.get("output") or "")[:2000],
    )


def _read_cure(content: Mapping[str, Any]) -> Cure:
    numbers = int(content["after"]), int(content["flushes"])
    return Cure(str(content["path"]), *numbers, bool(content["works"]))


def _read_flushes(content: Mapping[str, Any]) -> Flushes:
    def number(name: str) -> int:
        return int(content.get(name) or 0)

    return Flushes(
        number("count"),
        number("ns") / 1e9,
        number("needless"),
        number("needless_ns") / 1e9,
        number("alone"),
        number("unknown"),
        str(content.get("operation") or ""),
        str(content.get("path") or ""),
    )
