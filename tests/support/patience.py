"""What a busy machine may disturb once and a defect disturbs each time is tried again."""

import time
from collections.abc import Callable
from typing import TypeVar

TRIES = 3
Found = TypeVar("Found")


def in_time(seconds: float, act: Callable[[], Found]) -> Found:
    """What an act gives, in less than so many seconds in one of three tries."""
    took = []
    for _ in range(TRIES):
        began = time.monotonic()
        found = act()
        took.append(time.monotonic() - began)
        if took[-1] < seconds:
            return found
    raise AssertionError(f"{took} s, where {seconds} would do")


def await_true(holds: Callable[[], bool], seconds: float = 60, *, told: object = "") -> None:
    """What comes by itself, in a while; ``told`` if it does not."""
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert holds(), told


def fewest(most: int, count: Callable[[], int], tries: int) -> int:
    """The first count that is no larger than ``most``, else the smallest of as many tries."""
    counts: list[int] = []
    while len(counts) < tries and (not counts or counts[-1] > most):
        counts.append(count())
    return min(counts)
