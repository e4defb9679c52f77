"""The native explorer: a request out, findings in, with a deadline and live progress."""

from __future__ import annotations

import json
import os
import selectors
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from diskproof.crash.verdict import Explored, Loss
from diskproof.errors import RunFailure
from diskproof.process.native import require_native
from diskproof.process.start import Process, start_process
from diskproof.records.verdicts import Fault

NATIVE_FAULTS: Mapping[Fault, str] = {
    "power": "power",
    "qemu-kill": "kill",
    "lying-device": "lying-device",
}
"""The explorer's names; what an end in order leaves is one state, and not explored."""

SLACK_SECONDS = 120.0
"""Beyond the time for states: reading the log, making the loss smaller."""
_MAX_LINE = 4 << 20
# Making a loss smaller checks states one after the other.
_MINIMISE = {"ledger": 2000, "image": 100, "command": 40}


@dataclass(frozen=True)
class Shard:
    """Part ``number`` (from 1) of a search that is cut into ``of``."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


@dataclass(frozen=True)
class StateSearch:
    """One search: log and base as ``docs/crash-model.md`` has them, the writer's check, limits.

    With a ``shard`` it is one part of the search. ``threads`` None: one for each core.
    """

    log: Path
    base: Path
    fault: Fault
    check: Mapping[str, object]
    promises: int
    sector: int
    seed: int
    states: int
    seconds: float
    shard: Shard | None = None
    threads: int | None = None


def search_request(search: StateSearch) -> dict[str, object]:
    """The explorer's request."""
    return {
        **({"shard": str(search.shard)} if search.shard else {}),
        **({"threads": search.threads} if search.threads else {}),
        "log": str(search.log),
        "base": str(search.base),
        "fault": NATIVE_FAULTS[search.fault],
        "sector": search.sector,
        "seed": search.seed,
        "check": dict(search.check),
        "budget": {
            "states": search.states,
            "seconds": search.seconds,
            "minimise": _MINIMISE.get(str(search.check.get("kind")), 0),
        },
    }


class Explorer(Protocol):
    """Who looks for losses: this host (``explore``), or many (``fleet``)."""

    def __call__(
        self, search: StateSearch, room: Path, on_progress: Callable[[Explored], None]
    ) -> Explored: ...


def explore(search: StateSearch, room: Path, on_progress: Callable[[Explored], None]) -> Explored:
    """Look for losses; ends in the search's time and some slack, however long a check takes.

    ``room`` takes the request and what the explorer has to say. Losses found before a failure
    count; the failure is in the answer. Raises HostError when the explorer is not there.
    """
    request = room / f"explore-{search.fault}.json"
    request.write_text(json.dumps(search_request(search)))
    log = room / f"explore-{search.fault}.log"
    found = Explored(search.fault, search.promises, 0, None, True, 0, search.seed, 0.0)
    began = time.monotonic()
    deadline = began + search.seconds + SLACK_SECONDS
    argv = [str(require_native("diskproof-states")), "explore", str(request)]
    reader, writer = os.pipe()
    with ExitStack() as stack:
        stack.callback(os.close, reader)
        with os.fdopen(writer, "wb") as stdout:
            starting = start_process(argv, name="states", log=log, cwd=room, stdout=stdout)
            process = stack.enter_context(starting)
        try:
            for line in _read_lines(reader, deadline):
                found = take_line(found, line)
                on_progress(found)
            found = _with_end(found, process, deadline)
        except RunFailure as failure:
            found = replace(found, failure=": ".join(filter(None, (failure.what, failure.why))))
    return replace(found, seconds=time.monotonic() - began)


def _read_lines(stream: int, deadline: float) -> Iterator[bytes]:
    """Whole lines until the end of the stream. Raises RunFailure ``timeout`` or ``tool``."""
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise RunFailure("timeout", "the explorer did not end in its time")
            chunk = os.read(stream, 1 << 16)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            if len(pending) > _MAX_LINE:
                raise RunFailure("tool", "the explorer said a line without end")
            yield from lines


