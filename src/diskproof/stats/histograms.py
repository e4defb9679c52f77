"""Latency distributions: merged over runs, and read back as percentiles.

A percentile of a cell is that of all operations of its counted runs together. Every table, chart
and export has it from here, so that one cell has one p99.9.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from diskproof.records import Histogram, Numbers
from diskproof.stats.intervals import geometric_mean, mean_interval, student_quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_BEYOND = 10
"""Of fewer operations beyond it a percentile is one of chance: one more slow operation moves it."""
TOO_FEW_OPERATIONS = "too few operations"

_EXACT = 2.0**63
"""Sums below are those of 64 bits; no fio has counted as far, but a store may say so."""
_RESAMPLES = 400
_SEED = 7
_NAME = re.compile(r"(?:(read|write|trim)_)?(?:latency|(flush))_p(\d{1,2}(?:\.\d{1,6})?)")
_SIDES = ("read", "write", "trim")


@dataclass(frozen=True)
class CellFigure:
    """What a cell is told by in one metric: a mean over its ``n`` runs or, ``pooled``, a percentile
    of all their operations.

    ``value`` is None where there is no such figure, and ``reason`` says why. A mean is arithmetic;
    ``geomean`` is the geometric one, which rankings and comparisons go by (None where a value has
    no logarithm). ``low`` and ``high`` are the 95 % interval of ``value``, ``half_width`` that of a
    mean; None for a single run. ``draws`` are logarithms of a pooled percentile as other runs would
    have it, ``step`` the width of its bin on that scale: ``percentiles`` compares by them.
    """

    n: int
    value: float | None
    low: float | None
    high: float | None
    half_width: float | None = None
    pooled: bool = False
    reason: str = ""
    geomean: float | None = None
    draws: "NDArray[np.float64] | None" = field(default=None, compare=False, repr=False)
    step: float = 0.0


def mean_figure(values: Sequence[float]) -> CellFigure:
    """The mean of runs with Student's t interval. Raises ValueError for none."""
    found = mean_interval(values)
    half = found.half_width
    low, high = (None, None) if half is None else (found.mean - half, found.mean + half)
    geomean = geometric_mean(values) if min(values) > 0 else None
    return CellFigure(found.n, found.mean, low, high, half, geomean=geomean)


def percentile_of(metric: str) -> tuple[tuple[str, ...], float] | None:
    """Which histograms a metric is a percentile of, any of them, and which percentile; None for
    every other metric. ``latency_p99.9`` is one of reads, writes and trims together."""
    match = _NAME.fullmatch(metric)
    if match is None:
        return None
    percent = float(match[3])
    side = match[2] or match[1]
    if not percent or (match[1] and match[2]):
        return None
    return ((side,) if side else _SIDES), percent


def find_percentile(histogram: Histogram, percent: float) -> float | None:
    """Seconds, by the nearest rank; None where fewer than LEAST_BEYOND operations lie beyond."""
    if histogram.operations * (100 - percent) < 100 * LEAST_BEYOND * (1 - 1e-12):
        return None
    return histogram.percentile(percent)


def pooled_figure(runs: Sequence[Histogram], percent: float) -> CellFigure:
    """The percentile of the operations of all runs, one histogram a run, and how far it would move
    with other runs.

    The runs are resampled (Efron 1979), for operations inside a run are correlated: the standard
    error of the logarithm, times Student's t of n - 1, for resamples of three runs alone reach no
    further than these three do. Raises ValueError for what are no histograms.
    """
    merged = merge_histograms(runs)
    value = find_percentile(merged, percent)
    if value is None:
        return CellFigure(len(runs), None, None, None, None, True, TOO_FEW_OPERATIONS)
    draws = _draw_logs(runs, merged, percent) if len(runs) > 1 and value > 0 else None
    if draws is None:
        return CellFigure(len(runs), value, None, None, None, True)
    reach = student_quantile(len(runs) - 1) * spread_of(draws, len(runs))
    factor, step = math.exp(min(reach, 700.0)), _log_step(merged, value)
    bounds = value / factor, value * factor
    return CellFigure(len(runs), value, *bounds, None, True, draws=draws, step=step)


def spread_of(draws: "NDArray[np.float64]", runs: int) -> float:
    """The standard error that resamples of so many runs show."""
    return float(draws.std()) * math.sqrt(runs / (runs - 1))


def _log_step(merged: Histogram, value: float) -> float:
    """How far the bin below lies, on the log scale; nought where there is none."""
    below = max((edge for edge in merged.edges if 0 < edge < value), default=value)
    return math.log(value / below)


def _draw_logs(
    runs: Sequence[Histogram], merged: Histogram, percent: float
) -> "NDArray[np.float64] | None":
    """Logarithms of the percentile of resampled runs; None where one is nought. As many runs are
    resampled in the same way, whatever they are: so those of equal blocks are paired."""
    import numpy as np

    n, edges = len(runs), np.asarray(merged.edges, np.float64)
    counts = np.zeros((n, len(edges)))
    for row, each in zip(counts, runs, strict=True):
        there = np.asarray(each.counts, np.float64) > 0
        places = np.searchsorted(edges, np.asarray(each.edges, np.float64)[there])
        np.add.at(row, places, np.asarray(each.counts, np.float64)[there])
    drawn = np.random.default_rng(_SEED).multinomial(n, np.full(n, 1 / n), _RESAMPLES)
    found = edges[_ranks(drawn @ counts, percent)]
    if not found.min() > 0:
        return None
    logs: NDArray[np.float64] = np.log(found)
    return logs


def _ranks(counts: "NDArray[np.float64]", percent: float) -> "NDArray[np.intp]":
    """The bin of the nearest rank in each row."""
    running = counts.cumsum(axis=1)
    wanted = percent / 100 * running[:, -1:] * (1 - 1e-12)
    places: NDArray[np.intp] = (running < wanted).sum(axis=1)
    return places


def merge_histograms(histograms: Sequence[Histogram]) -> Histogram:
    """One histogram of all operations of all runs: counts of equal bins are added.

    fio's bins lie on one fixed grid (its latency groups), so bins of equal edge are equal bins.
    Raises ValueError for none, or for a negative count or an edge that is not a number.
    """
    if not histograms:
        raise ValueError("no histogram to merge")
    import numpy as np

    edges = np.concatenate([np.asarray(each.edges, np.float64) for each in histograms])
    rough = np.concatenate([np.asarray(each.counts, np.float64) for each in histograms])
    if not np.isfinite(edges).all() or (rough < 0).any():
        raise ValueError("not a histogram: an edge that is no number, or a count below 0")
    kind = np.uint64 if rough.sum() < _EXACT else object
    counts = np.concatenate([np.asarray(each.counts, kind) for each in histograms])[rough > 0]
    edges = edges[rough > 0]
    order = np.argsort(edges, kind="stable")
    edges, counts = edges[order], counts[order]
    first = np.flatnonzero(np.diff(edges, prepend=-np.inf))
    sums = np.add.reduceat(counts, first) if len(first) else counts
    merged = Numbers("Q", sums.tobytes()) if kind is np.uint64 else tuple(sums)
    return Histogram(histograms[0].name, Numbers("d", edges[first].tobytes()), merged)
