"""Requests under way, and what comes for them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from diskproof.guest.ours import wire
from diskproof.guest.ours.wire import Reply

MAX_OUTPUT = 64 << 20


@dataclass(frozen=True)
class GuestExecution:
    """A program that ended in the guest. Output past its limit was dropped (``truncated``)."""

    exit: wire.ProgramExit
    stdout: bytes
    stderr: bytes
    truncated: bool


@dataclass(frozen=True)
class ClockReading:
    """The guest's clocks, and the host's CLOCK_MONOTONIC before asking and after the answer."""

    monotonic_ns: int
    realtime_ns: int
    host_before_ns: int
    host_after_ns: int


class ExecOptions(TypedDict, total=False):
    """How a program runs in the guest.

    ``env`` is its whole environment (PATH is added), ``cwd`` defaults to ``/``, without
    ``stdin`` it reads nothing. ``limit`` bounds the output that is kept, in bytes; ``on_output``
    (stream, data) sees everything as it comes.
    """

    env: Mapping[str, str]
    cwd: str
    stdin: bytes
    limit: int
    on_output: Callable[[str, bytes], None]


class Job:
    """One request: its number, its output so far, and the event that ended it."""

    def __init__(
        self,
        number: int,
        what: str,
        *,
        limit: int = MAX_OUTPUT,
        on_output: Callable[[str, bytes], None] | None = None,
    ) -> None:
        self.number = number
        self.what = what
        self.final: Reply | None = None
        self.truncated = False
        self._streams = {name: bytearray() for name in wire.STREAMS}
        self._room = limit
        self._on_output = on_output

    def data(self, stream: str) -> bytes:
        return bytes(self._streams[stream])

    def take(self, event: Reply) -> None:
        """Take in one event of this request."""
        if isinstance(event, wire.Output):
            self._take_output(event)
        else:
            self.final = event

    def _take_output(self, event: wire.Output) -> None:
        kept = event.data[: self._room]
        self._room -= len(kept)
        self.truncated |= len(kept) < len(event.data)
        self._streams[event.stream] += kept
        if self._on_output is not None:
            self._on_output(event.stream, event.data)
