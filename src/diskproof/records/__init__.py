"""Frozen records that cross the border between rooms."""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Literal

Status = Literal["ok", "failed"]


def canonical_json(content: object) -> str:
    """Text that is equal exactly when the content is: sorted keys, no spaces."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def content_id(content: object) -> str:
    """First 12 hex digits of the SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class WorkloadSpec:
    """One workload of a study: its name in the study, its kind and its fully resolved options.

    ``kind`` names the module in ``workloads/`` (``fio`` or ``fio-job``; imported results use
    ``imported``). ``options`` are strings in canonical spelling (bytes and seconds as plain
    numbers), complete: nothing that shapes the load is left to a default elsewhere.
    """

    name: str
    kind: str
    options: tuple[tuple[str, str], ...] = ()

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)


@dataclass(frozen=True)
class Cell:
    """One combination of levels and one workload. ``levels`` is sorted by factor name; ``names``
    are the managers that give such a disk by default (``proxmox 9``), no part of what it is."""

    levels: tuple[tuple[str, str], ...]
    workload: WorkloadSpec
    names: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def id(self) -> str:
        return content_id(
            [self.levels, self.workload.name, self.workload.kind, self.workload.options]
        )

    def level(self, factor: str, default: str = "") -> str:
        return dict(self.levels).get(factor, default)

    def levels_dict(self) -> dict[str, str]:
        return dict(self.levels)


@dataclass(frozen=True)
class Dropped:
    """Combinations left out of the plan, and why. ``count`` is in cells (workloads included)."""

    reason: str
    count: int
    example: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class PlannedRun:
    """One run to do. ``block`` counts from 0, ``position`` is the place inside its block."""

    block: int
    position: int
    cell: Cell


@dataclass(frozen=True)
class BackingSpec:
    """One ``[backings.NAME]`` table of a study, or one combination of its lists. ``kind`` names the
    module, ``on`` is the backing below, which it is made on. ``make``: a folder that is not there
    is made, and is gone after the study; no part of what it is."""

    name: str
    kind: str
    options: tuple[tuple[str, str], ...] = ()
    on: BackingSpec | None = None
    make: bool = field(default=False, compare=False)

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)

    @property
    def targets(self) -> tuple[str, ...]:
        """Devices and servers' disks that it writes on and that the study has not made."""
        if self.kind == "directory":
            return ()
        return (*self.option("path").split(), *filter(None, [self.option("uri")]))


@dataclass(frozen=True)
class BackingFacts:
    """What was probed of one backing. ``free_bytes`` is what an ordinary user may use.

    ``device``: disks are not files there, one at a time is a whole block device. ``own``: the study
    makes it, so it may be filled up. ``network``: QEMU's driver for disks that are reached over
    one; ``fio``: fio has a client of its own for them; ``flushes``: what its server was seen to do.
    ``unprobed``: why it was not made to look at it, where that would have destroyed something;
    ``o_direct`` is then a guess. ``ground`` says for people what it lies on, ``disks`` are the
    names of the lowest devices there, ``trims``: removing a file waits for them to trim it.
    ``obstacle``: why it is not to be had here; the rest is that of what it is made on.
    """

    path: str
    filesystem: str
    o_direct: bool
    o_direct_reason: str
    free_bytes: int
    device: bool = False
    own: bool = False
    network: str = ""
    fio: bool = True
    flushes: str = ""
    unprobed: str = ""
    ground: str = ""
    disks: tuple[str, ...] = ()
    trims: bool = False
    obstacle: str = ""


@dataclass(frozen=True)
class HostFacts:
    """What planning needs to know of a host; probed, never assumed.

    ``aio`` and ``formats`` are the QEMU levels that work here, ``buses`` those whose devices
    this QEMU has, ``iothread_buses`` those that take an iothread. ``reasons`` says for each
    missing level, frontend or pair why (key ``"aio=io_uring"``, ``"frontend=guest"``,
    ``"frontend=daemon,iothread=on"``). ``bounds_caches``: the page cache of a run can be bounded;
    the key of why not is ``"cache limit"``. ``minimal_guest``: what the minimal guest has,
    programs, ``"module NAME"`` and ``"bus=NAME"``; None where it is not the one that is used.
    ``idle_seconds``: the kernel pages out what nothing touched for so long; None: it does not.
    """

    memory_bytes: int
    cpus: int
    accel: Literal["kvm", "tcg"]
    accel_reason: str
    frontends: frozenset[str]
    aio: frozenset[str]
    formats: frozenset[str]
    buses: frozenset[str]
    iothread_buses: frozenset[str]
    backings: Mapping[str, BackingFacts]
    reasons: Mapping[str, str] = field(default_factory=dict)
    bounds_caches: bool = False
    minimal_guest: frozenset[str] | None = None
    idle_seconds: float | None = None


