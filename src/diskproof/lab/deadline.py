"""The moment at which a run must have ended, and what sees to it whatever the run is doing.

Parts of a run take what is left for their own bound, and so end with their own evidence. What has
no bound, or does not keep it, is interrupted a little later, as Ctrl-C would: by a signal.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

from diskproof.drive import Command, Drive, Execution
from diskproof.errors import RunFailure
from diskproof.records import Check

HARD_SECONDS = 30.0
"""How long after its deadline a run is interrupted: parts that end by themselves clean up first."""
CLEANUP_SECONDS = 300.0
"""What is done after a failure may take that long; then its next step is interrupted, again and
again."""


class OutOfTime(BaseException):
    """The run is interrupted. No part of it may take this for an error of its own, as for
    KeyboardInterrupt."""


class Deadline:
    """``seconds`` from now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._armed = False

    def left(self) -> float:
        """Seconds left. Raises RunFailure ``timeout`` when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.failure()
        return left

    def failure(self) -> RunFailure:
        return RunFailure(
            "timeout",
            f"the run did not end within {self._seconds:.0f} s",
            hint="set a longer run_timeout in the study's [protocol]",
        )

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Interrupt the block when its time is over, with OutOfTime. Signals reach the main thread:
        in another one only the parts' own bounds hold."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGALRM, _interrupt)
        self._armed = True
        try:
            self._arm()
            yield
        finally:
            self._armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    @contextmanager
    def apart(self, seconds: float) -> Iterator[None]:
        """What is done in the block has so many seconds of its own, and takes none of the run's."""
        left = self._end - time.monotonic()
        self._end = time.monotonic() + seconds
        self._arm()
        yield  # after a failure nothing goes on
        self._end = time.monotonic() + left
        self._arm()

    def clean_up(self) -> None:
        """The run has failed: what it leaves is taken away in a time of its own."""
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, CLEANUP_SECONDS, CLEANUP_SECONDS)

    def _arm(self) -> None:
        if self._armed:
            left = max(0.0, self._end - time.monotonic())
            signal.setitimer(signal.ITIMER_REAL, left + HARD_SECONDS, CLEANUP_SECONDS)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise OutOfTime


class BoundedDrive(Drive):
    """A drive whose commands end with the run's deadline."""

    def __init__(self, drive: Drive, deadline: Deadline) -> None:
        super().__init__(drive.facts)
        self.drive, self.deadline = drive, deadline

    def run(self, command: Command) -> Execution:
        left = self.deadline.left()
        return self.drive.run(replace(command, timeout=min(command.timeout, left), left=left))

    def read_back(self) -> tuple[Check, ...]:
        return self.drive.read_back()
