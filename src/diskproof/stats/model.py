"""The model behind every comparison of many cells: log(value) = cell + block + error.

Logarithms, because disks differ by factors and their scatter grows with their speed. Blocks are
taken out by least squares, so a cell that lost a run to a failure stays comparable. Each cell
has its own error variance: a guest under emulation scatters by 30 %, the host by 3 %. From three
runs a variance is hardly known, so each is drawn towards what the cells have in common, as far as
they do have it in common (Smyth 2004, doi 10.2202/1544-6115.1027: the moderated t statistic).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.blocks import BlockEquations, eliminate_cells
from diskproof.stats.intervals import RESOLUTION, Sample

Array = NDArray[np.float64]

ROUNDS = 4
"""Weights and variances are found in turn; from the third round on, nothing that counts moves."""

CAUTIOUS_BELOW = 30
"""Residual degrees of freedom of a study up to which a whole standard error is added to how much
the cells' variances differ; beyond, less. Found by simulation: without it 8 cells in 3 blocks, one
of them noisy, were told apart in 11 % of studies of equal cells (`benchmarks/calibration.py`)."""

FEW_CELLS = 6
"""Fewer cells without blocks keep their own variances: there is nothing to learn from others."""


@dataclass(frozen=True)
class Fit:
    """One fitted study of k cells.

    ``centres`` are means of natural logarithms with the blocks taken out (the plain mean of what
    is not compared, 0 where there is no logarithm); ``runs`` counts values; ``variances`` and
    ``freedom`` belong to the error of one run. ``errors`` (k x k) are squared standard errors of
    the differences of centres: infinite where nothing can be said, because a cell has one run
    only, a value without a logarithm, or no block that ties it to the other. ``sure``: how many
    standard errors a cell's differences must exceed where the data were looked at while they came.
    """

    centres: Array
    variances: Array
    freedom: Array
    errors: Array
    runs: Array
    blocked: bool
    sure: Array | None = None


def fit_cells(samples: Sequence[Sample]) -> Fit:
    """Fit the model to the samples of all cells of a workload (at least one)."""
    usable = np.array([len(each.values) > 1 and min(each.values) > 0 for each in samples])
    chosen = [each for each, good in zip(samples, usable, strict=True) if good]
    count = len(samples)
    centres = np.array([plain_centre(each) for each in samples])
    variances = np.full(count, np.inf)
    freedom, errors = np.ones(count), np.full((count, count), np.inf)
    blocked = has_blocks(chosen)
    if chosen:
        logs, present = tabulate(chosen, blocked)
        found = _fit_blocked(logs, present) if blocked else _fit_one_way(logs, present)
        centres[usable], variances[usable], freedom[usable], inner = found
        errors[np.ix_(usable, usable)] = inner
    runs = np.array([len(each.values) for each in samples], dtype=float)
    return Fit(centres, variances, freedom, errors, runs, blocked)


def plain_centre(sample: Sample) -> float:
    """The mean logarithm as it is; 0 where there is none."""
    if min(sample.values) <= 0:
        return 0.0
    return math.fsum(map(math.log, sample.values)) / len(sample.values)


def has_blocks(samples: Sequence[Sample]) -> bool:
    """Whether blocks can be taken out: every run has one, and no cell has one twice."""
    return all(
        each.blocks and len(set(each.blocks)) == len(each.values) == len(each.blocks)
        for each in samples
    )


def tabulate(samples: Sequence[Sample], blocked: bool) -> tuple[Array, Array]:
    """Logarithms in a table of cells x blocks (or runs), 0 where a run is missing, and which are
    there as 0 or 1."""
    named = [each.blocks if blocked else range(len(each.values)) for each in samples]
    columns = {name: place for place, name in enumerate(sorted({n for row in named for n in row}))}
    logs = np.zeros((len(samples), len(columns)))
    present = np.zeros_like(logs)
    for row, (sample, names) in enumerate(zip(samples, named, strict=True)):
        places = [columns[name] for name in names]
        logs[row, places] = np.log(sample.values)
        present[row, places] = 1.0
    return logs, present


def _fit_one_way(logs: Array, present: Array) -> tuple[Array, Array, Array, Array]:
    runs = present.sum(axis=1)
    centres = logs.sum(axis=1) / runs
    squares = (((logs - centres[:, None]) * present) ** 2).sum(axis=1)
    if len(runs) < FEW_CELLS:
        variances, freedom = np.maximum(squares / (runs - 1), RESOLUTION**2), runs - 1
    else:
        variances, freedom = moderate(squares, runs - 1)
    share = variances / runs
    return centres, variances, freedom, np.add.outer(share, share)


def _fit_blocked(logs: Array, present: Array) -> tuple[Array, Array, Array, Array]:
    """Least squares weighted by the cells' precision; the weights come from its residuals.

    With all blocks complete the weights cancel out of the differences between cells and only
    serve to tell whose scatter it was (each cell's squares over the trace of its residual
    projection: the estimating equation of restricted maximum likelihood, Patterson and
    Thompson 1971).
    """
    runs = present.sum(axis=1)
    shares = present / runs[:, None]
    means = logs.sum(axis=1) / runs
    inner = (logs - means[:, None]) * present
    variances, freedom = np.ones(len(runs)), np.ones(len(runs))
    for _ in range(ROUNDS):
        weights = 1 / variances
        solved = eliminate_cells(present, weights)
        effects = solved.inverse @ (weights @ inner)
        residuals = (inner - effects + (shares @ effects)[:, None]) * present
        spread = shares @ solved.inverse
        tied = np.diag(solved.inverse) - 2 * spread + (spread * shares).sum(axis=1)[:, None]
        leverage = (present * (1 / runs[:, None] + weights[:, None] * tied)).sum(axis=1)
        squares = (residuals**2).sum(axis=1)
        if len(runs) == 2:  # only the difference of two cells is seen: one variance, as in paired t
            freedom = np.full(2, max((runs - leverage).sum(), 1e-3))
            variances = np.full(2, max(squares.sum() / freedom[0], RESOLUTION**2))
        else:
            variances, freedom = moderate(squares, runs - leverage)
    centres = means - shares @ effects
    return centres, variances, freedom, _pair_errors(variances / runs, shares, solved)


def _pair_errors(own: Array, shares: Array, solved: BlockEquations) -> Array:
    """Squared errors of differences; what cells lack of each other's blocks adds to them."""
    products = shares @ solved.inverse @ shares.T
    diagonal = np.diag(products)
    through_blocks = np.maximum(np.add.outer(diagonal, diagonal) - 2 * products, 0)
    loose = shares @ (np.eye(len(solved.normal)) - solved.inverse @ solved.normal)
    apart = ((loose[:, None, :] - loose[None, :, :]) ** 2).sum(axis=2) > 1e-12
    return np.where(apart, np.inf, np.add.outer(own, own) + through_blocks)


