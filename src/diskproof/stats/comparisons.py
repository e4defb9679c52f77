"""All pairs of cells compared at once, at a family-wise error.

Single-step, so that every statement comes with a simultaneous interval: a pair differs when its
difference over its standard error is beyond what the largest of all pairs reaches by chance. With
one variance for all cells that is the studentised range (Tukey 1953). The cells' variances differ,
and are not known, so there is no such table: the largest is drawn, from errors of all centres
under all variances that the runs allow (``scatter``). A wild cell is wild in all of its pairs,
which so are paid for once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.intervals import Sample
from diskproof.stats.model import DRAWS, Fit, fit_cells
from diskproof.stats.race_fit import fit_looked

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

ALPHA = 0.05
KEPT = {True: 0.9, False: 0.6}
"""Share of the error that is granted to draws, with blocks and without; the rest is for scatter
that is none of those drawn. Blocks let a wild cell leak into all others, which makes them cautious.
"""
OUTERMOST = 8
"""Cells of a draw whose pairs are looked at. Of 300 cells the ninth is two standard errors out:
its pair with the next reaches nothing that is rare."""


@dataclass(frozen=True)
class Comparisons:
    """Differences of logarithms, row minus column, and the half widths of their simultaneous
    intervals; infinite where nothing can be said. k x k each. ``largest`` are the largest
    differences over their errors as they are by chance, in order of size."""

    fit: Fit
    differences: Array
    half_widths: Array
    largest: Array

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
            errors=fit.errors[pairs],
            draws=fit.draws[:, cells],
            runs=fit.runs[cells],
            sure=None if fit.sure is None else fit.sure[cells],
        )
        return Comparisons(moved, self.differences[pairs], self.half_widths[pairs], self.largest)


def compare_all(samples: Sequence[Sample], alpha: float = ALPHA) -> Comparisons:
    """Compare the cells of one workload (at least one), with a probability of ``alpha`` that any
    false difference is claimed."""
    return _compare(tuple(samples), alpha)


def fit_samples(samples: Sequence[Sample], alpha: float = ALPHA, seed: int = 0) -> Fit:
    """The model by which they are compared: a race's own where they were looked at like one."""
    looked = any(each.looked for each in samples)
    return fit_looked(samples, alpha) if looked else fit_cells(samples, draws_for(alpha), seed)


@lru_cache(maxsize=32)  # tables, sentences and charts ask for the same comparisons
def _compare(samples: tuple[Sample, ...], alpha: float) -> Comparisons:
    return compare_fit(fit_samples(samples, alpha), alpha)


def draws_for(alpha: float) -> int:
    """Draws of which so many are beyond ``alpha`` that it is known well."""
    return min(max(DRAWS, math.ceil(50 / alpha)), 20 * DRAWS)


def compare_fit(fit: Fit, alpha: float = ALPHA) -> Comparisons:
    """Compare cells by what is known of their centres."""
    differences = np.subtract.outer(fit.centres, fit.centres)
    cells = np.flatnonzero(np.isfinite(fit.variances))
    if len(cells) < 2:
        return Comparisons(fit, differences, np.full_like(fit.errors, np.inf), np.zeros(0))
    if fit.sure is not None:
        largest = np.zeros(0)
        halves = np.maximum.outer(fit.sure, fit.sure) * np.sqrt(fit.errors)
    else:
        largest = np.sort(_largest(fit.draws[:, cells], fit.errors[np.ix_(cells, cells)]))
        place = math.ceil((len(largest) + 1) * (1 - KEPT[fit.blocked] * alpha)) - 1
        halves = largest[min(place, len(largest) - 1)] * np.sqrt(fit.errors)
    np.fill_diagonal(halves, np.inf)
    spent = replace(fit, draws=fit.draws[:0])  # megabytes that have said what they had to say
    return Comparisons(spent, differences, halves, largest)


def _largest(draws: Array, errors: Array) -> Array:
    """Of each draw the largest difference of any two cells over its standard error.

    One of the two is among the cells that are farthest out by their own error: the others' pairs
    are not looked at.
    """
    own = np.sqrt(np.diag(errors))
    precision = 1 / np.sqrt(errors)
    np.fill_diagonal(precision, 0.0)
    found = np.zeros(len(draws))
    outer = np.argsort(-np.abs(draws / own), axis=1)[:, :OUTERMOST]
    rows = np.arange(len(draws))
    for column in outer.T:
        gaps = np.abs(draws - draws[rows, column][:, None]) * precision[column]
        found = np.maximum(found, gaps.max(axis=1))
    return found


def adjusted_p(compared: Comparisons, row: int) -> Array:
    """p-values of one cell against all, corrected for all pairs; 1 where nothing is known. None is
    less than what so many draws can tell."""
    t = np.abs(compared.differences[row]) / np.sqrt(compared.fit.errors[row])
    beyond = len(compared.largest) - np.searchsorted(compared.largest, t)
    p_values: Array = (1 + beyond) / (1 + len(compared.largest)) / KEPT[compared.fit.blocked]
    return np.where(t > 0, np.minimum(p_values, 1.0), 1.0)


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
