"""What a study will be able to prove, by studies that are simulated from its own scatter.

Cells of which one half is faster than the other by some difference, each with its own scatter, are
fitted, compared and placed as a ranking does it; what is told is the share of pairs across that it
tells apart. So the correction for all pairs is in it, whatever method ranks. A difference moves the
centres and nothing else of a fit, so that each study is simulated once and tried with many.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.boundaries import any_pair_alpha
from diskproof.stats.comparisons import ALPHA, Comparisons, compare_fit, draws_for, left_to_pairs
from diskproof.stats.intervals import Sample
from diskproof.stats.model import fit_cells
from diskproof.stats.ranking import place

Flags = NDArray[np.bool_]

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
_ROUNDING = 1e-9


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
    studies = Studies(scatter, alpha)
    apart = None
    if blocks > 1:
        near = score * typical * math.sqrt(2 / blocks)
        found = _least(lambda log: studies.tell(blocks, log), near / 2, near * 8)
        apart = None if found is None else math.expm1(found)
    most = min(MOST_BLOCKS, math.ceil(3 * guess) + 8)
    wanted = _least(lambda n: studies.tell(math.ceil(n), math.log1p(WANTED)), 2, most)
    return Power(len(scatter), blocks, apart, None if wanted is None else math.ceil(wanted))


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


class Studies:
    """Simulated studies of the same cells, kept while differences are tried with them."""

    def __init__(self, scatter: tuple[float, ...], alpha: float) -> None:
        cells = len(scatter)
        self._scatter, self._alpha = scatter, alpha
        self.pairs = cells // 2 * (cells - cells // 2)
        self.count = min(_MOST_STUDIES, max(_LEAST_STUDIES, math.ceil(_PAIRS / self.pairs)))
        self._study = cache(self._simulate)

    def tell(self, blocks: int, log_ratio: float) -> bool:
        """Whether so many blocks tell enough pairs apart; once too many were missed, no more
        studies are simulated."""
        missed, most = 0, (1 - POWER) * self.count * self.pairs
        for told in self.told(blocks, log_ratio):
            missed += self.pairs - told
            if missed > most + _ROUNDING:
                return False
        return True

    def told(self, blocks: int, log_ratio: float) -> Iterator[int]:
        """How many pairs each study tells apart."""
        if blocks > _SIMULATED:
            log_ratio, blocks = log_ratio * math.sqrt(blocks / _SIMULATED), _SIMULATED
        for number in range(self.count):
            yield _told_pairs(*self._study(blocks, number), log_ratio)

    def _simulate(self, blocks: int, number: int) -> tuple[Comparisons, Flags]:
        """A study in which all cells are alike, and which of them are to be the faster half."""
        cells = len(self._scatter)
        rng = np.random.default_rng([cells, blocks, number])
        logs = rng.standard_normal((cells, blocks)) * np.asarray(self._scatter)[:, None]
        samples = [Sample(tuple(row), tuple(range(blocks))) for row in np.exp(logs).tolist()]
        fit = fit_cells(samples, draws_for(self._alpha))
        share = left_to_pairs(self._alpha, cells, blocks)  # half of the cells are the best
        return compare_fit(fit, share), rng.permutation(cells) < cells // 2


def _told_pairs(compared: Comparisons, fast: Flags, log_ratio: float) -> int:
    """Pairs across that are told apart when the ``fast`` cells are so much faster."""
    centres = compared.fit.centres + log_ratio * fast
    order = np.argsort(-centres).tolist()
    moved = replace(compared, differences=np.subtract.outer(centres, centres)).reordered(order)
    lines = list(zip(place(moved, True), fast[order], strict=True))
    ahead, behind = ([line for line, is_fast in lines if is_fast == side] for side in (True, False))
    return sum(one.is_apart(other) for one in ahead for other in behind)
