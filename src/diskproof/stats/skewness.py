"""Whether runs are skewed: many alike and a few far off to one side, as a stall now and then makes.

Of few runs of one cell nobody can tell; the cells of a workload tell it together. Where they are
skewed Student's interval of a single mean holds it less often than it says, and no interval of few
runs does better (docs/statistics.md), so it has to be said.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.intervals import RESOLUTION, Sample
from diskproof.stats.model import has_blocks, tabulate

Array = NDArray[np.float64]

ERROR = 0.01
"""Share of workloads without skew that may be called skewed."""
_LEAST_RUNS = 3
LEAST_CELLS = 8
"""With fewer there are too few ways to turn their signs, and nothing is said."""
_DRAWS = 1999
_SEED = 5


def are_skewed(samples: Sequence[Sample]) -> bool:
    """Whether the runs of a workload's cells lean to one side beyond chance.

    Each cell's skewness beside its blocks, summed. Errors that lean to neither side would give it
    with the other sign as often, whatever their scatter and tails: so signs are drawn anew.
    """
    rows = [
        row for row in _residuals(samples) if len(row) >= _LEAST_RUNS and row.std() > RESOLUTION
    ]
    if len(rows) < LEAST_CELLS:
        return False
    found = np.array([_skewness(row) for row in rows])
    turned = np.random.default_rng(_SEED).choice((-1.0, 1.0), (_DRAWS, len(rows)))
    chance = turned @ found
    beyond = int((np.abs(chance) >= abs(found.sum()) - 1e-9).sum())
    return (1 + beyond) / (1 + _DRAWS) <= ERROR


def _residuals(samples: Sequence[Sample]) -> list[Array]:
    """Logarithms of each cell's runs beside what its blocks did to the middle cell, so that no wild
    one passes its own lean on to all."""
    usable = [each for each in samples if len(each.values) > 1 and min(each.values) > 0]
    if not usable:
        return []
    blocked = has_blocks(usable)
    logs, present = tabulate(usable, blocked)
    away = np.where(present > 0, logs - (logs.sum(axis=1) / present.sum(axis=1))[:, None], np.nan)
    if blocked:
        away -= np.nanmedian(away, axis=0)
    return [row[np.isfinite(row)] for row in away]


def _skewness(row: Array) -> float:
    """It grows with the number of runs: many tell more."""
    away = row - row.mean()
    return float((away**3).sum() / (away**2).mean() ** 1.5)
