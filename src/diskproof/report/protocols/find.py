"""What the classic protocols measured beside their ranking: thin against full, warming up, the life
of a cache. Read from a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diskproof.report.chapter import Source
from diskproof.report.view import Line, WorkloadView, chosen_lines
from diskproof.stats.intervals import Interval, RatioInterval, mean_interval
from diskproof.stats.warm_up import Trace, average_traces
from diskproof.store import ResultRow, Store
from diskproof.store.curves import Curve, find_ratio, read_curves
from diskproof.store.grids import Grid, read_grids

CACHE_LIFE = "cache_life"
LEFT = ("cached_by_reading", "left_after_reset", "left_after_restart")
WARM = "warm_iops"
SPANS = 60
"""Points of a warm-up curve."""

Metrics = Mapping[str, "ResultRow"]


@dataclass(frozen=True)
class CellGrids:
    """iozone's figures of one cell, one grid a test."""

    label: str
    grids: tuple[Grid, ...]


@dataclass(frozen=True)
class CellCurves:
    """First write and rewrite of one cell; ``ratio`` is the second speed over the first."""

    label: str
    curves: tuple[Curve, ...]
    ratio: RatioInterval | None


@dataclass(frozen=True)
class CellWarmUp:
    """Means over the runs of a cell: IOPS in the first tenth and in the last third, seconds to 90 %
    of the latter, over the runs that were steady at their end. ``course`` is (seconds, IOPS), for
    a few cells only."""

    label: str
    cold: Interval
    warm: Interval
    seconds: Interval | None
    course: tuple[tuple[float, Interval], ...] = ()

    @property
    def steady_runs(self) -> int:
        """Runs that were steady at their end, of ``warm.n``."""
        return self.seconds.n if self.seconds else 0


@dataclass(frozen=True)
class CellCacheLife:
    """Shares of the disk in the host's page cache, percent; speeds of the passes in MiB/s."""

    label: str
    read: Interval
    after_reset: Interval
    after_end: Interval
    first_read: Interval | None
    second_read: Interval | None


@dataclass(frozen=True)
class ProtocolView:
    """What a workload has beside its ranking; mostly nothing of it."""

    grids: tuple[CellGrids, ...] = ()
    curves: tuple[CellCurves, ...] = ()
    warm_ups: tuple[CellWarmUp, ...] = ()
    cache_lives: tuple[CellCacheLife, ...] = ()


def find_protocols(source: Source) -> dict[str, ProtocolView]:
    """By workload, of those that have any of it; cells in the order of their ranking."""
    found = {load.name: _protocol(source, load) for load in source.workloads}
    return {name: view for name, view in found.items() if view != ProtocolView()}


def _protocol(source: Source, load: WorkloadView) -> ProtocolView:
    cells, drawn = source.by_line(load), chosen_lines(load)
    grids = (CellGrids(line.label, read_grids(own)) for line, own in cells)
    curves = (CellCurves(line.label, read_curves(own), find_ratio(own)) for line, own in cells)
    named = [(line, {row.metric: row for row in own if row.values}) for line, own in cells]
    warm_ups = (_warm_up(source.store, line, own, line in drawn) for line, own in named)
    lives = (_cache_life(line, own) for line, own in named)
    return ProtocolView(
        tuple(cell for cell in grids if cell.grids),
        tuple(cell for cell in curves if cell.curves),
        tuple(cell for cell in warm_ups if cell),
        tuple(cell for cell in lives if cell),
    )


def _warm_up(store: Store, line: Line, own: Metrics, drawn: bool) -> CellWarmUp | None:
    if WARM not in own or "cold_iops" not in own:
        return None
    return CellWarmUp(
        line.label,
        mean_interval(own["cold_iops"].values),
        mean_interval(own[WARM].values),
        _find_mean(own, "warm_up_seconds"),
        _read_course(store, line.run_ids) if drawn else (),
    )


def _read_course(store: Store, run_ids: Sequence[str]) -> tuple[tuple[float, Interval], ...]:
    """The mean over runs of their speed over time, from fio's own record."""
    traces: list[Trace] = [
        (series.times, series.values)
        for run_id in run_ids
        for series in store.series_of(run_id, "fio")
        if series.name == "iops" and series.times
    ]
    seconds, speeds = average_traces(traces, SPANS)
    return tuple((at, mean_interval(each)) for at, each in zip(seconds, speeds, strict=True))


def _cache_life(line: Line, own: Metrics) -> CellCacheLife | None:
    """What is left after a reset and an end is stored as shares of what was read."""
    read, reset, end = (own.get(name) for name in LEFT)
    if line.ranked.cell.workload.kind != CACHE_LIFE or not (read and reset and end):
        return None
    after_reset, after_end = _share_of_disk(read, reset), _share_of_disk(read, end)
    if after_reset is None or after_end is None:
        return None
    return CellCacheLife(
        line.label,
        mean_interval(read.values),
        after_reset,
        after_end,
        _find_mean(own, "first_read"),
        _find_mean(own, "second_read"),
    )


def _share_of_disk(read: ResultRow, left: ResultRow) -> Interval | None:
    by_run = dict(zip(read.run_ids, read.values, strict=True))
    pairs = zip(left.run_ids, left.values, strict=True)
    shares = [by_run[run_id] * value / 100 for run_id, value in pairs if run_id in by_run]
    return mean_interval(shares) if shares else None


def _find_mean(own: Metrics, name: str) -> Interval | None:
    return mean_interval(own[name].values) if name in own else None
