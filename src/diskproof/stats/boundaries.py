"""What a repeated look at growing data costs: boundaries that hold over all looks together.

Alpha spending (Lan & DeMets 1983, doi 10.1093/biomet/70.3.659): an error of ``alpha`` is spent over
the looks along a given curve, and each look's boundary is found from the distribution of the paths
that have not crossed an earlier one (Armitage, McPherson & Rowe 1969, doi 10.2307/2343787). The
curve depends on the number of blocks so far and on nothing else, and never reaches ``alpha``: there
is no last look that would have to be named before, so that a race can be prolonged without a change
to what it decided before.
"""

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

EXPONENT = 0.5
"""Shapes the spending curve 1 - n^-EXPONENT: 29 % of alpha at two blocks, 68 % at ten, 90 % at a
hundred. Between Pocock's and O'Brien and Fleming's manner; chosen by benchmarks/racing.py."""

FIRST = 2
"""Blocks at the first look: one block tells nothing of the scatter."""

_GRID = 400
_FAR = 8.0
"""Paths farther below than so many standard errors are as good as there."""


def spent(blocks: int) -> float:
    """Share of alpha that is spent when so many blocks have been looked at."""
    return 1.0 - 1.0 / math.pow(blocks, EXPONENT)


@cache
def pair_alpha(alpha: float, others: int, top: int = 1) -> float:
    """What one comparison of a truly best cell with another may cost, one-sided.

    One best cell against ``others``: Dunnett 1955 (doi 10.1080/01621459.1955.10501294), for
    differences that share a cell are correlated by a half. Several best cells: Sidak 1967 over all
    pairs, a bound for positively correlated differences.
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr

    if top > 1 or others < 2:
        return 1.0 - math.pow(1.0 - alpha, 1.0 / max(1, top * others))
    scores = np.linspace(-_FAR, _FAR, 2001)
    weights = np.exp(-(scores**2) / 2)
    weights /= weights.sum()

    def beyond(limit: float) -> float:
        """Probability that some difference is larger than ``limit``, given the shared cell."""
        inside = ndtr(2**0.5 * limit + scores) ** others
        return 1.0 - float(weights @ inside) - alpha

    return float(ndtr(-brentq(beyond, -2.0, _FAR, xtol=1e-9)))


@cache
def any_pair_alpha(alpha: float, cells: int) -> float:
    """What each pair of that many cells may cost in each direction, so that not one of them is told
    apart wrongly: the studentised range (Tukey 1953)."""
    from scipy.special import ndtr
    from scipy.stats import studentized_range

    quantile = float(studentized_range.ppf(1.0 - alpha, max(2, cells), math.inf))
    return float(ndtr(-quantile / 2**0.5))


class Boundary:
    """One-sided boundaries for a standardised mean that is looked at from block FIRST on.

    ``at(n)`` is the normal score that the mean of n independent differences must exceed, so that a
    mean of nought does so at any look with probability ``alpha`` at most.
    """

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._scores: list[float] = []
        self._sums: Array | None = None
        self._weights: Array | None = None

    def at(self, blocks: int) -> float:
        """Needs at least FIRST blocks."""
        while len(self._scores) <= blocks - FIRST:
            self._look(FIRST + len(self._scores))
        return self._scores[blocks - FIRST]

    def _look(self, blocks: int) -> None:
        """Find the next boundary and the density of the sums that stay below it."""
        from scipy.special import ndtri
        from scipy.stats import norm

        root = blocks**0.5
        before = spent(blocks - 1) if self._scores else 0.0
        target = self._alpha * (spent(blocks) - before)
        if self._sums is None or self._weights is None:
            score = -float(ndtri(target))
            sums = np.linspace(-_FAR * root, score * root, _GRID)
            density = norm.pdf(sums / root) / root
        else:
            score = _solve(self._sums, self._weights, root, target)
            sums = np.linspace(-_FAR * root, score * root, _GRID)
            steps = sums[:, None] - self._sums[None, :]
            density = np.exp(-(steps**2) / 2) @ self._weights / (2 * np.pi) ** 0.5
        weights = density * (sums[1] - sums[0])
        weights[[0, -1]] *= 0.5
        self._scores.append(score)
        self._sums, self._weights = sums, weights


def _solve(sums: Array, weights: Array, root: float, target: float) -> float:
    """The score that paths below the former boundary exceed with probability ``target``."""
    from scipy.optimize import brentq
    from scipy.special import ndtr

    def beyond(score: float) -> float:
        return float(weights @ ndtr(sums - score * root)) - target

    return float(brentq(beyond, 0.0, 40.0, xtol=1e-6))


@cache
def find_boundary(alpha: float) -> Boundary:
    """The boundary for this alpha; what was computed once is kept."""
    return Boundary(alpha)


def looked_tail(alpha: float, blocks: int) -> float:
    """What of a one-sided ``alpha`` is left for the look after so many blocks: what is beyond its
    boundary there."""
    from scipy.special import ndtr

    return float(ndtr(-find_boundary(alpha).at(max(blocks, FIRST))))


_PAID = (1e-9, 1e-6, 1e-4, 1e-3, 5e-3, 0.025, 0.1, 0.3)


def looked_p(tail: float, blocks: int) -> float:
    """The one-sided p-value of what has this tail in a fixed sample, with all looks up to this one
    paid for: the alpha whose boundary is just reached (between those of a grid, on logarithms)."""
    if tail <= 0:
        return 0.0
    tails = np.log([looked_tail(alpha, blocks) for alpha in _PAID])
    payment = float(np.interp(math.log(tail), tails, np.log(_PAID) - tails))
    return min(1.0, tail * math.exp(payment))


def sure_scores(runs: Array, freedom: Array, boundary: Boundary) -> Array:
    """How many standard errors a cell's difference to another must exceed after so many runs:
    Student's t at the boundary's probability, with the freedom of the cell's variance."""
    from scipy.special import ndtr, stdtrit

    counts = np.maximum(runs, FIRST).astype(int)
    scores = {int(count): boundary.at(int(count)) for count in np.unique(counts)}
    tails = ndtr([-scores[int(count)] for count in counts])
    return -np.asarray(stdtrit(freedom, tails), dtype=float)
