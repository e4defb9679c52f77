"""A child's life: known before a signal is heard, ended together with its group."""

import os
import signal
import subprocess
import time
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
    deadline = time.monotonic() + 60  # it ends as soon as the kernel lets it
    while _lives(child.pid) and time.monotonic() < deadline:
        time.sleep(0.002)


def _lives(group: int) -> bool:
    """Whether somebody of it still has files open: what is stored in mapped ones is written as one
    ends. An orphan that nobody reaps has ended."""
    try:
        os.killpg(group, 0)
    except OSError:  # nobody is there, or somebody else's process that we could not kill either
        return False
    import psutil

    for process in psutil.process_iter(["status", "num_threads"]):
        status, threads = process.info["status"], process.info["num_threads"] or 0
        with suppress(ProcessLookupError):
            if os.getpgid(process.pid) == group and (status, threads) != (psutil.STATUS_ZOMBIE, 1):
                return True
    return False
