"""Requests under way, and what comes for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypedDict

from diskproof.errors import RunFailure
from diskproof.guest import events
from diskproof.guest.events import Reply

MAX_OUTPUT = 64 << 20
MAX_ACKS = 1 << 18


@dataclass(frozen=True)
class ArrivedAck:
    """An acknowledged line: stamped by the guest when read there, by the host when it came."""

    line: str
    guest_ns: int
    host_ns: int


@dataclass(frozen=True)
class GuestExecution:
    """A program that ended in the guest. Output past its limit was dropped (``truncated``).

    ``acks`` is empty when they went to a callback.
    """

    exit: events.ProgramExit
    stdout: bytes
    stderr: bytes
    acks: tuple[ArrivedAck, ...]
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
    ``stdin`` it reads nothing. With ``acks`` lines written to descriptor 3 are reported at once.
    ``limit`` bounds the output that is kept, in bytes; ``on_output`` (stream, data) and
    ``on_ack`` see everything as it comes.
    """

    env: Mapping[str, str]
    cwd: str
    stdin: bytes
    acks: bool
    limit: int
    on_output: Callable[[str, bytes], None]
    on_ack: Callable[[ArrivedAck], None]


class Job:
    """One request: its number, its output so far, and the event that ended it."""

    def __init__(
        self,
        number: int,
        what: str,
        *,
        limit: int = MAX_OUTPUT,
        on_output: Callable[[str, bytes], None] | None = None,
        on_ack: Callable[[ArrivedAck], None] | None = None,
    ) -> None:
        self.number = number
        self.what = what
        self.final: Reply | None = None
        self.truncated = False
        self.acks: list[ArrivedAck] = []
        self._streams = {name: bytearray() for name in events.STREAMS}
        self._room = limit
        self._on_output = on_output
        self._on_ack = on_ack

    def data(self, stream: str) -> bytes:
        return bytes(self._streams[stream])

    def take(self, event: Reply, arrived_ns: int) -> None:
        """Take in one event of this request. Raises RunFailure for more acks than can be kept."""
        if isinstance(event, events.Output):
            self._take_output(event)
        elif isinstance(event, events.Ack):
            self._take_ack(ArrivedAck(event.line, event.monotonic_ns, arrived_ns))
        else:
            self.final = event

    def _take_output(self, event: events.Output) -> None:
        kept = event.data[: self._room]
        self._room -= len(kept)
        self.truncated |= len(kept) < len(event.data)
        self._streams[event.stream] += kept
        if self._on_output is not None:
            self._on_output(event.stream, event.data)

    def _take_ack(self, ack: ArrivedAck) -> None:
        if self._on_ack is not None:
            self._on_ack(ack)
        elif len(self.acks) < MAX_ACKS:
            self.acks.append(ack)
        else:
            raise RunFailure("guest", f"{self.what} acknowledged more than {MAX_ACKS} lines")
