"""The estimates a race is decided by: cells and blocks on the log scale, pooled scatter.

``log value = cell + block + error``. Cells that were dropped lack the later blocks; their runs
still say how much a run scatters. Each cell's variance is drawn towards the common one as far as
the cells look alike (Smyth 2004, doi 10.2202/1544-6115.1027).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.blocks import eliminate_cells
from diskproof.stats.boundaries import any_pair_alpha, find_boundary, sure_scores
from diskproof.stats.intervals import RESOLUTION, Sample
from diskproof.stats.model import Fit, has_blocks, inverse_trigamma, plain_centre, tabulate

Array = NDArray[np.float64]
Places = NDArray[np.int64]

_TINY = 1e-9
ODD = 0.05
"""A scatter that by chance only so many cells would have is taken for the cell's own."""


@dataclass(frozen=True)
class RaceFit:
    """``centres`` (nan without a value), ``runs``, ``variances`` of a run and their ``freedom``, by
    cell; ``common`` is the variance of all cells together, infinite while no cell has a repeat that
    the blocks leave over."""

    centres: Array
    runs: Array
    variances: Array
    freedom: Array
    common: float
    _products: Array
    _loose: Array

    def squared_errors(self, cells: Places) -> Array:
        """Squared standard errors of the differences of these cells' centres, a table; infinite
        where no chain of common blocks ties two cells."""
        own = self.variances[cells] / self.runs[cells]
        products = self._products[np.ix_(cells, cells)]
        through = np.diag(products)
        shared = np.maximum(np.add.outer(through, through) - 2 * products, 0.0)
        loose = self._loose[cells]
        lengths = (loose**2).sum(axis=1)
        apart = np.add.outer(lengths, lengths) - 2 * loose @ loose.T > _TINY
        errors: Array = np.add.outer(own, own) + self.common * shared
        return np.where(apart, np.inf, errors)


def fit_race(table: Array) -> RaceFit:
    """Fit blocks x cells of logarithms, nan where a run is missing."""
    present = np.isfinite(table).astype(float)
    logs = np.where(present > 0, table, 0.0)
    runs = present.sum(axis=0)
    shares = present / np.maximum(runs, 1.0)
    means = np.where(runs > 0, logs.sum(axis=0) / np.maximum(runs, 1.0), np.nan)
    inner = (logs - np.where(runs > 0, means, 0.0)) * present
    solved = eliminate_cells(present.T, np.ones(len(runs)))
    normal, inverse = solved.normal, solved.inverse
    effects = inverse @ inner.sum(axis=1)
    residuals = (inner - effects[:, None] + shares.T.dot(effects)[None, :]) * present
    variances, freedom, common = _scatter(residuals, runs, np.linalg.matrix_rank(normal, 1e-9))
    products = shares.T @ inverse @ shares
    loose = shares.T @ (np.eye(len(normal)) - inverse @ normal)
    centres = means - shares.T @ effects
    return RaceFit(centres, runs, variances, freedom, common, products, loose)


def fit_looked(samples: Sequence[Sample], alpha: float) -> Fit:
    """The samples of a race as it saw them, for a ranking at its boundary for any two of all cells
    (who ran again is chance); a single run says nothing."""
    usable = np.array([len(each.values) > 1 and min(each.values) > 0 for each in samples])
    runs = np.array([len(each.values) for each in samples], dtype=float)
    centres = np.array([plain_centre(each) for each in samples])
    variances, freedom = np.full(len(runs), np.inf), np.ones(len(runs))
    errors = np.full((len(runs), len(runs)), np.inf)
    chosen = [each for each, good in zip(samples, usable, strict=True) if good]
    if chosen:
        logs, present = tabulate(chosen, has_blocks(chosen))
        fit = fit_race(np.where(present > 0, logs, np.nan).T)
        if math.isfinite(fit.common):
            errors[np.ix_(usable, usable)] = fit.squared_errors(np.arange(len(chosen)))
        centres[usable], variances[usable] = fit.centres, fit.variances
        freedom[usable] = fit.freedom
    boundary = find_boundary(any_pair_alpha(alpha, len(runs)))
    sure = sure_scores(runs, freedom, boundary)
    nothing = np.zeros((0, len(runs)))
    return Fit(centres, variances, errors, nothing, runs, True, sure=sure)


def _scatter(residuals: Array, runs: Array, blocks: int) -> tuple[Array, Array, float]:
    """Variances of a run by cell with their degrees of freedom, and the common variance.

    What the blocks take away of the degrees of freedom is shared by the cells in proportion. A
    cell that scatters more than the others let expect stands alone (after Phipson et al. 2016, doi
    10.1214/16-AOAS920): few like it would otherwise be judged by the calm of the many.
    """
    from scipy.special import fdtrc

    own = np.maximum(runs - 1.0, 0.0)
    total = float(own.sum()) - blocks
    if total < 1:
        return np.full(len(runs), np.inf), np.ones(len(runs)), float("inf")
    freedom = own * total / own.sum()
    squares = (residuals**2).sum(axis=0)
    pooled = max(float(squares.sum()) / total, RESOLUTION**2)
    prior, common = _prior(squares, freedom, pooled)
    single = squares / np.maximum(freedom, 1e-9)
    drawn = common + (squares - freedom * common) / (prior + freedom)
    alone = (freedom > 0) & (fdtrc(freedom, min(prior, 1e6), single / common) < ODD)
    variances = np.where(alone, single, drawn)
    held = np.where(alone, np.maximum(freedom, 1e-3), np.minimum(prior + freedom, total))
    return np.maximum(variances, RESOLUTION**2), held, pooled


def _prior(squares: Array, freedom: Array, pooled: float) -> tuple[float, float]:
    """Degrees of freedom and value of what the cells' variances have in common; infinite degrees
    where they scatter no more than by chance (Smyth 2004, section 6.2)."""
    from scipy.special import polygamma, psi

    repeated = freedom > 0
    held = freedom[repeated]
    if len(held) < 3:
        return float("inf"), pooled
    single = np.maximum(squares[repeated] / held, RESOLUTION**2)
    logs = np.log(single) - psi(held / 2) + np.log(held / 2)
    # The scatter of a variance with few degrees of freedom says little: the others lead.
    chance = polygamma(1, held / 2)
    weights = 1 / (polygamma(3, held / 2) + 2 * chance**2)
    centre = float((logs / chance).sum() / (1 / chance).sum())
    excess = float((weights * ((logs - centre) ** 2 * len(held) / (len(held) - 1) - chance)).sum())
    excess /= float(weights.sum())
    if excess <= 1e-3:
        return float("inf"), pooled
    prior = 2 * inverse_trigamma(excess)
    return prior, float(np.exp(centre + psi(prior / 2) - np.log(prior / 2)))
