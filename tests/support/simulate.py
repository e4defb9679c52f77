"""A simulated executor: seeded noise behind the real one's protocol.

For tests and demonstrations of scheduling, store, statistics and report in a second. It knows the
truth (``true_iops``), so that what the analysis says can be held against it. It never stands in
for a measurement: its host says what it is.
"""

import hashlib
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Protocol

from diskproof.lab.course import Outcome, run_course
from diskproof.measure.next import Best, MeasureCampaign, MeasureEvent
from diskproof.plan import estimate_seconds
from diskproof.records import (
    Artefact,
    Cell,
    Failure,
    Histogram,
    HostRecord,
    Metric,
    PlannedRun,
    RunRecord,
    Series,
    StudyRecord,
    canonical_json,
    content_id,
)
from diskproof.stats.study_race import RaceState
from diskproof.store import Store, open_store
from diskproof.units import parse_bytes

# Multipliers of speed, of the order that the articles we want to repeat report.
EFFECTS: Mapping[tuple[str, str], float] = {
    ("frontend", "daemon"): 0.7,
    ("frontend", "guest"): 0.35,
    ("format", "qcow2"): 0.9,
    ("format", "qed"): 0.8,
    ("cache", "unsafe"): 2.5,
    ("cache", "writeback"): 1.6,
    ("cache", "writethrough"): 0.4,
    ("cache", "directsync"): 0.3,
    ("aio", "native"): 1.1,
    ("aio", "io_uring"): 1.15,
    ("bus", "ide"): 0.3,
    ("bus", "ahci"): 0.5,
    ("preallocation", "full"): 1.15,
}
BASE_IOPS = 20_000.0
LATENCY_SPREAD = 0.6  # sigma of the log-normal latency
BINS_PER_DOUBLING = 8
OPERATIONS = 50_000


@dataclass(frozen=True)
class Simulation:
    """What the simulated host is like.

    ``cv``: coefficient of variation of runs of one cell. ``drift``: relative change of speed per
    1,000 s of simulated time. ``failure_rate``: share of runs that fail. ``effects``: multipliers
    of speed by (factor, level).
    """

    seed: int = 1
    cv: float = 0.05
    drift: float = 0.0
    failure_rate: float = 0.0
    effects: Mapping[tuple[str, str], float] = field(default_factory=lambda: EFFECTS)


SIMULATED_HOST = HostRecord(
    content_id("simulated host"),
    "simulated",
    {"simulated": True, "note": "no disk was touched; these figures are made up"},
)


@contextmanager
def start_store(place: Path | str) -> Iterator[Store]:
    """A new store that knows the simulated host."""
    with open_store(str(place), create=True) as store:
        store.add_host(SIMULATED_HOST)
        yield store


def true_iops(cell: Cell, effects: Mapping[tuple[str, str], float] = EFFECTS) -> float:
    """The speed that runs of a cell scatter around (the median of the log-normal noise)."""
    block = parse_bytes(cell.workload.option("bs", "4k"))
    depth = int(cell.workload.option("iodepth", "1"))
    flushed = 0.2 if cell.workload.option("fsync", "0") != "0" else 1.0
    load: float = (4096 / block) ** 0.7 * depth**0.5 * flushed
    return BASE_IOPS * load * math.prod(effects.get(level, 1.0) for level in cell.levels)


