"""What each cell gives on the log scale once the blocks' shared ups and downs are taken out.

The blocked linear model ``log value = cell + block + noise`` for questions about many cells at
once: the effect of a level, a drift, a first run. Each is a contrast of the cell means, with the
error of the runs that it weighs. With two cells and complete blocks that is the paired t-test,
without blocks Welch's. (Comparisons of single cells, which have few runs each, are ``model``'s.)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.blocks import eliminate_cells
from diskproof.stats.intervals import CONFIDENCE, RESOLUTION, Sample

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

_MOST = 700.0
"""Beyond this exp has no result; a variance this large is a host gone mad."""


@dataclass(frozen=True)
class Difference:
    """A difference on the log scale. ``error`` and ``freedom`` are None when nothing tells them."""

    value: float
    error: float | None
    freedom: float | None

    def bounds(self, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
        """Student-t interval of the difference, still on the log scale."""
        from scipy.special import stdtrit

        if self.error is None or self.freedom is None:
            return None
        half = float(stdtrit(self.freedom, (1 + confidence) / 2)) * self.error
        return self.value - half, self.value + half

    @property
    def p_value(self) -> float | None:
        """Two-sided, of no difference."""
        from scipy.special import stdtr

        if self.error is None or self.freedom is None:
            return None
        return float(2 * stdtr(self.freedom, -abs(self.value) / self.error))


@dataclass(frozen=True)
class CellMeans:
    """The fitted model. ``means`` run parallel to the samples, ``block_effects`` to
    ``block_numbers`` (both empty when blocks are not in the model) and add up to nought.

    ``freedom`` are the residual degrees of freedom; 0 when no cell has a repeat. ``residuals``,
    ``cell_of`` and ``block_of`` (-1 without blocks) run parallel to all values in order.
    """

    means: Vector
    counts: Vector
    block_numbers: tuple[int, ...]
    block_effects: Vector
    residuals: Vector
    cell_of: Indices
    block_of: Indices
    freedom: int
    _incidence: Vector
    _inverse: Vector

    @property
    def variance(self) -> float:
        """Variance of a run around its cell and block; nan without repeats."""
        return float((self.residuals**2).sum()) / self.freedom if self.freedom else math.nan

    @property
    def run_cv(self) -> float:
        """Coefficient of variation from run to run of a cell (log-normal); nan without repeats."""
        return math.sqrt(math.expm1(min(self.variance, _MOST))) if self.freedom else math.nan

    @property
    def block_sizes(self) -> Vector:
        """Runs in each block."""
        sizes: Vector = self._incidence.sum(axis=1)
        return sizes

    def run_weights(self, contrast: Vector) -> Vector:
        """What each run counts in a contrast of the cell means."""
        per_run = contrast / self.counts
        if not self.block_numbers:
            plain: Vector = per_run[self.cell_of]
            return plain
        shared = self._inverse @ (self._incidence @ per_run)
        back = self._incidence.T @ shared / self.counts
        weights: Vector = (per_run + back)[self.cell_of] - shared[self.block_of]
        return weights

    def estimate(self, contrast: Vector) -> Difference:
        """A weighted sum of cell means with its error.

        Each cell brings its own variance (a cache mode may scatter ten times as much as another);
        degrees of freedom by Satterthwaite 1946. A cell with one run gets the pooled variance.
        """
        value = float(contrast @ self.means)
        if not self.freedom:
            return Difference(value, None, None)
        weights = np.bincount(self.cell_of, self.run_weights(contrast) ** 2, len(self.means))
        variances, freedoms = self._cell_variances()
        parts = variances * weights
        freedom = parts.sum() ** 2 / (parts**2 / freedoms).sum() if parts.any() else self.freedom
        return Difference(value, math.sqrt(parts.sum()), float(min(freedom, self.freedom)))

    def _cell_variances(self) -> tuple[Vector, Vector]:
        """Variance of a run and its degrees of freedom, by cell.

        The blocks' degrees of freedom are taken from all cells in proportion to their own.
        """
        own = self.counts - 1
        inflation = own.sum() / self.freedom
        squares = np.bincount(self.cell_of, self.residuals**2, len(self.means))
        repeated = own > 0
        variances = np.full(len(own), self.variance)
        np.divide(squares * inflation, own, out=variances, where=repeated)
        freedoms = np.where(repeated, own / inflation, self.freedom)
        return np.maximum(variances, RESOLUTION**2), freedoms


def fit_cell_means(samples: Sequence[Sample]) -> CellMeans:
    """Fit the model by least squares; blocks are in it where all samples have them and they
    connect the cells. Raises ValueError for an empty sample or a value that is not positive.
    """
    if not samples or any(not s.values or min(s.values) <= 0 for s in samples):
        raise ValueError("cell means on the log scale need positive values in every cell")
    logs = np.log([value for sample in samples for value in sample.values])
    counts = np.array([len(sample.values) for sample in samples], dtype=float)
    cell_of = np.repeat(np.arange(len(samples)), counts.astype(int))
    numbers, block_of = _blocks(samples)
    sums = np.bincount(cell_of, logs, len(samples))
    incidence = np.zeros((len(numbers), len(samples)))
    inverse = np.zeros((len(numbers), len(numbers)))
    effects = np.zeros(len(numbers))
    if numbers:
        np.add.at(incidence, (block_of, cell_of), 1.0)
        inverse = eliminate_cells(incidence.T, np.ones(len(samples))).inverse
        effects = inverse @ (np.bincount(block_of, logs) - incidence @ (sums / counts))
    means = (sums - incidence.T @ effects) / counts
    residuals = logs - means[cell_of] - (effects[block_of] if numbers else 0.0)
    freedom = len(logs) - len(samples) - max(0, len(numbers) - 1)
    return CellMeans(
        means,
        counts,
        numbers,
        effects,
        residuals,
        cell_of,
        block_of,
        freedom,
        incidence,
        inverse,
    )


def _blocks(samples: Sequence[Sample]) -> tuple[tuple[int, ...], Indices]:
    """Block numbers and the place of each run's block, or nothing where blocks cannot help.

    They cannot where a cell has none, where they would use up every degree of freedom, or where
    they fall into groups without a common cell: between such groups cells and blocks are one.
    """
    runs = sum(len(sample.values) for sample in samples)
    none: tuple[tuple[int, ...], Indices] = ((), np.full(runs, -1, dtype=np.int64))
    if any(len(sample.blocks) != len(sample.values) for sample in samples):
        return none
    numbers = tuple(sorted({block for sample in samples for block in sample.blocks}))
    if len(numbers) < 2 or runs - len(samples) - (len(numbers) - 1) <= 0:
        return none
    places = {block: place for place, block in enumerate(numbers)}
    if not _connected([{places[block] for block in sample.blocks} for sample in samples]):
        return none
    block_of = [places[block] for sample in samples for block in sample.blocks]
    return numbers, np.array(block_of, dtype=np.int64)


def _connected(blocks_of_cells: Sequence[set[int]]) -> bool:
    """Whether every block can be reached from every other one over common cells."""
    waiting = sorted(blocks_of_cells, key=len, reverse=True)
    reached = set(waiting[0])
    while waiting:
        rest = [blocks for blocks in waiting if not blocks & reached]
        if len(rest) == len(waiting):
            return False
        reached |= set().union(*(blocks for blocks in waiting if blocks & reached))
        waiting = rest
    return True
