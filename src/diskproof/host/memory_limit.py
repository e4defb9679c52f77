"""A bound on the memory of what a run starts, the page cache that it fills included.

A disk of twice the memory that could cache it is what keeps a cache from serving all of it. With a
bound of our own that memory need not be the host's: a memory control group, version 2 or 1 (the
kernel's admin-guide/cgroup-v2 and cgroup-v1/memory). Whether it held is asked of the page cache.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from diskproof.errors import RunFailure
from diskproof.host.cache import SOURCE, count_resident
from diskproof.host.memory import FIRST, GROUPS, PROC, Version, find_groups
from diskproof.process.start import joining
from diskproof.records import Check
from diskproof.units import MIB, render_bytes

PREFIX = "diskproof-limit-"
_TRIES = 50
_PAUSE_SECONDS = 0.02


def find_limit_obstacle() -> str:
    """Why no bound can be set on this host, by setting one; empty where it can."""
    try:
        with start_memory_limit(64 * MIB):
            return ""
    except RunFailure as failure:
        return failure.why


@contextmanager
def start_memory_limit(limit: int) -> Iterator[None]:
    """What is started in the block has ``limit`` bytes of memory together, caches included, and
    none of it is swapped. Raises RunFailure ``tool`` where that cannot be had."""
    version, folder = _make_group()
    try:
        _write(folder / version.limit, str(limit))
        _write(folder / version.no_swap, "0")
        with joining(folder / "cgroup.procs"):
            yield
    except OSError as error:
        raise _refusal(f"{error.filename}: {error.strerror}") from None
    finally:
        _remove(folder)


def check_resident(files: Sequence[Path], limit: int) -> Check:
    """How much of files the page cache holds, against what it was bounded to."""
    resident = sum(map(_count, files))
    told = f"{resident} bytes of the disk resident"
    return Check("bounded cache", f"at most {limit}", told, SOURCE, resident <= limit)


def _count(path: Path) -> int:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return count_resident(handle)
    finally:
        os.close(handle)


def _make_group() -> tuple[Version, Path]:
    """A new group beside ours, or where groups begin. Raises RunFailure."""
    whys = []
    for version, group, top in find_groups(PROC, GROUPS):
        parents = (group, top) if version is FIRST else (group.parent, top)
        for parent in parents:
            if not parent.is_relative_to(top) or not hands_down_memory(version, parent):
                continue
            _remove_dead(parent)
            folder = parent / f"{PREFIX}{os.getpid()}"
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                whys.append(f"{parent}: {error.strerror}")
                continue
            return version, folder
    raise _refusal("; ".join(whys) or "no control group of this host bounds memory")


def hands_down_memory(version: Version, parent: Path) -> bool:
    """Whether groups below it can have bounds."""
    if version is FIRST:
        return (parent / version.limit).exists()
    with suppress(OSError):
        return "memory" in (parent / "cgroup.subtree_control").read_text().split()
    return False


def _remove_dead(parent: Path) -> None:
    """Groups of diskproofs that were killed; one with processes in it stays."""
    for path in parent.glob(f"{PREFIX}*"):
        number = path.name.removeprefix(PREFIX)
        if number.isdecimal() and not psutil.pid_exists(int(number)):
            with suppress(OSError):
                path.rmdir()


def _remove(folder: Path) -> None:
    """A process that has just ended may take a moment to leave."""
    for _ in range(_TRIES):
        with suppress(OSError):
            folder.rmdir()
            return
        time.sleep(_PAUSE_SECONDS)


def _write(path: Path, text: str) -> None:
    """A control file; what this kernel does not have (no swap) needs no bound."""
    with suppress(FileNotFoundError):
        path.write_text(text)


def _refusal(why: str) -> RunFailure:
    what = "the page cache cannot be bounded"
    return RunFailure("tool", what, why, f"set a [protocol] size, like {render_bytes(4 << 30)}")