def moderate(squares: Array, freedom: Array) -> tuple[Array, Array]:
    """Variances drawn towards their common value, and their degrees of freedom.

    ``squares`` are sums of squared residuals, ``freedom`` their degrees of freedom. Smyth 2004,
    section 6: variances of cells follow a scaled inverse chi-square whose degrees of freedom come
    from the scatter of the logarithms of the single variances. Of that scatter not the estimate
    is taken but up to one standard error more: a few cells can look alike by chance, and to pool
    a noisy cell with quiet ones is the error that claims false differences. Fewer than three
    cells are not drawn: there is no scatter to see.
    """
    from scipy.special import polygamma, psi

    held = np.maximum(freedom, 1e-3)
    single = np.maximum(squares / held, RESOLUTION**2)
    if len(single) < 3:
        return single, held
    total = float(held.sum())
    logs = np.log(single) - psi(held / 2) + np.log(held / 2)
    by_chance = float(polygamma(1, held / 2).mean())
    doubt = 2 * by_chance**2 / (len(single) - 1) + polygamma(3, held / 2).mean() / len(single)
    caution = min(1.0, CAUTIOUS_BELOW / total)
    excess = float(logs.var(ddof=1)) - by_chance + caution * float(doubt) ** 0.5
    if excess <= 0:
        pooled = float((held * single).sum() / total)
        return np.full(len(single), pooled), np.full(len(single), total)
    prior = 2 * inverse_trigamma(excess)
    common = float(np.exp(logs.mean() + psi(prior / 2) - np.log(prior / 2)))
    drawn = (prior * common + held * single) / (prior + held)
    return drawn, np.minimum(prior + held, total)


def inverse_trigamma(value: float) -> float:
    """x with trigamma(x) = value > 0, by the Newton steps of Smyth 2004, appendix."""
    from scipy.special import polygamma

    if value > 1e7:
        return float(value**-0.5)
    if value < 1e-6:
        return 1 / value
    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x
