"""The picture of one loss: changes, flushes and promises around it, from the log. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from diskproof.records.callers import is_by_several
from diskproof.records.operations import (
    ACKNOWLEDGE,
    CONTENT,
    FLUSHES,
    Operation,
    by_words,
    operation_words,
    until,
)
from diskproof.records.verdicts import TraceEvent

MAX_EVENTS = 120
BEFORE = 12
"""Events shown before the first change that is missing."""
_MAX_TEXT = 160


def make_timeline(
    operations: Iterable[Operation], cut: int, lost: Iterable[int] = ()
) -> tuple[TraceEvent, ...]:
    """Events up to the cut: from shortly before the first missing change on, at most MAX_EVENTS;
    of longer ones the middle is left out. Empty when nothing was changed before the cut.

    ``lost`` are the numbers of lost records of a ledger: the acknowledgement that first promised
    one of them is ``lost``, the others are ``kept``. Without them none is marked.
    """
    shown = list(until(operations, cut))
    if not shown:
        return ()
    first = next((n for n, each in enumerate(shown) if each.is_absent), len(shown))
    end = max(each.end for each in shown if each.sequence <= cut or each is shown[0])
    promises = _mark_promises(shown, sorted(lost))
    shown = shown[max(0, first - BEFORE) :]
    began = shown[0].end
    several = is_by_several(each.by for each in shown)
    events = [_event(each, began, promises, several=several) for each in shown]
    events.append(TraceEvent(round((end - began) / 1e9, 6), "cut"))
    return _shortened(events)


def _mark_promises(operations: Sequence[Operation], lost: Sequence[int]) -> dict[int, str]:
    """What became of each acknowledgement of a ledger (``ledger ID N``: all up to N), by record."""
    marks, before = {}, 0
    for each in operations if lost else ():
        words = each.path.split()
        if each.kind == ACKNOWLEDGE and len(words) == 3 and words[2].isdigit():
            upto = int(words[2])
            is_lost = any(before < number <= upto for number in lost)
            marks[each.sequence] = "lost" if is_lost else "kept"
            before = upto
    return marks


def _event(
    operation: Operation, began: int, promises: Mapping[int, str], *, several: bool
) -> TraceEvent:
    seconds, text = round((operation.end - began) / 1e9, 6), operation_words(operation)[:_MAX_TEXT]
    by = f", {by_words([operation])}" if several and operation.by else ""
    if operation.kind in FLUSHES:
        return TraceEvent(seconds, "flush", "", f"{text}{by}")
    if operation.kind == ACKNOWLEDGE:
        return TraceEvent(seconds, ACKNOWLEDGE, promises.get(operation.sequence, ""), text[:80])
    state = operation.presence if operation.is_absent else "kept"
    durable = ", durable" if operation.durable else ""
    kind = "write" if operation.kind in CONTENT else "name"
    return TraceEvent(seconds, kind, state, f"{text}{durable}{by}")


def _shortened(events: list[TraceEvent]) -> tuple[TraceEvent, ...]:
    if len(events) <= MAX_EVENTS:
        return tuple(events)
    half = MAX_EVENTS // 2
    return (*islice(events, half), *events[-half:])
