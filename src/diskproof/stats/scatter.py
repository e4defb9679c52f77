"""How much each cell of a study scatters, as draws from what the runs allow.

From three runs a variance is hardly known, so cells lend each other strength as far as they look
alike. How far that is, is itself hardly known from few cells; one estimate of it, taken for true,
claims too much. So nothing is estimated: the variances of all cells are drawn together, over all
that the runs leave open (a hierarchical model in the manner of Smyth 2004, doi
10.2202/1544-6115.1027). A cell may stand alone, whatever the others have in common (Phipson et al.
2016, doi 10.1214/16-AOAS920, for the same reason: few wild cells among many calm ones).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.intervals import RESOLUTION

Array = NDArray[np.float64]
Places = NDArray[np.int64]

KINSHIP = np.array([0.5, 1.0, 2.0, 4.0, np.inf])
"""Degrees of freedom of the inverse chi-square that the cells' variances may follow; infinite: all
scatter alike. ``BELIEF``: how likely each is before the first run. Chosen by simulation
(benchmarks/calibration.py): more belief in alike cells errs where they are not."""
BELIEF = np.array([0.1, 0.25, 0.25, 0.05, 0.35])

_WIDE = np.linspace(np.log(6.0), np.log(1e6), 10)
"""A cell that stands alone has so many times the others' variance (on the log scale), half a step
more or less; ``_OFTEN`` is how likely each is. More than a thousand times (30 % among cells that
scatter by 1 %) is seen in the runs at once."""
_OFTEN = np.array([3.0] * 6 + [1.0] * 4) / 22
ALONE = 0.7, 0.15
"""As likely: so many cells of a study stand alone, or such a share of them."""

_ENOUGH = 500
"""Draws that the width of a cell's tail is taken from."""
_STEPS = 49
_REACH = 8.0
"""How far from the middle cell the common variance is looked for at first, on the log scale."""
_LEAST = 2 * np.log(RESOLUTION)


@dataclass(frozen=True)
class _Beliefs:
    """What the runs leave of each assumption: ``weights`` are shares x kinships x common variances
    (``common``, logarithms, in equal steps) and add up to 1; ``alone`` is the probability that a
    cell stands alone under each of them, with cells as the last axis; ``which`` is that of each
    factor, if it does: factors x common variances x cells."""

    weights: Array
    common: Array
    alone: Array
    which: Array


def draw_variances(squares: Array, freedom: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draw the variances of one run of each cell: draws x cells.

    ``squares`` are sums of squared residuals, ``freedom`` their degrees of freedom, by cell.
    """
    beliefs = _weigh(squares, freedom)
    chosen = rng.choice(beliefs.weights.size, size=draws, p=beliefs.weights.ravel())
    share, kin, place = np.unravel_index(chosen, beliefs.weights.shape)
    step = beliefs.common[1] - beliefs.common[0]
    common = np.exp(beliefs.common[place] + step * rng.uniform(-0.5, 0.5, draws))[:, None]
    variances = np.repeat(common, len(squares), axis=1)
    for number, kinship in enumerate(KINSHIP[:-1]):
        rows = kin == number
        shape = np.broadcast_to((kinship + freedom) / 2, (int(rows.sum()), len(squares)))
        variances[rows] = (kinship * common[rows] + squares) / 2 / rng.standard_gamma(shape)
    alone = rng.random(variances.shape) < beliefs.alone[share, kin, place]
    rows, cells = np.nonzero(alone)
    reached = np.cumsum(beliefs.which[:, place[rows], cells], axis=0)
    factor = _WIDE[(reached < rng.random(len(rows))).sum(axis=0).clip(0, len(_WIDE) - 1)]
    factor += (_WIDE[1] - _WIDE[0]) * rng.uniform(-0.5, 0.5, len(rows))
    variances[rows, cells] = common[rows, 0] * np.exp(factor)
    drawn: Array = np.maximum(variances, RESOLUTION**2)
    return drawn


def _weigh(squares: Array, freedom: Array) -> _Beliefs:
    """Bayes' rule on a grid, which is first wide, then close around what is left."""
    middle = float(np.log(np.median(squares / freedom) + RESOLUTION**2))
    low, high = max(middle - _REACH, _LEAST), middle + _REACH
    found = _beliefs_at(np.linspace(low, high, _STEPS), squares, freedom)
    shares = found.weights.sum(axis=(0, 1))
    mean = float(shares @ found.common)
    step = float(found.common[1] - found.common[0])
    spread = float(shares @ (found.common - mean) ** 2 + step**2 / 12 + 0.01) ** 0.5
    low, high = max(mean - 5 * spread, _LEAST), max(mean, _LEAST) + 5 * spread
    return _beliefs_at(np.linspace(low, high, _STEPS), squares, freedom)


def _beliefs_at(common: Array, squares: Array, freedom: Array) -> _Beliefs:
    """The likelihood of every assumption, up to what they have in common.

    A sum of squares with f degrees of freedom is a variance times a chi-square; where that
    variance follows an inverse chi-square itself, it is a multiple of Fisher's F.
    """
    from scipy.special import gammaln

    cells, half = len(squares), freedom / 2
    variance = np.exp(common)[:, None]
    base = np.empty((len(KINSHIP), len(common), cells))
    for number, kinship in enumerate(KINSHIP[:-1]):
        whole, inner = half + kinship / 2, kinship * variance
        base[number] = gammaln(whole) - gammaln(kinship / 2) - half * np.log(inner)
        base[number] -= whole * np.log1p(squares / inner)
    base[-1] = -half * np.log(2 * variance) - squares / (2 * variance)
    wide = np.exp(_WIDE)[:, None, None] * variance
    lone = np.log(_OFTEN)[:, None, None] - half * np.log(2 * wide) - squares / (2 * wide)
    most = lone.max(axis=0)
    which = np.exp(lone - most)
    lonely = np.log(which.sum(axis=0)) + most
    # Of two cells neither is the odd one.
    parts = (min(0.5, ALONE[0] / cells), ALONE[1]) if cells > 2 else (0.0,)
    with np.errstate(divide="ignore"):
        added = [np.logaddexp(np.log1p(-part) + base, np.log(part) + lonely) for part in parts]
        alone = [
            np.exp(np.log(part) + lonely - each) for part, each in zip(parts, added, strict=True)
        ]
    scores = np.array([each.sum(axis=2) for each in added]) + np.log(BELIEF)[:, None]
    weights = np.exp(scores - scores.max())
    return _Beliefs(weights / weights.sum(), common, np.array(alone), which / which.sum(axis=0))


def scales(variances: Array, tail: float) -> Array:
    """What each cell's variance counts as, in a comparison: that of the normal variable which is as
    often beyond its limits, ``tail`` of all cases, as one with the drawn variances."""
    from scipy.special import ndtr, ndtri

    sd, limit = np.sqrt(variances[:_ENOUGH]), -float(ndtri(tail / 2))
    low, high = np.log(limit * sd.min(axis=0)), np.log(limit * sd.max(axis=0))
    for _ in range(12):
        middle = (low + high) / 2
        beyond = 2 * ndtr(-np.exp(middle) / sd).mean(axis=0) > tail
        low, high = np.where(beyond, middle, low), np.where(beyond, high, middle)
    found: Array = (np.exp(high) / limit) ** 2
    return found
