"""The model behind every comparison of many cells: log(value) = cell + block + error.

Logarithms, because disks differ by factors and their scatter grows with their speed. Blocks are
taken out by least squares, so a cell that lost a run to a failure stays comparable. Each cell
has its own error variance: a guest under emulation scatters by 30 %, the host by 3 %. From three
runs a variance is hardly known; what it may be is drawn in ``scatter``, and with it the error
of each cell's centre.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.blocks import BlockEquations, eliminate_cells
from diskproof.stats.intervals import Sample, resolution
from diskproof.stats.scatter import draw_variances, scales

Array = NDArray[np.float64]

ROUNDS = 2
"""Weights and variances are found in turn; from the second round on, nothing that counts moves."""

DRAWS = 1000
"""Draws of all variances and errors, at least; the 5 % that matter are 50 of them."""
_LOST = 1e-3
"""Degrees of freedom of a cell whose blocks nobody else had: nothing tells its scatter."""
_SKETCH = 200
"""Draws that weights are taken from."""

TAIL = 0.02
"""Cells that are hardly known count in a comparison as what they are in this share of cases."""


@dataclass(frozen=True)
class Fit:
    """One fitted study of k cells.

    ``centres`` are means of natural logarithms with the blocks taken out (the plain mean of what
    is not compared, 0 where there is no logarithm); ``runs`` counts values; ``variances`` belong to
    one run: a middle of what they may be. ``errors`` (k x k) are squared standard errors of
    the differences of centres: infinite where nothing can be said, because a cell has one run
    only, a value without a logarithm, or no block that ties it to the other. ``draws`` (draws x
    k) are errors of the centres as they may be, all drawn together. Where the data were looked at
    while they came there are none, but ``sure``: how many standard errors a cell's differences must
    exceed.
    """

    centres: Array
    variances: Array
    errors: Array
    draws: Array
    runs: Array
    blocked: bool
    sure: Array | None = None


def fit_cells(samples: Sequence[Sample], draws: int = DRAWS, seed: int = 0) -> Fit:
    """Fit the model to the samples of all cells of a workload (at least one).

    The same runs give the same draws, in whatever order the cells stand. Fits that are joined need
    seeds of their own.
    """
    usable = [i for i, each in enumerate(samples) if len(each.values) > 1 and min(each.values) > 0]
    usable.sort(key=lambda i: (samples[i].values, samples[i].blocks))
    count = len(samples)
    centres = np.array([plain_centre(each) for each in samples])
    variances, errors = np.full(count, np.inf), np.full((count, count), np.inf)
    errors_drawn = np.zeros((draws, count))
    chosen = [samples[i] for i in usable]
    blocked = has_blocks(chosen)
    if chosen:
        logs, present = tabulate(chosen, blocked)
        residuals = _residuals(logs, present, blocked=blocked)
        rounding = [_rounding(each) for each in chosen]
        drawn = np.maximum(residuals.draw(draws, np.random.default_rng(seed)), rounding)
        centres[usable], variances[usable] = residuals.centres, np.median(drawn, axis=0)
        errors[np.ix_(usable, usable)] = _pair_errors(scales(drawn, TAIL), residuals)
        errors_drawn[:, usable] = _draw_errors(drawn, residuals, np.random.default_rng([seed, 1]))
    runs = np.array([len(each.values) for each in samples], dtype=float)
    return Fit(centres, variances, errors, errors_drawn, runs, blocked)


def plain_centre(sample: Sample) -> float:
    """The mean logarithm as it is; 0 where there is none."""
    if min(sample.values) <= 0:
        return 0.0
    return math.fsum(map(math.log, sample.values)) / len(sample.values)


def _rounding(sample: Sample) -> float:
    """The least variance of a run that is rounded. Runs that round alike all err alike, so the mean
    of any number of them has the error of one."""
    count = len(sample.values)
    step = resolution(sample.values) * count / math.fsum(sample.values)
    return count * step**2 / 12


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


@dataclass(frozen=True)
class _Residuals:
    """What is left beside cells and blocks: sums of ``squares`` by cell with their degrees of
    ``freedom``. ``shares`` (cells x blocks) say what part of a cell's runs lies in each block."""

    centres: Array
    squares: Array
    freedom: Array
    runs: Array
    shares: Array
    solved: BlockEquations

    def draw(self, draws: int, rng: np.random.Generator) -> Array:
        """Draw variances; two cells in blocks show but the scatter of their difference, as in the
        paired t test."""
        if len(self.runs) == 2 and self.solved.normal.any():
            whole = self.squares.sum(keepdims=True), self.freedom.sum(keepdims=True)
            return np.repeat(draw_variances(*whole, draws, rng), 2, axis=1)
        return draw_variances(self.squares, self.freedom, draws, rng)