def _with_end(found: Explored, process: Process, deadline: float) -> Explored:
    """Whether the explorer ended well, and if not, why."""
    status = process.wait(max(0.1, deadline - time.monotonic()))
    if status == 0 or found.failure:
        return found
    tail = process.read_log(2000).decode("utf-8", "replace").strip().splitlines()[-1:]
    how = "did not end" if status is None else f"ended with status {status}"
    return replace(found, failure=f"the explorer {how}: {''.join(tail)}")


# -- lines ----------------------------------------------------------------------------------


def take_line(found: Explored, line: bytes) -> Explored:
    """What is known after one more line of the explorer. Raises RunFailure ``tool``."""
    try:
        content = json.loads(line)
        taker = _TAKERS[content["type"]]
        return taker(found, content)
    except (ValueError, KeyError, TypeError) as error:
        why = f"{type(error).__name__} in {line[:200]!r}"
        raise RunFailure("tool", "the explorer said what nobody understands", why) from None


def _take_progress(found: Explored, content: Mapping[str, Any]) -> Explored:
    planned, checked = int(content["planned"]), int(content["checked"])
    return replace(
        found,
        states_checked=checked,
        states_total=max(planned, checked),
        seconds=float(content["seconds"]),
    )


def _take_loss(found: Explored, content: Mapping[str, Any]) -> Explored:
    loss = read_loss(content)
    # It may be told before the first progress, and break off before the next.
    found = replace(found, states_checked=max(1, found.states_checked))
    worse = found.worst is None or loss.severity > found.worst.severity
    return replace(found, worst=loss) if worse else found


def _take_minimised(found: Explored, content: Mapping[str, Any]) -> Explored:
    return replace(found, smallest=read_loss(content))


def _take_summary(found: Explored, content: Mapping[str, Any]) -> Explored:
    states = content["states"]
    checked, planned = int(states["checked"]), int(states["planned"])
    # All planned states were seen and random ones brought nothing new: these are all there are.
    whole = bool(states["planned_done"]) and not content["timed_out"]
    return replace(
        found,
        worst=_final_worst(found.worst, content),
        states_checked=checked,
        states_total=checked if whole else max(planned, checked),
        estimated=not whole,
        cuts=int(content["cuts"]),
        seconds=float(content["seconds"]),
    )


def _final_worst(worst: Loss | None, content: Mapping[str, Any]) -> Loss | None:
    """The worst state as the summary has it: not every state is told on the way."""
    if content["verdict"] not in ("loses", "corrupts"):
        return worst
    return replace(
        worst or Loss(0, (), 0, 0.0),
        lost=int(content["lost"]),
        age_seconds=int(content["age_ns"] or 0) / 1e9,
        corrupt=content["verdict"] == "corrupts",
        state=str(content["state"]),
        cut=read_cut(str(content["state"])),
        order=read_order(content["order"]),
    )


def _take_error(found: Explored, content: Mapping[str, Any]) -> Explored:
    return replace(found, failure=f"{content['what']}: {content['why']}"[:2000])


_TAKERS: Mapping[str, Callable[[Explored, Mapping[str, Any]], Explored]] = {
    "progress": _take_progress,
    "loss": _take_loss,
    "minimised": _take_minimised,
    "summary": _take_summary,
    "error": _take_error,
}


def read_loss(content: Mapping[str, Any]) -> Loss:
    """A state that breaks a promise, as the explorer tells it."""
    ledger = content.get("ledger") or {}
    lost = [int(sequence) for sequence, *_ in ledger.get("lost_sequences") or ()]
    return Loss(
        cut=int(content["cut"]),
        missing=tuple(int(sequence) for sequence in content.get("missing") or ()),
        lost=int(content["lost"]),
        age_seconds=int(content.get("age_ns") or 0) / 1e9,
        corrupt=content["verdict"] == "corrupts",
        text=str(content.get("output") or "")[:2000],
        state=str(content["state"]),
        lost_sequences=tuple(lost[:1000]),
    )


def read_cut(state: str) -> int:
    """The cut in the name of a state (``power:512:46:nothing``). Raises ValueError."""
    parts = state.split(":")
    if len(parts) < 4:
        raise ValueError(f"{state!r} names no state")
    return int(parts[2])


def read_order(content: Sequence[int]) -> tuple[int, int, int]:
    """Raises ValueError."""
    pass_, cut, number = (int(part) for part in content)
    return pass_, cut, number
