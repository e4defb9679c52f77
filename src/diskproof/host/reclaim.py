"""Whether the kernel takes idle memory away by DAMON: schemes ``pageout`` and the module
``damon_reclaim`` (the kernel's admin-guide/mm/damon). What a cache held may then be gone though
memory is free, and a warm run is not as warm as elsewhere.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from diskproof.records import Finding
from diskproof.units import render_seconds

MICROSECONDS = 1e6
_SYS = Path("/sys")
_THREADS = "kernel/mm/damon/admin/kdamonds"
_MODULE = "module/damon_reclaim/parameters"


@dataclass(frozen=True)
class Reclaim:
    """One that is at work: a page may be taken after so many seconds without an access; ``switch``
    is the file that ends it when ``off`` is written there."""

    seconds: float
    switch: Path
    off: str


def examine_reclaim(sys: Path = _SYS) -> Finding:
    """What DAMON may take of the page cache. Schemes have quotas and watermarks: may, not does."""
    name = "page cache"
    switches = [*(sys / _THREADS).glob("[0-9]*/state"), sys / _MODULE / "enabled"]
    if any(file.exists() and not os.access(file, os.R_OK) for file in switches):
        what = "only root can see whether DAMON pages memory out"
        return Finding(name, "limited", what, "run doctor as root")
    found = sorted(find_reclaim(sys), key=lambda each: each.seconds)
    if not found:
        return Finding(name, "yes", "no DAMON scheme pages it out")
    idle = render_seconds(found[0].seconds)
    what = f"the kernel may page out what nothing touched for {idle} (DAMON): warm caches cool down"
    offs = [f"echo {each.off} | sudo tee {each.switch}" for each in found]
    hint = f"while you measure caches: {'; '.join(dict.fromkeys(offs))}"
    return Finding(name, "limited", what, hint)


def find_reclaim(sys: Path = _SYS) -> Iterator[Reclaim]:
    """All that are at work, as root sees them."""
    for thread in sorted((sys / _THREADS).glob("[0-9]*")):
        if _read(thread / "state") != "on":
            continue
        for scheme in thread.glob("contexts/*/schemes/[0-9]*"):
            if _read(scheme / "action") == "pageout":
                steps = _read_number(scheme / "access_pattern/age/min")
                attrs = scheme.parents[1] / "monitoring_attrs"
                seconds = steps * _read_number(attrs / "intervals/aggr_us") / MICROSECONDS
                yield Reclaim(seconds, thread / "state", "off")
    if _read(sys / _MODULE / "enabled") == "Y":
        seconds = _read_number(sys / _MODULE / "min_age") / MICROSECONDS
        yield Reclaim(seconds, sys / _MODULE / "enabled", "N")


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _read_number(file: Path) -> int:
    text = _read(file)
    return int(text) if text.isdecimal() else 0
