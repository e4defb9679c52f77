"""What runs of tiles tell: per cell how many it carries, per number of tiles the times, the score,
what the host did. All from a store."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from diskproof.errors import UsageError
from diskproof.records import Cell, HostRecord, Metric, Series, StudyRecord
from diskproof.records.tiles import TileRun
from diskproof.report.labels import cell_label, varying_factors
from diskproof.report.tails import Tails, text_tails
from diskproof.report.tiles.host_figures import host_figures
from diskproof.stats.capacity import Capacity, find_capacity
from diskproof.stats.comparisons import ALPHA
from diskproof.stats.intervals import Interval, Sample, mean_interval
from diskproof.stats.ranking import Measured, rank
from diskproof.stats.tile_score import TileScore, TileScoreIntervals, score_intervals, tile_score
from diskproof.stats.tile_trials import Baseline, find_baseline, find_trials, judge_run
from diskproof.store import Store
from diskproof.study.tiles import restore_tile

THROUGHPUT = "throughput"
MAX_FAILED = 20
"""Failed runs of which what they left is shown."""


@dataclass(frozen=True)
class WorkFigure:
    """One metric of one workload at one number of tiles.

    ``interval`` is over runs, each with its mean over tiles. ``worst`` is the largest ratio to
    the service level over all runs and tiles (above 1 it was missed), None where none is set.
    """

    work: str
    metric: str
    unit: str
    higher_is_better: bool
    interval: Interval
    worst: float | None


@dataclass(frozen=True)
class GuestShare:
    """What one guest of a tile takes of the host, means over runs and tiles. ``cpus`` are host
    CPUs kept busy, ``share`` is its part of what all guests took; rates are in bytes per second,
    memory in bytes."""

    guest: str
    cpus: float
    share: float
    read_rate: float
    write_rate: float
    memory: float
    ksm: float


@dataclass(frozen=True)
class TilesAt:
    """One number of tiles in one cell. ``runs`` went well, ``failed`` did not. ``works`` stand by
    (workload, metric), ``host`` by the names of ``tile_host``; ``missed``: runs that did not keep
    the service level, failed ones too. ``place`` is the rank of the wall time among the cells
    with as many tiles (``1=`` is a tie, ``?`` a single run)."""

    tiles: int
    runs: tuple[TileRun, ...]
    failed: tuple[TileRun, ...]
    missed: int
    seconds: Interval | None
    works: Mapping[tuple[str, str], WorkFigure]
    score: TileScoreIntervals | None
    host: Mapping[str, Interval]
    guests: tuple[GuestShare, ...]
    place: str = ""

    @property
    def typical(self) -> TileRun | None:
        """The good run whose wall time is nearest to the median."""
        if not self.runs:
            return None
        median = statistics.median(run.seconds for run in self.runs)
        return min(self.runs, key=lambda run: abs(run.seconds - median))


@dataclass(frozen=True)
class CellTiles:
    """All numbers of tiles of one cell, and how many it carries."""

    cell: Cell
    label: str
    capacity: Capacity
    at: tuple[TilesAt, ...]


@dataclass(frozen=True)
class TileView:
    """The runs of tiles of one study on one host. ``guests`` are those of one tile; ``tails`` are
    the last lines of what failed runs left, by their id."""

    study: StudyRecord
    host: HostRecord
    tile: str
    guests: tuple[str, ...]
    works: tuple[str, ...]
    cells: tuple[CellTiles, ...]
    tails: Mapping[str, Tails] = field(default_factory=dict)

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of tiles that were run."""
        return tuple(sorted({at.tiles for cell in self.cells for at in cell.at}))

    @property
    def failed(self) -> tuple[tuple[str, TileRun], ...]:
        """(cell's label, run) of what failed, in the order of cells and tiles."""
        return tuple((c.label, run) for c in self.cells for at in c.at for run in at.failed)


def analyse_stored(
    store: Store, study: StudyRecord, host: HostRecord, runs: Sequence[TileRun]
) -> TileView | None:
    """The runs of one study on one host with what the store holds beside them; None without any."""
    if not runs:
        return None
    series = {run.id: store.tile_series_of(run.id, "host") for run in runs if run.failure is None}
    view = analyse_tiles(study, host, runs, series)
    failed = [run.id for run in runs if run.failure is not None][:MAX_FAILED]
    tails = {each: text_tails(store.tile_run(each).artefacts) for each in failed}
    return replace(view, tails=tails)


def analyse_tiles(
    study: StudyRecord,
    host: HostRecord,
    runs: Sequence[TileRun],
    series: Mapping[str, Sequence[Series]],
) -> TileView:
    """Runs of one study on one host; ``series`` by the id of the run.

    Raises UsageError for cells that do not say what their tile is.
    """
    by_cell: dict[str, list[TileRun]] = {}
    for run in runs:
        by_cell.setdefault(run.cell.id, []).append(run)
    factors = varying_factors(run.cell for run in runs)
    try:
        tile = restore_tile(runs[0].cell.workload.option("tile"))
        guests = tuple(guest.name for guest in tile.guests)
        works = tuple(work.name for work in tile.works)
        cells = [_cell(own, factors, series) for own in by_cell.values()]
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        why = f"runs of tiles of study {study.name!r}: {error!r:.80}"
        raise UsageError("the store holds damaged data", why) from error
    return TileView(study, host, tile.name, guests, works, _with_places(cells))


