"""A child's life: known before a signal is heard, ended together with its group."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from diskproof.process.signals import signals_wait

GRACE_SECONDS = 5.0


@contextmanager
def started(
    start: Callable[[], subprocess.Popen[bytes]], finish: Callable[[subprocess.Popen[bytes]], None]
) -> Iterator[subprocess.Popen[bytes]]:
    """A child for the length of a block. A signal that comes while it starts waits until we know
    it: what else would end it?"""
    child: subprocess.Popen[bytes] | None = None
    try:
        with signals_wait():
            child = start()
        yield child
    finally:
        if child:
            finish(child)


def stop(child: subprocess.Popen[bytes]) -> None:
    """SIGTERM to its group, then SIGKILL after ``GRACE_SECONDS``."""
    try:
        with signals_wait():  # it unmounts, or writes its log's end
            if child.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGTERM)
                with suppress(subprocess.TimeoutExpired):
                    child.wait(GRACE_SECONDS)
    finally:
        kill_group(child)


def end(child: subprocess.Popen[bytes]) -> None:
    with child:  # whose pipes are closed then
        kill_group(child)


def kill_group(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
