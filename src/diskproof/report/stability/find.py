"""How steady a workload was on a host: first runs, drift, steady state, outliers, variance."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import median
from typing import TypeVar

from diskproof.records import Series, StudyRecord
from diskproof.report.labels import cell_label, order_levels, varying_factors
from diskproof.report.losses import read_slow_losses
from diskproof.report.proving import how_simulated, power_line
from diskproof.report.stability import words
from diskproof.stats.comparisons import ALPHA
from diskproof.stats.drift import Drift, estimate_drift
from diskproof.stats.first_run import FirstRunEffect, first_run_effect
from diskproof.stats.holm import holm_adjusted
from diskproof.stats.intervals import Sample
from diskproof.stats.outliers import can_tell, find_outliers
from diskproof.stats.power import Power, find_power, scatter_of
from diskproof.stats.slow_losses import SlowLosses
from diskproof.stats.spells import Spell, find_spell
from diskproof.stats.steady_state import SteadyState, judge_steady_state, rounds_of
from diskproof.stats.study_race import race_rules
from diskproof.stats.two_states import TwoStates, find_two_states
from diskproof.stats.variance import RunTrace, VarianceLevels, variance_levels
from diskproof.store import ResultRow, RunRow, Store

Tested = TypeVar("Tested", FirstRunEffect, Drift | None, Spell | None, SlowLosses | None)

BOOTS = "boots"
MAX_TRACES = 40
"""Runs a workload whose time series are read: enough to judge by, and quick for any store."""


@dataclass(frozen=True)
class FirstRuns:
    """The first-run effect of the cells of one level, or of all (``level`` empty); of boots it is
    that of the clones, and ``kind`` says of which boots."""

    factor: str
    level: str
    effect: FirstRunEffect
    kind: str = ""


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
    """The steady state inside one run, by its time series, and whether it knows two of them."""

    label: str
    run_id: str
    series: str
    state: SteadyState
    states: TwoStates | None


@dataclass(frozen=True)
class WorkloadStability:
    """One workload on one host by its primary metric. The p-values of the first runs, the
    drift, the spell and the failed runs are corrected together."""

    name: str
    metric: str
    unit: str
    higher_is_better: bool
    first_runs: tuple[FirstRuns, ...]
    first_boots: tuple[FirstRuns, ...]
    outliers: tuple[OutlierRun, ...]
    outliers_told: bool
    """Whether there were runs enough to tell a slow run from a restless cell."""
    drift: Drift | None
    spell: Spell | None
    losses: SlowLosses | None
    steady: tuple[SteadyRun, ...]
    variance: VarianceLevels
    scatter: tuple[float, ...] = ()
    blocks: int = 0
    seconds_a_block: float = 0.0
    alpha: float = ALPHA

    @cached_property
    def power(self) -> Power | None:
        """What the study proves, and what it would take; None where its cells do not repeat, and
        of a race, which is not ranked at a number of blocks."""
        return find_power(self.scatter, self.blocks, self.alpha) if len(self.scatter) > 1 else None

    @property
    def advice(self) -> list[str]:
        """Where results scatter, which repeats pay, and what the study can prove."""
        lines = words.variance_lines(self.variance, self.mostly_steady)
        if self.power is None:
            return lines
        proves = power_line(self.power, self.seconds_a_block)
        return [*lines, f"{proves} {how_simulated(self.power)}"]

    @property
    def mostly_steady(self) -> bool:
        """Whether at least half of the looked-at runs reached steady state; of none, yes."""
        reached = sum(each.state.window is not None for each in self.steady)
        return 2 * reached >= len(self.steady)


def find_stability(
    store: Store, study: StudyRecord, rows: Sequence[ResultRow], runs: Mapping[str, RunRow]
) -> WorkloadStability:
    """From the primary ``rows`` of one workload on one host; ``runs`` are the study's by id."""
    first, measured = rows[0], study.origin == "run"
    samples = [Sample(row.values, row.blocks if measured else ()) for row in rows]
    factors = order_levels([row.cell for row in rows])
    traces, steady = _inside_runs(store, rows, runs)
    found = WorkloadStability(
        first.cell.workload.name,
        first.metric,
        first.unit,
        first.higher_is_better,
        tuple(_first_effects(zip(rows, samples, strict=True), factors)),
        _first_boots(store, rows, factors),
        _outliers(rows, samples, "block {}" if measured else "run {}"),
        can_tell(samples),
        estimate_drift(samples, _block_hours(runs.values())) if measured else None,
        _spell(rows, samples, runs) if measured else None,
        read_slow_losses(rows, runs) if measured else None,
        steady,
        variance_levels(samples, traces),
        scatter_of(samples) if measured and race_rules(study) is None else (),
        max(len(each.values) for each in samples),
        sum(_usual_seconds(row, runs) for row in rows),
        ALPHA / len({cell.workload.name for cell in study.cells}),
    )
    return _corrected(found)