def _residuals(logs: Array, present: Array, *, blocked: bool) -> _Residuals:
    """Least squares; the cells weigh as their scatter, once it is drawn, says.

    With all blocks complete the weights cancel out of the differences between cells and only
    serve to tell whose scatter it was (each cell's squares over the trace of its residual
    projection: the estimating equation of restricted maximum likelihood, Patterson and
    Thompson 1971). A noisy cell weighs less than the others, but none more than the middle one:
    the blocks would else be what one cell did, and nothing be left to tell its own scatter.
    """
    runs = present.sum(axis=1)
    shares = present / runs[:, None]
    means = logs.sum(axis=1) / runs
    inner = (logs - means[:, None]) * present
    weights = np.ones(len(runs))
    for turn in range(ROUNDS if blocked else 1):
        solved = eliminate_cells(present, weights) if blocked else _no_blocks(present)
        effects = solved.inverse @ (weights @ inner)
        residuals = (inner - effects + (shares @ effects)[:, None]) * present
        spread = shares @ solved.inverse
        tied = np.diag(solved.inverse) - 2 * spread + (spread * shares).sum(axis=1)[:, None]
        leverage = (present * (1 / runs[:, None] + weights[:, None] * tied)).sum(axis=1)
        squares, freedom = (residuals**2).sum(axis=1), np.maximum(runs - leverage, _LOST)
        found = _Residuals(means - shares @ effects, squares, freedom, runs, shares, solved)
        middle = np.median(found.draw(_SKETCH, np.random.default_rng(turn)), axis=0)
        weights = 1 / np.maximum(middle, np.median(middle))
    return found


def _no_blocks(present: Array) -> BlockEquations:
    nothing = np.zeros((present.shape[1], present.shape[1]))
    return BlockEquations(nothing, nothing)


def _pair_errors(scale: Array, left: _Residuals) -> Array:
    """Squared errors of differences; what cells lack of each other's blocks adds to them."""
    own = scale / left.runs
    products = left.shares @ left.solved.inverse @ left.shares.T
    diagonal = np.diag(products)
    through_blocks = np.maximum(np.add.outer(diagonal, diagonal) - 2 * products, 0)
    size = len(left.solved.normal)
    loose = left.shares @ (np.eye(size) - left.solved.inverse @ left.solved.normal)
    apart = ((loose[:, None, :] - loose[None, :, :]) ** 2).sum(axis=2) > 1e-12
    apart &= left.solved.normal.any()
    return np.where(apart, np.inf, np.add.outer(own, own) + through_blocks)


def _draw_errors(variances: Array, left: _Residuals, rng: np.random.Generator) -> Array:
    """Errors of the centres: those of the cells' own runs, and those of the blocks they had."""
    errors = rng.standard_normal(variances.shape) * np.sqrt(variances / left.runs)
    values, vectors = np.linalg.eigh(left.solved.inverse)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    drawn: Array = errors - rng.standard_normal((len(errors), len(root))) @ (left.shares @ root).T
    return drawn


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
