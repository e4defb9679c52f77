"""Runs that stand far from the others of their cell: labelled, never dropped.

The spread is pooled over cells, because five runs of one cell hold too little of it: their own
median deviation is small by chance often enough to make outliers of ordinary runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.intervals import RESOLUTION, Sample

Vector = NDArray[np.float64]

ALPHA = 0.05
LEAST = 3.5
"""No run nearer than this many standard deviations is called an outlier (Iglewicz and Hoaglin
1993, the modified z-score)."""
_NORMAL = 0.6744897501960817
"""Median of the absolute value of a standard normal variable."""
_EFFICIENCY = 0.37
"""The efficiency of the median deviation at normal noise: as if of 37 % of the runs."""
_SWEEPS = 10
"""The rounds of the median polish; more change nothing visible."""


@dataclass(frozen=True)
class Outlier:
    """Run ``run`` of sample ``cell`` (places in what was given). ``ratio`` is its value over the
    median of its cell, blocks taken out; ``deviations`` how many robust standard deviations."""

    cell: int
    run: int
    ratio: float
    deviations: float


def find_outliers(samples: Sequence[Sample]) -> tuple[Outlier, ...]:
    """Runs further out than chance makes one in 20 studies show, the furthest first.

    Per cell the distance to its median on the log scale (what a block's cells share is taken out
    first, by medians), in units of the larger of two robust spreads: that of all cells
    together and the cell's own. Cells with fewer than three runs, or with a value that is
    not positive, have none.
    """
    usable = [c for c, s in enumerate(samples) if len(s.values) > 2 and min(s.values) > 0]
    if not usable:
        return ()
    logs = _without_blocks([samples[cell] for cell in usable])
    freedom = _EFFICIENCY * sum(len(each) - 1 for each in logs)
    pooled = _spread(logs)
    limit = _limit(sum(map(len, logs)), freedom)
    found = []
    for cell, values in zip(usable, logs, strict=True):
        centre = float(np.median(values))
        spread = max(pooled, RESOLUTION, _own_spread(values)) * _beside_median(len(values))
        for run, value in enumerate(values):
            deviations = (float(value) - centre) / spread
            if abs(deviations) > limit:
                ratio = math.exp(float(value) - centre)
                found.append(Outlier(cell, run, ratio, deviations))
    # Rounded: what is equal but for the last digits keeps the order of cells and runs.
    return tuple(sorted(found, key=lambda each: -round(abs(each.deviations), 9)))


def _limit(runs: int, freedom: float) -> float:
    """The distance that the furthest of so many runs keeps in 95 % of studies."""
    from scipy.special import stdtrit

    return max(LEAST, float(stdtrit(max(1.0, freedom), 1 - ALPHA / 2 / runs)))


def _spread(logs: Sequence[Vector]) -> float:
    """Standard deviation from the median distance of two runs of a cell.

    Distances of pairs need no centre, whose error would matter with three runs.
    """
    pairs = [np.abs(np.subtract.outer(each, each))[np.triu_indices(len(each), 1)] for each in logs]
    return float(np.median(np.concatenate(pairs))) / math.sqrt(2) / _NORMAL


def _beside_median(runs: int) -> float:
    """How much wider a run scatters around the median of the others than around the truth."""
    return math.sqrt(1 + math.pi / 2 / (runs - 1))


def _own_spread(values: Vector) -> float:
    """The cell's median absolute deviation as a standard deviation; 0 below five runs."""
    if len(values) < 5:
        return 0.0
    return float(np.median(np.abs(values - np.median(values)))) / _NORMAL


def _without_blocks(samples: Sequence[Sample]) -> list[Vector]:
    """Logarithms less what the median cell did in each block (Tukey's median polish).

    A block of fewer than three cells says nothing of what its cells share.
    """
    logs = [np.log(np.array(sample.values)) for sample in samples]
    if any(len(sample.blocks) != len(sample.values) for sample in samples):
        return logs
    for _ in range(_SWEEPS):
        around: dict[int, list[float]] = {}
        for sample, values in zip(samples, logs, strict=True):
            for block, value in zip(sample.blocks, values - np.median(values), strict=True):
                around.setdefault(block, []).append(float(value))
        shared = {b: float(np.median(v)) if len(v) > 2 else 0.0 for b, v in around.items()}
        logs = [
            values - np.array([shared[block] for block in sample.blocks])
            for sample, values in zip(samples, logs, strict=True)
        ]
    return logs