class SimulatedExecutor:
    """Executes planned runs in no time, on a clock of its own (``now``, seconds)."""

    def __init__(
        self, study_id: str, simulation: Simulation | None = None, started: float = 1e9
    ) -> None:
        self.study_id = study_id
        self.simulation = simulation or Simulation()
        self._clock = started

    def now(self) -> float:
        return self._clock

    def execute(self, planned: PlannedRun) -> RunRecord:
        """One run; the same figures for the same seed, block, cell and time of day."""
        simulation, cell = self.simulation, planned.cell
        rng = _generator(simulation.seed, planned)
        started, seconds = self._clock, estimate_seconds(cell) * rng.uniform(0.95, 1.1)
        self._clock += seconds
        if rng.random() < simulation.failure_rate:
            failure = Failure("workload", "the simulated load failed", "by chance, as asked for")
            return self._record(planned, started, failure=failure)
        speed = true_iops(cell, simulation.effects) * math.exp(_noise(simulation.cv, rng))
        speed *= math.exp(simulation.drift * (started - 1e9) / 1000)
        return self._record(planned, started, speed=speed, rng=rng)

    def _record(
        self,
        planned: PlannedRun,
        started: float,
        *,
        failure: Failure | None = None,
        speed: float = 0.0,
        rng: random.Random | None = None,
    ) -> RunRecord:
        histograms = _histograms(planned.cell, speed) if rng else ()
        return RunRecord(
            id=content_id([self.study_id, planned.block, planned.cell.id, started]),
            study_id=self.study_id,
            cell=planned.cell,
            block=planned.block,
            position=planned.position,
            started=started,
            ended=self._clock,
            status="failed" if failure else "ok",
            host_id=SIMULATED_HOST.id,
            failure=failure,
            metrics=_metrics(planned.cell, speed, histograms) if rng else (),
            series=_series(planned.cell, speed, rng) if rng else (),
            histograms=histograms,
            artefacts=(_note(planned.cell),),
            phases=(("simulated", self._clock - started),),
        )


class Executes(Protocol):
    def execute(self, planned: PlannedRun) -> RunRecord: ...


@dataclass(frozen=True)
class Measured(Outcome):
    """How a call ended, and what its campaign knew then."""

    races: tuple[RaceState, ...]
    best: tuple[Best, ...]


def ignore(event: MeasureEvent) -> None:
    pass


def run_study(
    study: StudyRecord,
    schedule: Sequence[PlannedRun],
    executor: Executes,
    store: Store,
    *,
    on_event: Callable[[MeasureEvent], None] = ignore,
    budget_seconds: float | None = None,
    retry: bool = False,
    patience: float = 60.0,
    now: Callable[[], float] = time.monotonic,
) -> Measured:
    """The real loop and campaign, with an executor that measures nothing."""
    campaign = MeasureCampaign(study, schedule, executor.execute, store)
    outcome = run_course(
        campaign,
        describe=str,
        on_event=on_event,
        budget_seconds=budget_seconds,
        retry=retry,
        patience=patience,
        now=now,
    )
    best = tuple(campaign.best.values())
    return Measured(**vars(outcome), races=campaign.races, best=best)


def plain_run(
    cell: Cell, number: int, metrics: tuple[Metric, ...], series: tuple[Series, ...] = ()
) -> RunRecord:
    """A run of ``=study`` that went well, in a block of its own."""
    return RunRecord(
        id=f"{cell.id}-{number}",
        study_id="=study",
        cell=cell,
        block=number,
        position=0,
        started=1e9,
        ended=1e9 + 1,
        status="ok",
        host_id=SIMULATED_HOST.id,
        metrics=metrics,
        series=series,
    )


def _generator(seed: int, planned: PlannedRun) -> random.Random:
    """A generator of the run's own: its figures do not depend on what ran before."""
    key = f"diskproof simulation {seed} {planned.block} {planned.cell.id}"
    return random.Random(int.from_bytes(hashlib.sha256(key.encode()).digest()))


def _noise(cv: float, rng: random.Random) -> float:
    """Normal on the log scale with that coefficient of variation: sigma^2 = ln(1 + cv^2)."""
    return rng.gauss(0.0, math.sqrt(math.log1p(cv * cv)))


def _directions(cell: Cell) -> dict[str, float]:
    """Share of the operations by direction."""
    rw = cell.workload.option("rw", "randread")
    if rw in ("rw", "readwrite", "randrw"):
        reads = int(cell.workload.option("rwmixread", "50")) / 100
        return {"read": reads, "write": 1 - reads}
    return {"write" if "write" in rw else "read": 1.0}