def _usual_seconds(row: ResultRow, runs: Mapping[str, RunRow]) -> float:
    """What a run of a cell took, the median."""
    known = [runs[each] for each in row.run_ids if each in runs]
    return median(each.ended - each.started for each in known) if known else 0.0


def _spell(
    rows: Sequence[ResultRow], samples: Sequence[Sample], runs: Mapping[str, RunRow]
) -> Spell | None:
    starts = [[runs[each].started if each in runs else None for each in r.run_ids] for r in rows]
    known = [[at for at in each if at is not None] for each in starts]
    return find_spell(samples, known) if known == starts else None


def _corrected(found: WorkloadStability) -> WorkloadStability:
    """All that is tested over the session, together by Holm's method."""
    tested = [*(each.effect for each in found.first_runs), found.drift, found.spell, found.losses]
    known = [each.p_value for each in tested if each and each.p_value is not None]
    adjusted = iter(holm_adjusted(known))

    def put(each: Tested) -> Tested:
        if each is None or each.p_value is None:
            return each
        return replace(each, p_value=next(adjusted))

    return replace(
        found,
        first_runs=tuple(replace(each, effect=put(each.effect)) for each in found.first_runs),
        drift=put(found.drift),
        spell=put(found.spell),
        losses=put(found.losses),
    )


def _first_effects(
    repeats: Iterable[tuple[ResultRow, Sample]],
    factors: Mapping[str, Sequence[str]],
    kind: str = "",
) -> Iterator[FirstRuns]:
    """Over all cells, and by preallocation where it varies: a thin image grows as it is first
    written."""
    told = list(repeats)
    levels = [("preallocation", level) for level in factors.get("preallocation", ())]
    for factor, level in [("", ""), *levels]:
        own = [s for row, s in told if not factor or row.cell.level(factor) == level]
        if effect := first_run_effect(own):
            yield FirstRuns(factor, level, effect, kind)


def _first_boots(
    store: Store, rows: Sequence[ResultRow], factors: Mapping[str, Sequence[str]]
) -> tuple[FirstRuns, ...]:
    """For read and write boots; nothing for workloads without boots. Each clone is one repeat: its
    boots share its luck."""
    if rows[0].cell.workload.kind != BOOTS:
        return ()
    clones = [(row, dict(_boots(store, run_id))) for row in rows for run_id in row.run_ids]
    return tuple(
        effect
        for kind in ("read", "write")
        for effect in _first_effects(
            ((row, Sample(boots[kind])) for row, boots in clones if kind in boots), factors, kind
        )
    )


def _boots(store: Store, run_id: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    for series in store.series_of(run_id, BOOTS):
        yield series.name.partition("_")[0], tuple(series.values)


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
        rounds = rounds_of(found.times, found.values)
        state, states = judge_steady_state(rounds), find_two_states(rounds)
        steady.append(SteadyRun(cell_label(row.cell, factors), run_id, found.name, state, states))
    return tuple(traces), tuple(steady)


def _load_series(series: Sequence[Series]) -> Series | None:
    """What the load generator saw of its own speed over time, the first such series."""
    return next(
        (s for s in series if s.source != "host" and s.name.endswith("iops") and len(s.times) > 1),
        None,
    )
