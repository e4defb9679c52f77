"""What fio says of a job, in seconds and bytes. A bin is named by its middle, as fio names it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Latency:
    """Times in seconds of ``count`` operations. ``percentiles`` are (percent, seconds), ``bins``
    (seconds, operations); both rise, and are empty when fio was not asked for them."""

    count: int = 0
    mean: float = 0.0
    smallest: float = 0.0
    largest: float = 0.0
    percentiles: tuple[tuple[float, float], ...] = ()
    bins: tuple[tuple[float, int], ...] = ()

    def find_percentile(self, percent: float) -> float | None:
        """What fio printed for exactly this percent, in seconds."""
        return dict(self.percentiles).get(percent)


@dataclass(frozen=True)
class Direction:
    """One direction of a job. ``bandwidth`` is in bytes/s, ``runtime`` in seconds."""

    operations: int = 0
    bytes: int = 0
    iops: float = 0.0
    bandwidth: float = 0.0
    runtime: float = 0.0
    slat: Latency = Latency()
    clat: Latency = Latency()
    lat: Latency = Latency()

    @property
    def latency(self) -> Latency:
        """The distribution that fio detailed: of the whole time where it has percentiles, else
        from submission to completion."""
        return self.lat if self.lat.percentiles else self.clat


@dataclass(frozen=True)
class FioJob:
    """One job, or several clones of one taken together.

    ``error`` is an errno or 0. ``flush`` are the latencies of its syncs. ``depth_levels`` are
    (lowest depth, share of submissions), shares adding up to 1. CPU figures are percent of one CPU.
    """

    name: str
    error: int
    options: Mapping[str, str]
    read: Direction
    write: Direction
    trim: Direction
    flush: Latency
    depth_levels: tuple[tuple[int, float], ...]
    user_cpu: float
    system_cpu: float
    runtime: float
    clones: int = 1

    @property
    def error_text(self) -> str:
        return os.strerror(self.error) if self.error else ""

    def share_at_depth(self, depth: int) -> float:
        """Share of submissions that found the queue this deep, as far as fio's classes (1, 2, 4,
        ... 64) can tell."""
        reachable = [lowest for lowest, _ in self.depth_levels if lowest <= depth]
        return sum(
            share for lowest, share in self.depth_levels if lowest >= max(reachable, default=0)
        )


@dataclass(frozen=True)
class FioResult:
    """One document of fio: the jobs in its order. ``ended`` is a Unix time, ``elapsed`` seconds."""

    version: str
    ended: float
    elapsed: float
    jobs: tuple[FioJob, ...]
    options: Mapping[str, str] = field(default_factory=dict)
