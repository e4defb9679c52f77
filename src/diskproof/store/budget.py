"""How much memory reading a store may take: a small file can ask for all that a host has.

What the process holds is asked of the kernel, so nothing has to be reckoned but what comes next.
Below that stands a wall, which the kernel holds up whatever asks for memory.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from diskproof.errors import UsageError
from diskproof.units import parse_bytes, render_bytes

VARIABLE = "DISKPROOF_MEMORY"
DEFAULT_BYTES = 320 << 20
"""What a verb may take beyond what it held before it opened the store."""
RESERVE_BYTES = 48 << 20
"""What a verb's own work may take beside what it reads, until it meets the wall."""
_PAGE = resource.getpagesize()
_NARROW = 16 << 20
_RESIDENT, _DATA = 1, 5
"""Fields of ``statm``: what is in memory, and what was asked for that is ours alone."""


class MemoryBudget:
    """So much memory may be taken from here on. Raises UsageError for a size in the environment
    that is none."""

    def __init__(self) -> None:
        self.most = _allowed_bytes()
        self.held_before = _held_bytes(_RESIDENT)

    @property
    def left(self) -> int:
        """Bytes; below 0 when too much has been taken."""
        return self.most - (_held_bytes(_RESIDENT) - self.held_before)

    def require(self, more: int = 0) -> None:
        """Raises UsageError when so many bytes more would be too much."""
        # The most that was ever held costs a tenth of what is held now, and is no less.
        highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        if highest - self.held_before + more <= self.most:
            return
        if more > self.left:
            raise self.excess(more)

    def excess(self, more: int) -> UsageError:
        """What to raise when so many bytes more are known to be too much."""
        asked, most = render_bytes(self.most - self.left + more), render_bytes(self.most)
        return too_much(f"it asks for {asked}, and {most} are allowed")


_CURRENT: ContextVar[MemoryBudget | None] = ContextVar("budget", default=None)


@contextmanager
def spend(budget: MemoryBudget | None) -> Iterator[None]:
    """What is read inside the block is taken from this budget, or from one of its own."""
    token = _CURRENT.set(budget or MemoryBudget())
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_budget() -> MemoryBudget:
    return _CURRENT.get() or MemoryBudget()


def _allowed_bytes() -> int:
    text = os.environ.get(VARIABLE, "")
    if not text:
        return DEFAULT_BYTES
    try:
        return int(parse_bytes(text))
    except ValueError as error:
        raise UsageError(f"{VARIABLE}: {error}", hint="write it like 2GiB") from None


def build_wall(*, reckons: bool) -> None:
    """From here on the kernel refuses this process what no verb that only reads needs, and what it
    refuses is a MemoryError. What it starts has the same wall, unless it builds its own.

    Raises UsageError for a size in the environment that is none.
    """
    if reckons:
        _load_reckoning()
    most = _held_bytes(_DATA) + _allowed_bytes() + RESERVE_BYTES
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min([most, *known]), hard))


def stands_at_wall() -> bool:
    """Whether there is so little left that what fails may fail for the lack of it."""
    wall, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return wall != resource.RLIM_INFINITY and wall - _held_bytes(_DATA) < _NARROW


def _load_reckoning() -> None:
    """OpenBLAS (numpy's and scipy's) tries for ever to get a buffer that it is refused, or ends the
    process, so it gets it first. One thread will do for matrices of some dozen rows; else each
    processor would have a stack and a buffer."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import numpy as np
    import scipy.linalg

    matrix = np.eye(256)
    scipy.linalg.blas.dgemm(1.0, matrix @ matrix, matrix)


def too_much(why: str) -> UsageError:
    hint = f"ask for less (one --study), or, if you trust who made it, set {VARIABLE}=2GiB"
    return UsageError("what is to be read takes too much memory", why, hint)


def _held_bytes(field: int) -> int:
    statm = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(statm, 200).split()[field]) * _PAGE
    finally:
        os.close(statm)
