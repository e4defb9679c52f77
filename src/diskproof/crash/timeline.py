"""The picture of one loss: the writes, flushes and promises around it, from the log. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from diskproof.recording.log import ACKNOWLEDGE, FSYNC, SYNC_WRITE, WRITE, Frame
from diskproof.records.verdicts import TraceEvent

MAX_EVENTS = 120
BEFORE = 12
"""Events shown before the first write that is missing."""

_SHOWN = frozenset({WRITE, FSYNC, ACKNOWLEDGE})


def make_timeline(
    frames: Iterable[Frame], cut: int, missing: Iterable[int], lost: Iterable[int] = ()
) -> tuple[TraceEvent, ...]:
    """Events up to the cut: from shortly before the first missing write on, at most MAX_EVENTS;
    of longer ones the middle is left out. Empty when nothing was written before the cut.

    ``lost`` are the numbers of lost records of a ledger: the acknowledgement that first promised
    one of them is ``lost``, the others are ``kept``. Without them none is marked.
    """
    gone = frozenset(missing)
    shown = [f for f in frames if f.sequence <= cut and f.kind in _SHOWN and not f.errno]
    if not shown:
        return ()
    first = next((n for n, f in enumerate(shown) if f.sequence in gone), len(shown))
    end = shown[-1].end
    promises = _mark_promises(shown, sorted(lost))
    shown = shown[max(0, first - BEFORE) :]
    began = shown[0].end
    events = [_event(frame, began, gone, promises) for frame in shown]
    events.append(TraceEvent(round((end - began) / 1e9, 6), "cut"))
    return _shortened(events)


def _mark_promises(frames: Sequence[Frame], lost: Sequence[int]) -> dict[int, str]:
    """What became of each acknowledgement of a ledger (``ledger ID N``: all up to N), by record."""
    marks, before = {}, 0
    for frame in frames if lost else ():
        words = frame.payload.split()
        if frame.kind == ACKNOWLEDGE and len(words) == 3 and words[2].isdigit():
            upto = int(words[2])
            is_lost = any(before < number <= upto for number in lost)
            marks[frame.sequence] = "lost" if is_lost else "kept"
            before = upto
    return marks


def _event(
    frame: Frame, began: int, gone: frozenset[int], promises: Mapping[int, str]
) -> TraceEvent:
    seconds = round((frame.end - began) / 1e9, 6)
    if frame.kind == FSYNC:
        return TraceEvent(seconds, "flush")
    if frame.kind == ACKNOWLEDGE:
        text = frame.payload[:80].decode("utf-8", "replace")
        return TraceEvent(seconds, "acknowledge", promises.get(frame.sequence, ""), text)
    state = "missing" if frame.sequence in gone else "kept"
    offset = int.from_bytes(frame.payload[:8], "little")
    durable = ", durable" if frame.flags & SYNC_WRITE else ""
    return TraceEvent(seconds, "write", state, f"{len(frame.payload) - 8} B at {offset}{durable}")


def _shortened(events: list[TraceEvent]) -> tuple[TraceEvent, ...]:
    if len(events) <= MAX_EVENTS:
        return tuple(events)
    half = MAX_EVENTS // 2
    return (*islice(events, half), *events[-half:])
