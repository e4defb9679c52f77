"""Mounts that only this process and its children see, so that none outlives them.

A loop device that mount(8) makes goes with its mount. Nothing has to be cleaned up after
``kill -9``: the kernel drops the namespace with its last process.
"""

import ctypes
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from diskproof.errors import HostError, RunFailure
from diskproof.process.start import run

SECONDS = 60.0
_CLONE_NEWNS = 0x00020000  # linux/sched.h
_BUSY_ATTEMPTS = 50
_BUSY_PAUSE = 0.1
_private: set[int] = set()


@contextmanager
def start_mount(arguments: Sequence[str], point: Path) -> Iterator[Path]:
    """``mount ARGUMENTS POINT`` for the length of a block. Raises HostError with mount's words."""
    enter_private_mounts()
    point.mkdir(exist_ok=True)
    done = run(["mount", *arguments, "--", str(point)], timeout=SECONDS, check=False)
    if done.returncode != 0:
        raise HostError(f"mount {' '.join(arguments)} failed", done.error_text)
    with start_unmounting(point):
        yield point


@contextmanager
def start_unmounting(point: Path) -> Iterator[None]:
    """What is mounted is no more after the block. Raises RunFailure ``tool``."""
    try:
        yield
    except BaseException:
        with suppress(RunFailure):  # it must not hide why the block ended
            _unmount(point)
        raise
    _unmount(point)


def enter_private_mounts(*, anew: bool = False) -> None:
    """Give this thread, and all that it starts, mounts of its own; ``anew``: what it has started
    so far sees nothing of them. Raises HostError."""
    thread = threading.get_native_id()
    if thread in _private and not anew:
        return
    if os.geteuid() != 0:
        raise HostError("a file system cannot be mounted", "that needs root", "run it as root")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        why = os.strerror(ctypes.get_errno())
        raise HostError("there is no mount namespace for the study", why)
    run(["mount", "--make-rslave", "/"], timeout=SECONDS)
    _private.add(thread)


def _unmount(point: Path) -> None:
    """A process that has just ended may hold a file for a moment. Raises RunFailure ``tool``."""
    if not ctypes.CDLL(None).umount2(os.fsencode(point), 0):
        return  # all that umount(8) does for what was mounted here, without a start of it
    for attempt in range(_BUSY_ATTEMPTS):
        done = run(["umount", "--", str(point)], timeout=SECONDS, check=False)
        if done.returncode == 0:
            return
        time.sleep(_BUSY_PAUSE if attempt + 1 < _BUSY_ATTEMPTS else 0)
    run(["umount", "--lazy", "--", str(point)], timeout=SECONDS, check=False)
    raise RunFailure("tool", f"{point} could not be unmounted", done.error_text)
