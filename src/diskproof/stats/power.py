"""What a study will be able to prove, by studies that are simulated from its own scatter.

Cells of which one half is faster than the other by some difference, each with its own scatter, are
ranked by the very ``ranking.rank``; what is told is the share of pairs across that it tells apart.
So the correction for all pairs is in it, whatever method ranks.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from diskproof.records import Cell, WorkloadSpec
from diskproof.stats.boundaries import any_pair_alpha
from diskproof.stats.comparisons import ALPHA
from diskproof.stats.intervals import Sample
from diskproof.stats.model import fit_cells
from diskproof.stats.ranking import Measured, rank

POWER = 0.9
"""Share of pairs that is to be told apart."""
WANTED = 0.05
"""A difference that users ask for."""

MOST_CELLS = 150
"""Cells of a simulated study; of more, so many."""

_PAIRS = 200
_LEAST_STUDIES, _MOST_STUDIES = 3, 30
MOST_BLOCKS = 1000
_SIMULATED = 32
"""Blocks of a simulated study; of more, variances are as good as known, and errors shrink with the
root of their number."""
_TARGET_SCORE = 1.28
_SPEC = WorkloadSpec("simulated", "simulated")


@dataclass(frozen=True)
class Power:
    """``apart``: cells this far apart (a share) are told apart in POWER of pairs with the
    ``blocks`` there are; None where no difference is. ``wanted_blocks``: what WANTED takes; None
    where it is more than anybody would run."""

    cells: int
    blocks: int
    apart: float | None
    wanted_blocks: int | None


def scatter_of(samples: Sequence[Sample]) -> tuple[float, ...]:
    """Standard deviations of a run's logarithm by cell, as the ranking takes them, the median's
    where a cell has no repeat; empty where none has one."""
    variances = fit_cells(samples).variances if samples else np.zeros(0)
    known = np.isfinite(variances)
    if not known.any():
        return ()
    filled = np.where(known, variances, np.median(variances[known]))
    return tuple(np.sqrt(filled).round(4).tolist())


@cache
def find_power(scatter: tuple[float, ...], blocks: int, alpha: float = ALPHA) -> Power:
    """``scatter`` are standard deviations of a run's logarithm, by cell; two cells or more.
    ``alpha`` is what is granted to the claims of such a workload."""
    scatter = scatter[:MOST_CELLS]
    typical = float(np.median(scatter))
    score = _score(len(scatter), alpha) + _TARGET_SCORE  # where the search begins
    guess = 2 * (score * typical / math.log1p(WANTED)) ** 2
    apart = None
    if blocks > 1:
        near = score * typical * math.sqrt(2 / blocks)
        found = _least(lambda log: tells(scatter, blocks, log, alpha), near / 2, near * 8)
        apart = None if found is None else math.expm1(found)
    most = min(MOST_BLOCKS, math.ceil(3 * guess) + 8)
    wanted = _least(lambda n: tells(scatter, math.ceil(n), math.log1p(WANTED), alpha), 2, most)
    return Power(len(scatter), blocks, apart, None if wanted is None else math.ceil(wanted))


def tells(scatter: Sequence[float], blocks: int, log_ratio: float, alpha: float = ALPHA) -> bool:
    """Whether so many blocks tell enough pairs apart."""
    return share_told(scatter, blocks, log_ratio, alpha) >= POWER


def _score(cells: int, alpha: float) -> float:
    from scipy.special import ndtri

    return -float(ndtri(any_pair_alpha(alpha, cells)))


def _least(tells: Callable[[float], bool], low: float, high: float) -> float | None:
    """The least amount that tells, to a tenth; None where the highest does not."""
    if not tells(high):
        return None
    if tells(low):
        return low
    while high / low > 1.1:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if tells(middle) else (middle, high)
    return high


def share_told(
    scatter: Sequence[float], blocks: int, log_ratio: float, alpha: float = ALPHA
) -> float:
    """Of pairs of cells that differ by so much, the share that a ranking tells apart."""
    if blocks > _SIMULATED:
        log_ratio, blocks = log_ratio * math.sqrt(blocks / _SIMULATED), _SIMULATED
    count = len(scatter)
    pairs = count // 2 * (count - count // 2)
    studies = min(_MOST_STUDIES, max(_LEAST_STUDIES, math.ceil(_PAIRS / pairs)))
    rng = np.random.default_rng([count, blocks])
    told = 0
    for _ in range(studies):
        fast = set(rng.permutation(count)[: count // 2].tolist())
        logs = rng.standard_normal((count, blocks)) * np.asarray(scatter)[:, None]
        logs[sorted(fast)] += log_ratio
        told += _told_pairs(logs, fast, alpha)
    return told / (studies * pairs)


def _told_pairs(logs: np.ndarray, fast: set[int], alpha: float) -> int:
    numbers = tuple(range(logs.shape[1]))
    rows = [
        Measured(Cell((("cell", str(place)),), _SPEC), Sample(tuple(row), numbers))
        for place, row in enumerate(np.exp(logs).tolist())
    ]
    lines = rank(rows, True, alpha)
    ahead = [line for line in lines if int(line.cell.level("cell")) in fast]
    behind = [line for line in lines if int(line.cell.level("cell")) not in fast]
    return sum(one.is_apart(other) for one in ahead for other in behind)