def _cell(
    runs: Sequence[TileRun], factors: Sequence[str], series: Mapping[str, Sequence[Series]]
) -> CellTiles:
    cell, baseline = runs[0].cell, find_baseline(runs)
    numbers = sorted({run.tiles for run in runs})
    # More than was run nobody knows about: what is open above is said to be so.
    capacity = find_capacity(find_trials(runs), numbers[-1])
    at = tuple(
        _tiles_at(number, [run for run in runs if run.tiles == number], baseline, series)
        for number in numbers
    )
    return CellTiles(cell, cell_label(cell, factors), capacity, at)


def _tiles_at(
    number: int,
    runs: Sequence[TileRun],
    baseline: Baseline,
    series: Mapping[str, Sequence[Series]],
) -> TilesAt:
    good = tuple(sorted((run for run in runs if run.failure is None), key=lambda r: r.repeat))
    failed = tuple(run for run in runs if run.failure is not None)
    worst = [_worst(run, baseline) for run in good]
    missed = sum(any(ratio > 1 for ratio in of_run.values()) for of_run in worst)
    return TilesAt(
        number,
        good,
        failed,
        missed + len(failed),
        mean_interval([run.seconds for run in good]) if good else None,
        _works(good, worst),
        _score(good, baseline),
        _host(good, series),
        _shares(good),
    )


def _worst(run: TileRun, baseline: Baseline) -> dict[tuple[str, str], float]:
    """The largest ratio to the service level over the tiles of a run."""
    found: dict[tuple[str, str], float] = {}
    for judged in judge_run(run, baseline):
        key = (judged.work, judged.metric)
        found[key] = max(found.get(key, 0.0), judged.ratio)
    return found


def _works(
    runs: Sequence[TileRun], worst: Sequence[Mapping[tuple[str, str], float]]
) -> dict[tuple[str, str], WorkFigure]:
    values: dict[tuple[str, str], list[list[float]]] = {}
    known: dict[tuple[str, str], Metric] = {}
    for place, run in enumerate(runs):
        for work in run.works:
            for metric in work.metrics:
                key = (work.work, metric.name)
                known.setdefault(key, metric)
                if math.isfinite(metric.value):
                    values.setdefault(key, [[] for _ in runs])[place].append(metric.value)
    return {
        key: WorkFigure(
            *key,
            known[key].unit,
            known[key].higher_is_better,
            mean_interval([statistics.fmean(of_run) for of_run in found if of_run]),
            max((of_run[key] for of_run in worst if key in of_run), default=None),
        )
        for key, found in values.items()
    }


def _score(runs: Sequence[TileRun], baseline: Baseline) -> TileScoreIntervals | None:
    """None where a workload tells no throughput, or there was no run of one tile."""
    alone = {work: value for (work, metric), value in baseline.items() if metric == THROUGHPUT}
    scores: list[TileScore] = []
    for run in runs:
        told = {(work.tile, work.work): work.value(THROUGHPUT) for work in run.works}
        known = {key: value for key, value in told.items() if value is not None}
        holds = all(judged.ratio <= 1 for judged in judge_run(run, baseline))
        if not known or not all(value > 0 for value in alone.values()):
            return None
        if {(tile, work) for tile, _ in known for work in alone} != set(known):
            return None
        scores.append(tile_score(known, alone, holds=holds))
    return score_intervals(scores) if scores and alone else None


def _host(runs: Sequence[TileRun], series: Mapping[str, Sequence[Series]]) -> dict[str, Interval]:
    values: dict[str, list[float]] = {}
    for run in runs:
        for name, value in host_figures(series.get(run.id, ()), run.seconds).items():
            values.setdefault(name, []).append(value)
    return {name: mean_interval(found) for name, found in values.items()}


def _shares(runs: Sequence[TileRun]) -> tuple[GuestShare, ...]:
    uses = [(use, max(run.seconds, 1e-9)) for run in runs for use in run.uses]
    everything = math.fsum(use.cpu_seconds for use, _ in uses)
    shares = []
    for guest in dict.fromkeys(use.guest for use, _ in uses):
        own = [(use, seconds) for use, seconds in uses if use.guest == guest]
        cpu = math.fsum(use.cpu_seconds for use, _ in own)
        shares.append(
            GuestShare(
                guest,
                statistics.fmean(use.cpu_seconds / seconds for use, seconds in own),
                cpu / everything if everything > 0 else 0.0,
                statistics.fmean(use.read_bytes / seconds for use, seconds in own),
                statistics.fmean(use.written_bytes / seconds for use, seconds in own),
                statistics.fmean(use.memory_bytes for use, _ in own),
                statistics.fmean(use.ksm_bytes for use, _ in own),
            )
        )
    return tuple(shares)


def _with_places(cells: Iterable[CellTiles]) -> tuple[CellTiles, ...]:
    """The cells with the ranks of their wall times, number by number, corrected for all numbers."""
    found = tuple(cells)
    places: dict[tuple[str, int], str] = {}
    numbers = {at.tiles for cell in found for at in cell.at}
    for number in numbers:
        measured = [
            Measured(cell.cell, Sample(tuple(run.seconds for run in at.runs)))
            for cell in found
            for at in cell.at
            if at.tiles == number and at.runs
        ]
        if len(measured) > 1:
            for ranked in rank(measured, higher_is_better=False, alpha=ALPHA / len(numbers)):
                places[ranked.cell.id, number] = ranked.label
    return tuple(
        replace(
            cell,
            at=tuple(replace(at, place=places.get((cell.cell.id, at.tiles), "")) for at in cell.at),
        )
        for cell in found
    )
