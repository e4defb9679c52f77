"""All pairs of cells compared at once, at a family-wise error of 5 %.

Single-step, so that every statement comes with a simultaneous interval: a pair differs when its
t statistic is beyond what the studentised range (Tukey 1953, Kramer 1956) allows for that many
cells. The cells' variances differ, so there is no one studentised range to look up: each t is
first turned into the normal score of the same probability, at the degrees of freedom of the less
known of the two variances, and held against the range of that many normal variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.intervals import Sample
from diskproof.stats.model import Fit, fit_cells
from diskproof.stats.race_fit import fit_looked

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

ALPHA = 0.05
_FARTHEST = 37.0
"""Normal scores beyond this have a probability below what a double can hold."""


@dataclass(frozen=True)
class Comparisons:
    """Differences of logarithms, row minus column, and the half widths of their simultaneous
    intervals; infinite where nothing can be said. k x k each."""

    fit: Fit
    differences: Array
    half_widths: Array

    @property
    def proved(self) -> Flags:
        """Which pairs differ, as a symmetric table."""
        differ: Flags = np.abs(self.differences) > self.half_widths
        return differ

    def reordered(self, order: Sequence[int]) -> Comparisons:
        """The same comparisons with the cells in another order."""
        cells, pairs, fit = list(order), np.ix_(order, order), self.fit
        moved = replace(
            fit,
            centres=fit.centres[cells],
            variances=fit.variances[cells],
            freedom=fit.freedom[cells],
            errors=fit.errors[pairs],
            runs=fit.runs[cells],
            sure=None if fit.sure is None else fit.sure[cells],
        )
        return Comparisons(moved, self.differences[pairs], self.half_widths[pairs])


def compare_all(samples: Sequence[Sample]) -> Comparisons:
    """Compare the cells of one workload (at least one)."""
    return compare_fit(fit_samples(samples))


def fit_samples(samples: Sequence[Sample]) -> Fit:
    """The model by which they are compared: a race's own where they were looked at like one."""
    looked = any(each.looked for each in samples)
    return fit_looked(samples, ALPHA) if looked else fit_cells(samples)


def compare_fit(fit: Fit) -> Comparisons:
    """Compare cells by what is known of their centres."""
    differences = np.subtract.outer(fit.centres, fit.centres)
    cells = _comparable(fit)
    if cells < 2:
        return Comparisons(fit, differences, np.full_like(fit.errors, np.inf))
    halves = _factors(fit, cells) * np.sqrt(fit.errors)
    np.fill_diagonal(halves, np.inf)
    return Comparisons(fit, differences, halves)


def _factors(fit: Fit, cells: int) -> Array:
    """How many standard errors a difference must exceed, for each pair: Tukey's, or where the data
    were looked at while they came the boundary of a race, which holds over all looks."""
    from scipy.special import stdtrit

    if fit.sure is not None:
        factors: Array = np.maximum.outer(fit.sure, fit.sure)
        return factors
    freedom = np.minimum.outer(fit.freedom, fit.freedom)
    return -np.asarray(stdtrit(freedom, pair_level(cells) / 2), dtype=float)


def _comparable(fit: Fit) -> int:
    return int(np.isfinite(fit.variances).sum())


@cache
def pair_level(cells: int, alpha: float = ALPHA) -> float:
    """The two-sided level of a single pair that keeps all pairs of that many cells at ``alpha``."""
    from scipy.stats import norm, studentized_range

    quantile = float(studentized_range.ppf(1 - alpha, cells, float("inf")))
    return float(2 * norm.sf(quantile / 2**0.5))


def adjusted_p(compared: Comparisons, row: int) -> Array:
    """p-values of one cell against all, corrected for all pairs; 1 where nothing is known."""
    from scipy.special import stdtr
    from scipy.stats import norm, studentized_range

    fit = compared.fit
    t = np.abs(compared.differences[row]) / np.sqrt(fit.errors[row])
    single = 2 * stdtr(np.minimum(fit.freedom[row], fit.freedom), -t)
    scores = np.minimum(norm.isf(np.maximum(single, 5e-324) / 2), _FARTHEST)
    cells = _comparable(fit)
    if cells < 2:
        return np.ones(len(t))
    p_values: Array = studentized_range.sf(2**0.5 * scores, cells, float("inf"))
    return np.where(single >= 1, 1.0, np.clip(p_values, 0.0, 1.0))


def letter_groups(differ: Flags) -> list[tuple[int, ...]]:
    """A compact letter display (Piepho 2004): two cells share a group exactly if they are not
    told apart. ``differ`` is symmetric, rows in the order of the ranking; groups count from 0.

    Each pair that shares nothing yet opens a group, the farthest first, and every cell that
    differs from no member joins.
    """
    count = len(differ)
    groups: list[list[int]] = [[] for _ in range(count)]
    open_pairs = ~differ
    number = 0
    for first in range(count):
        while open_pairs[first, first:].any():
            last = first + int(np.flatnonzero(open_pairs[first, first:])[-1])
            members = _grow(differ, first, last)
            for member in members:
                groups[member].append(number)
            open_pairs[np.ix_(members, members)] = False
            number += 1
    return [tuple(each) for each in groups]


def _grow(differ: Flags, first: int, last: int) -> list[int]:
    members = sorted({first, last})
    barred = differ[first] | differ[last]
    for cell in range(len(differ)):
        if not barred[cell] and cell not in (first, last):
            members.append(cell)
            barred = barred | differ[cell]
    return sorted(members)
