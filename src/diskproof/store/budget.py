"""How much memory reading a store may take: a small file can ask for all that a host has.

What the process holds is asked of the kernel, so nothing has to be reckoned but what comes next.
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
_PAGE = resource.getpagesize()


class MemoryBudget:
    """So much memory may be taken from here on. Raises UsageError for a size in the environment
    that is none."""

    def __init__(self) -> None:
        self.most = _allowed_bytes()
        self.held_before = _resident_bytes()

    @property
    def left(self) -> int:
        """Bytes; below 0 when too much has been taken."""
        return self.most - (_resident_bytes() - self.held_before)

    def require(self, more: int = 0) -> None:
        """Raises UsageError when so many bytes more would be too much."""
        if more > (left := self.left):
            asked, most = render_bytes(self.most - left + more), render_bytes(self.most)
            raise UsageError(
                "reading the store takes too much memory",
                f"it asks for {asked}, and {most} are allowed",
                f"ask for one --study, or, if you trust who made it, set {VARIABLE}=2GiB",
            )


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


def _resident_bytes() -> int:
    statm = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(statm, 200).split()[1]) * _PAGE
    finally:
        os.close(statm)
