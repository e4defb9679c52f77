"""Ratios of percentiles: of those of all operations of a cell's runs, as every table tells them.

The error is that of resampled runs (``histograms``). Operations inside a run are correlated, so a
run is the unit here as elsewhere.
"""

import math
from collections.abc import Sequence

from diskproof.stats.histograms import CellFigure, spread_of
from diskproof.stats.intervals import RESOLUTION, LogRatio, geometric_mean, welch_freedom

STEPS = 6.0
"""A percentile is the edge of a bin: each side's squared error has its square over this, so that
no two neighbouring bins are a proof by themselves."""


def estimate_percentiles(a: CellFigure, b: CellFigure, *, paired: bool, looks: int = 0) -> LogRatio:
    """The percentile of ``a`` over that of ``b``; ``paired``: their runs lie in the same blocks.

    Raises ValueError for a figure that is none, or nought.
    """
    if not a.value or not b.value:
        raise ValueError("a ratio of percentiles needs both, above nought")
    difference, n = math.log(a.value / b.value), min(a.n, b.n)
    drawn = [each.draws for each in (a, b) if each.draws is not None]
    if len(drawn) < 2:
        return LogRatio(difference, None, None, "none", n)
    rounding = (a.step**2 + b.step**2) / STEPS
    if paired:
        error = max(spread_of(drawn[0] - drawn[1], n), RESOLUTION / math.sqrt(n))
        return LogRatio(difference, math.hypot(error, rounding**0.5), n - 1, "paired", n, looks)
    counts = a.n, b.n
    parts = [
        max(spread_of(draws, runs), RESOLUTION / math.sqrt(runs)) ** 2
        for draws, runs in zip(drawn, counts, strict=True)
    ]
    freedom = welch_freedom(parts, (a.n - 1, b.n - 1))
    return LogRatio(difference, math.sqrt(sum(parts) + rounding), freedom, "welch", n, looks)


def together(figures: Sequence[CellFigure], blocks: Sequence[tuple[int, ...]]) -> CellFigure | None:
    """The geometric mean of several cells' percentiles. None where the cells' runs lie in different
    blocks, for then nothing tells what the blocks did to all of them."""
    draws = [each.draws for each in figures if each.draws is not None]
    values = [each.value for each in figures if each.value]
    if len(draws) < len(figures) or len(values) < len(figures) or len(set(blocks)) != 1:
        return None
    mean = geometric_mean(values)
    step = math.sqrt(math.fsum(each.step**2 for each in figures)) / len(figures)
    drawn = sum(draws[1:], draws[0]) / len(draws)
    return CellFigure(figures[0].n, mean, None, None, None, True, draws=drawn, step=step)