@dataclass(frozen=True)
class PhaseCosts:
    """What phases of runs take in seconds, the longest first, by so many ``runs`` of this host."""

    parts: tuple[tuple[str, float], ...] = ()
    runs: int = 0


@dataclass(frozen=True)
class Check:
    """One requested setting and what is in force; ``source`` says who was asked (QMP, fdinfo)."""

    name: str
    requested: str
    effective: str
    source: str
    ok: bool


@dataclass(frozen=True)
class Metric:
    """One figure of one run. ``primary`` marks the one a workload is ranked by."""

    name: str
    unit: str
    value: float
    higher_is_better: bool
    primary: bool = False


class Numbers(array):  # type: ignore[type-arg]
    """Many numbers in 8 bytes each, where a tuple takes five times as much; equal to any sequence
    of the same."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


@dataclass(frozen=True)
class Series:
    """A time series of one run; times are seconds since the measured workload started.

    ``source`` is ``host`` for the sampler and ``fio`` for the load generator.
    """

    source: str
    name: str
    unit: str
    times: Sequence[float]
    values: Sequence[float]


@dataclass(frozen=True)
class Histogram:
    """A latency distribution: bin upper edges in seconds with counts (fio json+ bins)."""

    name: str
    edges: Sequence[float]
    counts: Sequence[int]

    @cached_property
    def _running(self) -> Sequence[int]:
        return list(accumulate(self.counts))

    @property
    def operations(self) -> int:
        return self._running[-1] if self._running else 0

    def percentile(self, percent: float) -> float | None:
        """The nearest rank, as fio has it: the smallest edge by which at least that share of the
        operations is done. None without any; raises ValueError for what is no percentile."""
        if not 0 < percent <= 100:
            raise ValueError(f"{percent} is not a percentile; it must be above 0 and at most 100")
        running = self._running
        if not running or running[-1] == 0:
            return None
        # The small allowance keeps 99.9 % of 1000 at rank 999: 0.999 * 1000 is 999.0000000000001.
        wanted = max(1, math.ceil(percent / 100 * running[-1] * (1 - 1e-12)))
        return self.edges[bisect_left(running, wanted)]


@dataclass(frozen=True)
class Artefact:
    """A file kept whole with a run: fio's json+, a console, QEMU's log, a command line."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True)
class Failure:
    """Why a run failed; see RunFailure for the kinds."""

    kind: str
    what: str
    why: str = ""
    hint: str = ""


@dataclass(frozen=True)
class RunRecord:
    """Everything known of one finished run; stored in one transaction.

    ``started`` and ``ended`` are Unix times in seconds; ``phases`` are (name, seconds) in
    order, the costs that estimates of time are made from.
    """

    id: str
    study_id: str
    cell: Cell
    block: int
    position: int
    started: float
    ended: float
    status: Status
    host_id: str
    failure: Failure | None = None
    checks: tuple[Check, ...] = ()
    metrics: tuple[Metric, ...] = ()
    series: tuple[Series, ...] = ()
    histograms: tuple[Histogram, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class HostRecord:
    """The host a run was made on. ``id`` is stable while ``facts`` are; ``facts`` is plain JSON."""

    id: str
    name: str
    facts: Mapping[str, object]


@dataclass(frozen=True)
class Finding:
    """One thing that a host can do, cannot, or can in part.

    ``what`` was found, ``hint`` is the line to type or the package to install (empty: nothing is
    to be done). ``needed``: without it not even the frontend ``daemon`` can measure.
    """

    name: str
    ok: Literal["yes", "no", "limited"]
    what: str
    hint: str = ""
    needed: bool = False


@dataclass(frozen=True)
class StudyRecord:
    """A study as stored: its text, its seed and its planned cells.

    ``id`` hashes what shapes a run (not when to stop: blocks, rules of a race, budget), so that a
    study can be prolonged. ``origin`` is ``run`` or the import format (``kvm-perf``, ``fio``).
    """

    id: str
    name: str
    origin: str
    text: str
    seed: int
    blocks: int
    cells: tuple[Cell, ...]
    dropped: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()
    created: float = 0.0
