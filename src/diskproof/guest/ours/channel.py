"""The host's side of the agent's channel: requests out, events in, every wait with a deadline.

One thread only. Waiting for one request also takes in what belongs to others, so several programs
can run in the guest at once. Who talks to many guests waits for the ``fileno`` of all channels and
has each ``take_ready``; a request that has ended has its ``final``.
"""

import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import TypeVar, Unpack

from diskproof.errors import RunFailure
from diskproof.guest.ours import wire
from diskproof.guest.ours.jobs import MAX_OUTPUT, ClockReading, ExecOptions, GuestExecution, Job
from diskproof.guest.ours.wire import Request

ANSWER_SECONDS = 30.0  # what an emulated guest on a busy host may take to answer
_CHUNK = 1 << 16

Final = TypeVar("Final", wire.Started, wire.ProgramExit, wire.Clock, wire.Done)


class GuestGone(RunFailure):
    """The other end of the channel closed: the guest or QEMU ended."""

    def __init__(self) -> None:
        super().__init__("guest", "the guest is gone", "its channel was closed")


class Channel:
    """Talks to the agent over a connected socket.

    Every method raises RunFailure ``guest`` when the agent refuses, breaks the protocol or does
    not answer in time, and GuestGone when the other end is closed.
    """

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._partial = bytearray()
        self._lines: deque[bytes] = deque()
        self._jobs: dict[int, Job] = {}
        self._hello: wire.Hello | None = None
        self._last_number = 0

    def fileno(self) -> int:
        """The socket's descriptor, to wait until something has come."""
        return self._socket.fileno()

    def take_ready(self) -> None:
        """Take in what has come, without waiting."""
        self._pump(time.monotonic())

    @property
    def has_hello(self) -> bool:
        """Whether the agent has said hello, as far as what came was taken in."""
        return self._hello is not None

    def wait_hello(self, timeout: float) -> wire.Hello:
        """The agent's first event. It must speak our protocol."""
        deadline = time.monotonic() + timeout
        while self._hello is None:
            if not self._pump(deadline):
                raise RunFailure(
                    "guest",
                    f"the guest did not come up within {timeout:.0f} s",
                    "its agent said nothing",
                )
        if self._hello.protocol != wire.PROTOCOL:
            raise RunFailure(
                "guest",
                f"the agent speaks protocol {self._hello.protocol}, not {wire.PROTOCOL}",
                hint="diskproof guest build",
            )
        return self._hello

    def ask_start(
        self, modules: Sequence[str], root_serial: str, disk_serial: str | None, timeout: float
    ) -> Job:
        """Have the agent load drivers, mount the root and find the disk under test."""
        job = self._enter(Job(self._number(), "start"))
        request = wire.start_request(job.number, modules, root_serial, disk_serial, timeout)
        self._send(job, request)
        return job

    def wait_started(self, job: Job, timeout: float) -> wire.Started:
        """The end of an ``ask_start``, within ``timeout`` seconds from now and time to answer."""
        return self._wait(job, wire.Started, timeout + ANSWER_SECONDS)

    def start_exec(
        self, argv: Sequence[str], *, timeout: float, **options: Unpack[ExecOptions]
    ) -> Job:
        """Start a program that is killed in the guest after ``timeout`` seconds.

        ``wait_exec`` gives its end.
        """
        job = Job(
            self._number(),
            argv[0],
            limit=options.get("limit", MAX_OUTPUT),
            on_output=options.get("on_output"),
        )
        request = wire.exec_request(
            job.number,
            argv,
            seconds=timeout,
            env=options.get("env", {}),
            cwd=options.get("cwd", "/"),
            stdin=options.get("stdin"),
        )
        self._send(self._enter(job), request)
        return job

    def wait_exec(self, job: Job, timeout: float) -> GuestExecution:
        """The end of a program, within ``timeout`` seconds from now."""
        end = self._wait(job, wire.ProgramExit, timeout)
        out, err = job.data("stdout"), job.data("stderr")
        return GuestExecution(end, out, err, job.truncated)

    def exec(
        self, argv: Sequence[str], *, timeout: float, **options: Unpack[ExecOptions]
    ) -> GuestExecution:
        """Run a program to its end; ``exit.timed_out`` says that it was killed for its time."""
        job = self.start_exec(argv, timeout=timeout, **options)
        return self.wait_exec(job, timeout + ANSWER_SECONDS)

    def kill(self, job: Job, signal: int) -> None:
        """Signal the process group of a running program."""
        call = self._enter(Job(self._number(), "kill"))
        self._call(call, wire.kill_request(call.number, job.number, signal), wire.Done)

    def read_file(self, path: str, max_bytes: int, timeout: float = ANSWER_SECONDS) -> bytes:
        """A file of the guest. One larger than ``max_bytes`` is a failure."""
        job = self._enter(Job(self._number(), f"reading {path}", limit=max_bytes))
        request = wire.read_request(job.number, path, max_bytes)
        self._call(job, request, wire.Done, timeout)
        if job.truncated:
            raise RunFailure("guest", f"the guest sent more of {path} than was asked for")
        return job.data("file")

    def write_file(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Create or replace a file. Raises ValueError when it does not fit a request (768 KiB)."""
        self.wait_done(self.start_write(path, data, mode), ANSWER_SECONDS)

    def start_write(self, path: str, data: bytes, mode: int = 0o644) -> Job:
        """``write_file`` without waiting; ``wait_done`` tells how it ended."""
        job = self._enter(Job(self._number(), f"writing {path}"))
        self._send(job, wire.write_request(job.number, path, data, mode))
        return job

    def start_clock(self) -> Job:
        """Ask for a sign of life; the answer comes when the agent is well."""
        job = self._enter(Job(self._number(), "clock"))
        self._send(job, wire.clock_request(job.number))
        return job

    def wait_done(self, job: Job, timeout: float) -> None:
        """The end of a ``start_write`` or ``start_power_off``, within ``timeout`` seconds."""
        self._wait(job, wire.Done, timeout)

    def clock(self) -> ClockReading:
        """Both clocks of the guest between two readings of ours."""
        job = self._enter(Job(self._number(), "clock"))
        before = time.monotonic_ns()
        answer = self._call(job, wire.clock_request(job.number), wire.Clock)
        after = time.monotonic_ns()
        return ClockReading(answer.monotonic_ns, answer.realtime_ns, before, after)

    def power_off(self, sync: bool = False) -> None:
        """Have the guest switch itself off; it is about to when this returns."""
        self.wait_done(self.start_power_off(sync), ANSWER_SECONDS)

    def start_power_off(self, sync: bool = False) -> Job:
        """``power_off`` without waiting."""
        job = self._enter(Job(self._number(), "poweroff"))
        self._send(job, wire.poweroff_request(job.number, sync))
        return job

    def _number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _enter(self, job: Job) -> Job:
        self._jobs[job.number] = job
        return job

    def _call(
        self, job: Job, request: Request, kind: type[Final], timeout: float = ANSWER_SECONDS
    ) -> Final:
        self._send(job, request)
        return self._wait(job, kind, timeout)

    def _wait(self, job: Job, kind: type[Final], timeout: float) -> Final:
        """Take in events until this request has ended."""
        deadline = time.monotonic() + timeout
        while job.final is None:
            if not self._pump(deadline):
                raise RunFailure(
                    "guest",
                    f"the guest did not answer within {timeout:.0f} s",
                    f"it was asked for: {job.what}",
                )
        if isinstance(job.final, wire.Error):
            raise RunFailure("guest", f"{job.what} failed: {job.final.what}", job.final.why)
        if not isinstance(job.final, kind):
            raise _broken(f"{job.what} was answered with {type(job.final).__name__}")
        return job.final

    def _send(self, job: Job, request: Request) -> None:
        """Send a line, and take in what comes meanwhile: two full buffers would wait for ever."""
        try:
            line = memoryview(wire.render_request(request))
        except ValueError:
            del self._jobs[job.number]
            raise
        deadline = time.monotonic() + ANSWER_SECONDS
        while line:
            left = deadline - time.monotonic()
            readable, writable, _ = select.select(
                [self._socket], [self._socket], [], max(0.0, left)
            )
            if left <= 0:
                raise RunFailure("guest", "the guest takes no requests", f"at: {job.what}")
            if readable:
                self._receive()
            if writable:
                try:
                    line = line[self._socket.send(line) :]
                except (BrokenPipeError, ConnectionResetError):
                    raise GuestGone from None

    def _pump(self, deadline: float) -> bool:
        """Wait for events and take them in. False when there were none until the deadline."""
        if self._lines:  # a callback waits for what came with the event that it was called for
            self._take_lines()
            return True
        left = max(0.0, deadline - time.monotonic())
        readable, _, _ = select.select([self._socket], [], [], left)
        if readable:
            self._receive()
        return bool(readable)

    def _receive(self) -> None:
        try:
            chunk = self._socket.recv(_CHUNK)
        except ConnectionResetError:
            chunk = b""
        if not chunk:
            raise GuestGone
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._lines.append(bytes(self._partial + line))
            self._partial.clear()
        self._partial += rest
        self._take_lines()
        if len(self._partial) >= wire.MAX_EVENT_LINE:
            raise _broken(f"a line is longer than {wire.MAX_EVENT_LINE} bytes")

    def _take_lines(self) -> None:
        """In the order of their arrival, also when a callback takes in some of them."""
        while self._lines:
            self._take_line(self._lines.popleft())

    def _take_line(self, line: bytes) -> None:
        try:
            event = wire.parse_event(line)
        except ValueError as error:
            raise _broken(f"{error} in {line[:80]!r}") from None
        if isinstance(event, wire.Hello):
            if self._hello is not None:
                raise _broken("a second hello: the agent started anew")
            self._hello = event
        elif isinstance(event, wire.Error) and event.id is None:
            raise RunFailure("guest", f"the agent says: {event.what}", event.why)
        elif event is not None:
            self._deliver(event)

    def _deliver(self, event: wire.Reply) -> None:
        job = self._jobs.get(event.id) if event.id is not None else None
        if job is None:
            raise _broken(f"{type(event).__name__} for request {event.id}, which is not under way")
        job.take(event)
        if job.final is not None:
            self._jobs.pop(job.number, None)  # a callback may have seen its end


def _broken(why: str) -> RunFailure:
    return RunFailure("guest", "the guest broke the protocol of its channel", why)
