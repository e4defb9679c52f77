"""What the analysis of a study says beside the ranking: factors, stability, where variance lies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import TYPE_CHECKING

from diskproof.errors import DiskproofError, UsageError
from diskproof.records import Cell, HostRecord, Series, StudyRecord
from diskproof.report.first_boots import FirstBoots, find_first_boots
from diskproof.report.labels import cell_label, varying_factors
from diskproof.stats.drift import Drift, estimate_drift
from diskproof.stats.factors import FactorAnalysis, analyse_factors
from diskproof.stats.first_run import FirstRunEffect, first_run_effect
from diskproof.stats.intervals import Sample
from diskproof.stats.outliers import find_outliers
from diskproof.stats.steady_state import SteadyState, judge_steady_state, rounds_of
from diskproof.stats.variance import RunTrace, VarianceLevels, variance_levels
from diskproof.study.factors import FACTOR_BY_NAME
from diskproof.units import parse_bytes

if TYPE_CHECKING:
    from diskproof.store import ResultRow, RunRow, Store

MAX_TRACES = 40
"""Runs a workload whose time series are read: enough to judge by, and quick for any store."""


@dataclass(frozen=True)
class FirstRuns:
    """The first-run effect of the cells of one level, or of all (``level`` empty)."""

    factor: str
    level: str
    effect: FirstRunEffect


@dataclass(frozen=True)
class OutlierRun:
    """A run far from the others of its cell; it stays in every figure. ``where`` is its block, or
    its number in an imported study."""

    label: str
    where: str
    run_id: str
    value: float
    ratio: float
    deviations: float


@dataclass(frozen=True)
class SteadyRun:
    """The steady state inside one run, by its time series."""

    label: str
    run_id: str
    series: str
    state: SteadyState


@dataclass(frozen=True)
class WorkloadAnalysis:
    """One workload on one host by its primary metric. ``means`` are geometric, by cell."""

    name: str
    metric: str
    unit: str
    higher_is_better: bool
    means: tuple[tuple[Cell, float], ...]
    factors: FactorAnalysis | None
    first_runs: tuple[FirstRuns, ...]
    first_boots: tuple[FirstBoots, ...]
    outliers: tuple[OutlierRun, ...]
    drift: Drift | None
    steady: tuple[SteadyRun, ...]
    variance: VarianceLevels

    @property
    def mostly_steady(self) -> bool:
        """Whether at least half of the looked-at runs reached steady state; of none, yes."""
        reached = sum(each.state.window is not None for each in self.steady)
        return 2 * reached >= len(self.steady)


@dataclass(frozen=True)
class StudyAnalysis:
    study: StudyRecord
    host: HostRecord
    loads: tuple[WorkloadAnalysis, ...]


def read_analyses(
    store: Store,
    wanted: Sequence[str] = (),
    workloads: Sequence[str] = (),
    bases: Mapping[str, str] | None = None,
) -> tuple[StudyAnalysis, ...]:
    """Analyse each study (all, or those of these names or ids) on each host it ran on.

    ``bases`` are the levels to compare with, by factor. Raises UsageError for a study, workload,
    factor or level that is not there.
    """
    studies = store.studies()
    for name in wanted:
        if not any(name in (study.id, study.name) for study in studies):
            held = ", ".join(dict.fromkeys(study.name for study in studies)) or "no study"
            raise UsageError(f"no study {name!r} in {store.place}", f"it holds {held}")
    chosen = [s for s in studies if not wanted or {s.id, s.name} & set(wanted)]
    _check_workloads(chosen, workloads)
    _check_bases(chosen, bases or {})
    hosts = {host.id: host for host in store.hosts()}
    found = []
    for study in chosen:
        rows = [row for row in store.results(study.id) if row.primary]
        for host_id in dict.fromkeys(row.host_id for row in rows):
            own = [row for row in rows if row.host_id == host_id]
            loads = analyse_study(store, study, own, workloads, bases or {})
            found.append(StudyAnalysis(study, hosts[host_id], loads))
    return tuple(found)


def _check_workloads(studies: Sequence[StudyRecord], workloads: Sequence[str]) -> None:
    known = dict.fromkeys(cell.workload.name for study in studies for cell in study.cells)
    for name in workloads:
        if name not in known:
            raise UsageError(f"no workload {name!r}", f"there are {', '.join(known) or 'none'}")


def _check_bases(studies: Sequence[StudyRecord], bases: Mapping[str, str]) -> None:
    known: dict[str, dict[str, None]] = {}
    for factor, level in (pair for s in studies for cell in s.cells for pair in cell.levels):
        known.setdefault(factor, {})[level] = None
    for factor, level in bases.items():
        if factor not in known:
            raise UsageError(f"no factor {factor!r}", f"there are {', '.join(known) or 'none'}")
        if level not in known[factor]:
            raise UsageError(
                f"no cell with {factor}={level}", f"levels: {', '.join(known[factor])}"
            )


def analyse_study(
    store: Store,
    study: StudyRecord,
    rows: Sequence[ResultRow],
    workloads: Sequence[str] = (),
    bases: Mapping[str, str] | None = None,
) -> tuple[WorkloadAnalysis, ...]:
    """Analyse the primary ``rows`` of one study on one host, workload by workload."""
    runs = {run.id: run for run in store.runs(study.id)}
    names = dict.fromkeys(row.cell.workload.name for row in rows)
    return tuple(
        _analyse(store, study, [r for r in rows if r.cell.workload.name == name], runs, bases or {})
        for name in names
        if not workloads or name in workloads
    )


def _analyse(
    store: Store,
    study: StudyRecord,
    rows: Sequence[ResultRow],
    runs: Mapping[str, RunRow],
    bases: Mapping[str, str],
) -> WorkloadAnalysis:
    first = rows[0]
    measured = study.origin == "run"
    samples = [Sample(row.values, row.blocks if measured else ()) for row in rows]
    factors = order_levels([row.cell for row in rows], bases)
    analysis = analyse_factors(
        [(row.cell.levels_dict(), s) for row, s in zip(rows, samples, strict=True)], factors
    )
    traces, steady = _inside_runs(store, rows, runs)
    return WorkloadAnalysis(
        first.cell.workload.name,
        first.metric,
        first.unit,
        first.higher_is_better,
        tuple((row.cell, geometric_mean(row.values)) for row in rows if min(row.values) > 0),
        analysis,
        _first_runs(rows, samples, factors),
        find_first_boots(store, rows, factors),
        _outliers(rows, samples, "block {}" if measured else "run {}"),
        estimate_drift(samples, _block_hours(runs.values())) if measured else None,
        steady,
        variance_levels(samples, traces),
    )


def order_levels(
    cells: Sequence[Cell], bases: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Varying factors with their levels, the base level first: what ``bases`` says, else the
    first one as ``factors.FACTORS`` lists them, the smallest size or count, or the first seen."""
    ordered = {}
    for name in varying_factors(cells):
        seen = list(dict.fromkeys(cell.level(name) for cell in cells if cell.level(name)))
        levels = sorted(seen, key=lambda level: _level_place(name, level, seen))
        base = (bases or {}).get(name)
        if base in levels:
            levels = [base, *(level for level in levels if level != base)]
        ordered[name] = tuple(levels)
    return ordered


