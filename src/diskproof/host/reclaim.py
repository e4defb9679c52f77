"""Whether the kernel takes memory away before anybody needs it: DAMON's schemes ``pageout`` and
its module ``damon_reclaim`` (the kernel's admin-guide/mm/damon). What a cache held is then gone
though memory is free, and a warm run is not as warm as elsewhere.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from diskproof.records import Finding
from diskproof.units import render_seconds

MICROSECONDS = 1e6
_SYS = Path("/sys")
_THREADS = "kernel/mm/damon/admin/kdamonds"
_MODULE = "module/damon_reclaim/parameters"


def examine_reclaim(sys: Path = _SYS) -> Finding:
    """What the kernel reclaims of its own accord; only root reads what DAMON's threads are for."""
    threads = list((sys / _THREADS).glob("[0-9]*"))
    if any(not os.access(thread / "state", os.R_OK) for thread in threads):
        what = "DAMON is set up; only root can see whether it pages memory out"
        return Finding("page cache", "limited", what, "run doctor as root")
    idle = list(find_reclaim(sys))
    if not idle:
        return Finding("page cache", "yes", "the kernel takes none of it away while memory is free")
    what = f"the kernel pages out what nothing touched for {render_seconds(min(idle))} (DAMON)"
    hint = f"while you measure caches: echo off | sudo tee {_SYS / _THREADS}/*/state"
    if not threads:
        hint = f"while you measure caches: echo N | sudo tee {_SYS / _MODULE}/enabled"
    return Finding("page cache", "limited", f"{what}: warm caches cool down", hint)


def find_reclaim(sys: Path = _SYS) -> Iterator[float]:
    """For each that is at work: after how many seconds without an access a page is taken."""
    for thread in sorted((sys / _THREADS).glob("[0-9]*")):
        if _read(thread / "state") != "on":
            continue
        for scheme in thread.glob("contexts/*/schemes/[0-9]*"):
            if _read(scheme / "action") == "pageout":
                steps = _read_number(scheme / "access_pattern/age/min")
                attrs = scheme.parents[1] / "monitoring_attrs"
                yield steps * _read_number(attrs / "intervals/aggr_us") / MICROSECONDS
    if _read(sys / _MODULE / "enabled") == "Y":
        yield _read_number(sys / _MODULE / "min_age") / MICROSECONDS


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _read_number(file: Path) -> int:
    text = _read(file)
    return int(text) if text.isdecimal() else 0
