"""One step in one guest: its files, its modules, its program, one request after the other.

Nothing here waits: ``RunningStep.advance`` goes on as far as the guest has answered.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from diskproof.errors import RunFailure
from diskproof.guest.ours.channel import ANSWER_SECONDS, Channel
from diskproof.guest.ours.jobs import GuestExecution, Job
from diskproof.tiles.steps import TileStep
from diskproof.units import render_bytes

MAX_OUTPUT = 4 << 20
"""Bytes that a step may print."""
TAIL = 64 << 10
_LINES = 5
_CHORE_SECONDS = 60.0
_ENDED_BY = "was killed by signal"
KILLED = f"{_ENDED_BY} {signal.SIGKILL:d}"
"""How a failure ends of a program that nobody but the kernel kills."""
_STANDING = ("/", "/dev/shm", "/run", "/tmp")


@dataclass(frozen=True)
class Station:
    """A guest as the engine sees it. ``environment`` is that of its steps, ``modules`` names what
    its root has (name to paths, in load order). ``watched`` are further descriptors to wait for,
    each with what takes in what came there and raises RunFailure when that is the end.
    ``check`` does so for what comes without a sign, a few times a minute. ``explain`` adds to a
    failure what is known of the end of its QEMU."""

    tile: int
    name: str
    channel: Channel
    environment: Mapping[str, str] = field(default_factory=dict)
    modules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    watched: Mapping[int, Callable[[], None]] = field(default_factory=dict)
    check: Callable[[], None] = lambda: None
    explain: Callable[[RunFailure], RunFailure] = lambda failure: failure

    @property
    def title(self) -> str:
        return f"tile {self.tile} {self.name}"

    def file_name(self, name: str) -> str:
        """The name of something that is kept of this guest."""
        return f"tile-{self.tile}.{self.name}.{name}"


class RunningStep:
    """A step under way; or a rest, which no guest hears of.

    Times are of time.monotonic(): ``started`` when its program was asked for (its rest began),
    ``ended`` when its end was heard; None before that. ``due`` is when it must be looked at, if
    nothing comes from the guest. ``advance`` raises RunFailure for what the guest refuses, for a
    program that ends with another status than 0, and for one that does not end in time.
    """

    def __init__(self, station: Station, step: TileStep) -> None:
        self.station, self.step = station, step
        self.began = time.monotonic()
        self.started: float | None = None
        self.ended: float | None = None
        self.status: int | None = None
        self.due = self.began
        self.stdout = b""
        self._tails: dict[str, bytearray] = {}
        self._job: Job | None = None
        self._requests = self._ask() if step.argv else self._rest()

    @property
    def seconds(self) -> float:
        """What an ended step took."""
        assert self.started is not None and self.ended is not None
        return self.ended - self.started

    def advance(self) -> bool:
        """Go on as far as there are answers; whether the step has ended."""
        while self._job is None or self._job.final is not None:
            try:
                self._job = next(self._requests)
            except StopIteration:
                return True
            if self._job is None:  # a rest that is not over
                return False
        if time.monotonic() > self.due:
            raise self.failure("timeout", "the guest does not answer", f"to: {self._job.what}")
        return False

    def failure(self, kind: str, said: str, why: str = "", hint: str = "") -> RunFailure:
        """What went wrong, with the step's name and its last output."""
        what = f"{self.station.title}, {self.step.phase}, step {self.step.name}: {said}"
        return RunFailure(kind, what, why, hint, self.evidence())

    def evidence(self) -> tuple[tuple[str, bytes], ...]:
        """The last that it said so far."""
        return tuple(
            (self.station.file_name(f"{self.step.name}.{stream}"), bytes(tail))
            for stream, tail in sorted(self._tails.items())
        )

    def _rest(self) -> Iterator[None]:
        self.started = self.began
        self.due = self.began + self.step.idle
        while time.monotonic() < self.due:
            yield None
        self.ended, self.status = time.monotonic(), 0

    def _ask(self) -> Iterator[Job]:
        """The step's requests, each made when the one before has its end."""
        channel, step = self.station.channel, self.step
        yield from self._prepare()
        self.started = time.monotonic()
        job = channel.start_exec(
            step.argv,
            timeout=step.timeout,
            env=self.station.environment,
            limit=MAX_OUTPUT,
            on_output=self._keep_tail,
        )
        yield self._await(job, step.timeout)
        self.ended = time.monotonic()
        self._judge(channel.wait_exec(job, 0))

    def _prepare(self) -> Iterator[Job]:
        channel, step = self.station.channel, self.step
        folders = {str(PurePosixPath(path).parent) for path in step.files}
        if made := sorted(folders.difference(_STANDING)):
            yield from self._chore(["mkdir", "-p", "--", *made])
        for path, content in step.files.items():
            try:
                job = channel.start_write(path, content, 0o755)
            except ValueError as error:
                raise self.failure("guest", f"{path} cannot be written", str(error)) from None
            yield self._await(job, _CHORE_SECONDS)
            channel.wait_done(job, 0)
        for name in step.modules:
            if name not in self.station.modules:
                raise self.failure("guest", f"its root has no kernel module {name}")
            for path in self.station.modules[name]:
                yield from self._chore(["insmod", path], allowed=b"File exists")

    def _chore(self, argv: Sequence[str], allowed: bytes | None = None) -> Iterator[Job]:
        job = self.station.channel.start_exec(argv, timeout=_CHORE_SECONDS)
        yield self._await(job, _CHORE_SECONDS)
        done = self.station.channel.wait_exec(job, 0)
        if done.exit.code != 0 and not (allowed and allowed in done.stderr):
            why = done.stderr.decode("utf-8", "replace").strip()
            raise self.failure("guest", f"{argv[0]} failed", why[-500:])

    def _await(self, job: Job, timeout: float) -> Job:
        self.due = time.monotonic() + timeout + ANSWER_SECONDS
        return job

    def _judge(self, done: GuestExecution) -> None:
        """Take in the end of the program. Raises RunFailure unless its status is 0."""
        end, step = done.exit, self.step
        self.status = end.code if end.code is not None else -(end.signal or 0)
        self.stdout = done.stdout
        why = self._last_lines()
        if end.timed_out:
            self.status = None
            hint = f"set a longer timeout for {step.work}" if step.work else ""
            raise self.failure("timeout", f"it did not end within {step.timeout:g} s", why, hint)
        if self.status != 0:
            kind = "guest" if step.phase == "setup" else "workload"
            how = f"{_ENDED_BY} {end.signal}" if end.signal else f"ended with {end.code}"
            raise self.failure(kind, f"it {how}", why)
        if done.truncated:
            said = f"it prints more than {render_bytes(MAX_OUTPUT)}"
            raise self.failure("workload", said, hint="redirect its output to a file")

    def _keep_tail(self, stream: str, data: bytes) -> None:
        tail = self._tails.setdefault(stream, bytearray())
        tail += data
        del tail[:-TAIL]

    def _last_lines(self) -> str:
        """The last that it said, errors first."""
        for stream in ("stderr", "stdout"):
            text = bytes(self._tails.get(stream, b"")).decode("utf-8", "replace").strip()
            if text:
                return "\n".join(line[:300] for line in text.splitlines()[-_LINES:])
        return "it said nothing"
