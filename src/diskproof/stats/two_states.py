"""Does a run go to and fro between two states?

The largest ratio of the variance between two groups to that within them (Engelman and Hartigan
1969, Percentage points of a test for clusters, Journal of the American Statistical Association
64, 1647), held against that of normal scatter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]

ALPHA = 0.005
"""A page shows dozens of runs."""
LEAST = 3
"""Rounds in each state, and changes between them: fewer are an odd round, a step, a dip."""
_TRIES = 20_000


@dataclass(frozen=True)
class TwoStates:
    """Means of both states in the unit of the values, and ``rounds`` spent in each."""

    low: float
    high: float
    rounds: tuple[int, int]


def find_two_states(values: Sequence[float]) -> TwoStates | None:
    """The two states between which successive ``values`` go to and fro; None when one would do."""
    if len(values) < 2 * LEAST:
        return None
    given = np.asarray(values, dtype=float)
    scores, below = _best_split(np.sort(given)[None, :])
    if not scores[0] > _limit(len(values)):
        return None
    high = given >= np.sort(given)[below[0]]
    if np.count_nonzero(np.diff(high)) < LEAST:
        return None
    many = int(high.sum())
    return TwoStates(
        float(given[~high].mean()), float(given[high].mean()), (len(values) - many, many)
    )


def _best_split(ordered: Rows) -> tuple[Rows, NDArray[np.int64]]:
    """By row of values in order: variance between over that within, and how many are below."""
    count = ordered.shape[1]
    below = np.arange(LEAST, count - LEAST + 1)
    centred = ordered - ordered.mean(axis=1, keepdims=True)
    sums = centred.cumsum(axis=1)[:, below - 1]
    between = sums**2 * count / (below * (count - below))
    within = (centred**2).sum(axis=1, keepdims=True) - between
    least = 1e-12 * (centred**2).sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        scores = between / np.maximum(within, least)
    best = np.nan_to_num(scores).argmax(axis=1)
    return scores[np.arange(len(ordered)), best], below[best]


@cache
def _limit(count: int) -> float:
    normal = np.random.default_rng(0).standard_normal((_TRIES, count))
    return float(np.quantile(_best_split(np.sort(normal, axis=1))[0], 1 - ALPHA))
