"""A kernel that takes idle memory away leaves it alone while a test measures what a cache keeps."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path

import pytest

from diskproof.host.reclaim import find_reclaim

_STOPPED = Path("/run/diskproof-tests-reclaim")
"""What is stopped, a file and what stood in it a line: a test that was killed is made good here."""


@contextmanager
def stopped_reclaim() -> Iterator[None]:
    """DAMON takes nothing in this block, of which there is one at a time. Skips the test where it
    cannot be stopped; an ordinary user neither sees nor stops it."""
    if os.geteuid() != 0:
        yield
        return
    with _STOPPED.open("a+") as stream:
        flock(stream, LOCK_EX)
        _go_on()
        found = {each.switch: each.off for each in find_reclaim()}
        _STOPPED.write_text("".join(f"{file}\t{file.read_text().strip()}\n" for file in found))
        try:
            for switch, off in found.items():
                switch.write_text(off)
        except OSError as error:
            _go_on()
            pytest.skip(f"the kernel takes idle memory away, and cannot be stopped: {error}")
        try:
            yield
        finally:
            _go_on()


def _go_on() -> None:
    for line in _STOPPED.read_text().splitlines():
        switch, _, before = line.partition("\t")
        Path(switch).write_text(before)
    _STOPPED.write_text("")
