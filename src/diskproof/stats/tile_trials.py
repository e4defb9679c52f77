"""Runs of tiles against their service levels: what the search for the capacity is fed with.

A figure is held against the median of the one-tile runs of the same cell, over all of them that
did not fail: each workload's own time, and where it tells one its 99th percentile of latency.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from diskproof.records import Cell
from diskproof.records.metrics import JUDGED
from diskproof.records.tiles import TileRun
from diskproof.stats.boundary_belief import Trial
from diskproof.study.tiles import restore_tile

LEAST_SECONDS = 1e-6
"""A shorter time is taken as this: nothing can be told in multiples of nought."""

Baseline = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Judged:
    """One figure of one workload of one tile. ``ratio`` is how many times its limit (the service
    level times the one-tile median) it took: above 1 it missed it."""

    tile: int
    work: str
    metric: str
    value: float
    limit: float

    @property
    def ratio(self) -> float:
        return self.value / self.limit


@lru_cache(maxsize=64)
def service_levels(cell: Cell) -> Mapping[str, float]:
    """How many times its one-tile figure each workload of a tile cell may take."""
    level = float(cell.workload.option("service_level"))
    return {
        work.name: work.level_under(level)
        for work in restore_tile(cell.workload.option("tile")).works
    }


def find_baseline(runs: Iterable[TileRun]) -> Baseline:
    """Medians of one tile alone by (workload, metric), of all metrics; empty without such runs."""
    values: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run.tiles == 1 and run.failure is None:
            for work in run.works:
                for metric in work.metrics:
                    values.setdefault((work.work, metric.name), []).append(metric.value)
    return {key: statistics.median(found) for key, found in values.items()}


def judge_run(run: TileRun, baseline: Baseline) -> tuple[Judged, ...]:
    """Every figure of a run that has a service level, in the order of its workloads."""
    levels = service_levels(run.cell)
    return tuple(
        Judged(
            work.tile,
            work.work,
            name,
            max(value, LEAST_SECONDS),
            levels[work.work] * max(baseline[work.work, name], LEAST_SECONDS),
        )
        for work in run.works
        for name in JUDGED
        if (value := work.value(name)) is not None and (work.work, name) in baseline
    )


def find_trials(runs: Sequence[TileRun]) -> list[Trial]:
    """The runs of one cell as trials of the search, in their order. A run that failed, or that
    nothing can be held against, has missed."""
    baseline = find_baseline(runs)
    return [Trial(run.tiles, _worst(run, baseline)) for run in runs]


def _worst(run: TileRun, baseline: Baseline) -> float:
    if run.failure is not None:
        return math.inf
    return max((judged.ratio for judged in judge_run(run, baseline)), default=math.inf)