def _level_place(factor: str, level: str, seen: Sequence[str]) -> tuple[int, float]:
    known = FACTOR_BY_NAME.get(factor)
    if known is not None and level in known.levels:
        return 0, known.levels.index(level)
    if known is not None and known.kind in ("bytes", "count"):
        try:
            return 0, float(parse_bytes(level))
        except (DiskproofError, ValueError):
            pass
    return 1, seen.index(level)


def _first_runs(
    rows: Sequence[ResultRow], samples: Sequence[Sample], factors: Mapping[str, Sequence[str]]
) -> tuple[FirstRuns, ...]:
    """Over all cells, and by preallocation where it varies: a thin image grows as it is first
    written."""
    groups = [("", "")]
    groups += [("preallocation", level) for level in factors.get("preallocation", ())]
    found = []
    for factor, level in groups:
        own = [
            s
            for r, s in zip(rows, samples, strict=True)
            if not factor or r.cell.level(factor) == level
        ]
        effect = first_run_effect(own)
        if effect is not None:
            found.append(FirstRuns(factor, level, effect))
    return tuple(found)


def _outliers(
    rows: Sequence[ResultRow], samples: Sequence[Sample], where: str
) -> tuple[OutlierRun, ...]:
    factors = varying_factors(row.cell for row in rows)
    return tuple(
        OutlierRun(
            cell_label(rows[each.cell].cell, factors),
            where.format(rows[each.cell].blocks[each.run]),
            rows[each.cell].run_ids[each.run],
            rows[each.cell].values[each.run],
            each.ratio,
            each.deviations,
        )
        for each in find_outliers(samples)
    )


def _block_hours(runs: Iterable[RunRow]) -> dict[int, float]:
    """When the runs of each block began, the median, in hours."""
    starts: dict[int, list[float]] = {}
    for run in runs:
        if run.counted:
            starts.setdefault(run.block, []).append(run.started)
    return {block: median(each) / 3600 for block, each in starts.items()}


def _inside_runs(
    store: Store, rows: Sequence[ResultRow], runs: Mapping[str, RunRow]
) -> tuple[tuple[RunTrace, ...], tuple[SteadyRun, ...]]:
    """The time series of one run a cell, the one next to the cell's median, of cells evenly
    chosen."""
    step = max(1, -(-len(rows) // MAX_TRACES))
    factors = varying_factors(row.cell for row in rows)
    traces, steady = [], []
    for row in rows[::step]:
        middle = median(row.values)
        pairs = zip(row.values, row.run_ids, strict=True)
        run_id = min(pairs, key=lambda pair: abs(pair[0] - middle))[1]
        found = _load_series(store.series_of(run_id))
        run = runs.get(run_id)
        if found is None or run is None:
            continue
        span = found.times[-1] - found.times[0]
        traces.append(RunTrace(span, max(0.0, run.ended - run.started - span), found.values))
        state = judge_steady_state(rounds_of(found.times, found.values))
        steady.append(SteadyRun(cell_label(row.cell, factors), run_id, found.name, state))
    return tuple(traces), tuple(steady)


def _load_series(series: Sequence[Series]) -> Series | None:
    """What the load generator saw of its own speed over time, the first such series."""
    return next(
        (s for s in series if s.source != "host" and s.name.endswith("iops") and len(s.times) > 1),
        None,
    )