def _histograms(cell: Cell, speed: float) -> tuple[Histogram, ...]:
    """Log-normal latencies by direction, and of the flushes where there are any."""
    depth = int(cell.workload.option("iodepth", "1"))
    typical = depth / speed * math.exp(-(LATENCY_SPREAD**2) / 2)
    found = [
        _histogram(name, typical, round(OPERATIONS * share))
        for name, share in _directions(cell).items()
        if share
    ]
    flushed_every = int(cell.workload.option("fsync", "0"))
    if flushed_every:
        found.append(_histogram("flush", 4 * typical, OPERATIONS // flushed_every))
    return tuple(found)


def _histogram(name: str, typical: float, operations: int) -> Histogram:
    law = NormalDist(0.0, LATENCY_SPREAD)
    steps = range(-4 * BINS_PER_DOUBLING, 5 * BINS_PER_DOUBLING)
    logs = [step / BINS_PER_DOUBLING * math.log(2) for step in steps]
    shares = [law.cdf(high) - law.cdf(low) for low, high in zip(logs, logs[1:], strict=False)]
    edges = tuple(round(typical * math.exp(high), 9) for high in logs[1:])
    return Histogram(name, edges, tuple(round(operations * share) for share in shares))


def _metrics(cell: Cell, speed: float, histograms: tuple[Histogram, ...]) -> tuple[Metric, ...]:
    primary = cell.workload.option("primary", "iops")
    mib = parse_bytes(cell.workload.option("bs", "4k")) / (1 << 20)
    shares = _directions(cell)
    found = [
        Metric("iops", "1/s", speed, True, primary == "iops"),
        Metric("bandwidth", "MiB/s", speed * mib, True, primary == "bandwidth"),
    ]
    for name, share in shares.items() if len(shares) > 1 else ():
        found.append(Metric(f"{name}_iops", "1/s", speed * share, True))
        found.append(Metric(f"{name}_bandwidth", "MiB/s", speed * share * mib, True))
    for histogram in histograms:
        prefix = f"{histogram.name}_" if len(shares) > 1 and histogram.name in shares else ""
        found += _latencies(histogram, prefix)
    if len(shares) > 1:  # the slower direction speaks for the whole
        found += _latencies(max(histograms[: len(shares)], key=lambda each: each.edges[-1]), "")
    return tuple(found)


def _latencies(histogram: Histogram, prefix: str) -> list[Metric]:
    if histogram.name == "flush":
        return [Metric("flush_p99", "s", histogram.percentile(99) or 0.0, False)]
    count = sum(histogram.counts)
    mean = sum(e * n for e, n in zip(histogram.edges, histogram.counts, strict=True)) / count
    return [
        Metric(f"{prefix}latency_mean", "s", mean, False),
        *(
            Metric(f"{prefix}latency_p{p:g}", "s", histogram.percentile(p) or 0.0, False)
            for p in (50, 99, 99.9)
        ),
    ]


def _series(cell: Cell, speed: float, rng: random.Random) -> tuple[Series, ...]:
    """Speed and host CPU over the run, twice a second."""
    ticks = max(2, min(240, int(2 * float(cell.workload.option("runtime", "10")))))
    times = tuple(tick / 2 for tick in range(ticks))
    speeds = tuple(speed * math.exp(rng.gauss(0, 0.08)) for _ in times)
    busy = tuple(min(100.0, max(0.0, rng.gauss(40, 5))) for _ in times)
    return (
        Series("fio", "iops", "1/s", times, speeds),
        Series("host", "cpu_user", "%", times, busy),
    )


def _note(cell: Cell) -> Artefact:
    text = canonical_json({"simulated": True, "levels": cell.levels_dict()})
    return Artefact("simulation.json", "application/json", text.encode())
