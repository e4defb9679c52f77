"""All pairs of cells compared at once, and the best with all others, at one family-wise error.

Pairs are single-step, so that every statement comes with a simultaneous interval: a pair differs
when its difference over its standard error is beyond what the largest of all pairs reaches by
chance. With one variance for all cells that is the studentised range (Tukey 1953). The cells'
variances differ, and are not known, so there is no such table: the largest is drawn, from errors of
all centres under all variances that the runs allow (``scatter``). A wild cell is wild in all of its
pairs, which so are paid for once.

Who is the best is asked apart, for that takes less: whatever the number of cells, a best mean that
is not the best must be far beyond that of one cell, the true best (Gutmann and Maymin 1987).
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
Places = NDArray[np.int64]

ALPHA = 0.05
KEPT = {True: 0.9, False: 0.6}
"""Share of the error that is granted to draws, with blocks and without; the rest is for scatter
that is none of those drawn. Blocks let a wild cell leak into all others, which makes them cautious.
"""
ALIKE, WARY = 8, 0.45
"""Of more than ALIKE cells less is granted, by this power of their number: among many one cell that
scatters more than it showed is likelier, and it is compared with all others."""
BEST = 0.25
"""Share of the error that is granted to the claim that one cell is ahead of all others; the pairs
have the rest, and that as well once it is made (Holm 1979)."""
KNOWN = 3
"""Runs from which on a cell may be called the best: two show its scatter once, and too often that
is small by chance."""
OUTERMOST = 8
"""Cells of a draw whose pairs are looked at. Of 300 cells the ninth is two standard errors out:
its pair with the next reaches nothing that is rare."""


@dataclass(frozen=True)
class Comparisons:
    """Differences of logarithms, row minus column, and the half widths of their simultaneous
    intervals downwards (upwards: those of the column minus the row); infinite where nothing can be
    said. k x k each. ``largest`` are the largest differences over their errors as they are by
    chance, in order of size. ``best`` is who is ahead of all others, by estimate at least; None
    where nobody asks."""

    fit: Fit
    differences: Array
    half_widths: Array
    largest: Array
    best: AheadOfAll | None = None

    @property
    def proved(self) -> Flags:
        """Which pairs differ, as a symmetric table."""
        ahead: Flags = self.differences > self.half_widths
        return ahead | ahead.T

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
        best = self.best and replace(self.best, cell=cells.index(self.best.cell))
        halves = self.half_widths[pairs]
        return Comparisons(moved, self.differences[pairs], halves, self.largest, best)


@dataclass(frozen=True)
class AheadOfAll:
    """The ``cell`` ahead of all others: by ``lead`` on the log scale at least, if that is above
    nought. ``p_value`` of its being ahead, corrected for all that is claimed."""

    cell: int
    lead: float
    p_value: float


def compare_all(
    samples: Sequence[Sample], alpha: float = ALPHA, higher_is_better: bool | None = None
) -> Comparisons:
    """Compare the cells of one workload (at least one), with a probability of ``alpha`` that any
    false difference is claimed; also the best with all others, where it is told what is better."""
    return _compare(tuple(samples), alpha, higher_is_better)


def fit_samples(samples: Sequence[Sample], alpha: float = ALPHA, seed: int = 0) -> Fit:
    """The model by which they are compared: a race's own where they were looked at like one."""
    looked = any(each.looked for each in samples)
    return fit_looked(samples, alpha) if looked else fit_cells(samples, draws_for(alpha), seed)


@lru_cache(maxsize=32)  # tables, sentences and charts ask for the same comparisons
def _compare(
    samples: tuple[Sample, ...], alpha: float, higher_is_better: bool | None
) -> Comparisons:
    return compare_fit(fit_samples(samples, alpha), alpha, higher_is_better)


def draws_for(alpha: float) -> int:
    """Draws of which so many are beyond ``alpha`` that it is known well."""
    return min(max(DRAWS, math.ceil(50 / alpha)), 20 * DRAWS)


def compare_fit(
    fit: Fit, alpha: float = ALPHA, higher_is_better: bool | None = None
) -> Comparisons:
    """Compare cells by what is known of their centres."""
    differences = np.subtract.outer(fit.centres, fit.centres)
    cells = np.flatnonzero(np.isfinite(fit.variances))
    if len(cells) < 2:
        return Comparisons(fit, differences, np.full_like(fit.errors, np.inf), np.zeros(0))
    largest, best = np.zeros(0), None
    if fit.sure is not None:
        halves = np.maximum.outer(fit.sure, fit.sure) * np.sqrt(fit.errors)
    else:
        granted = _granted(fit) * alpha
        largest = np.sort(_largest(fit.draws[:, cells], fit.errors[np.ix_(cells, cells)]))
        if higher_is_better is not None and _asks_for_best(len(cells), fit.runs[cells].max()):
            best = _find_best(fit, cells, higher_is_better, BEST * granted)
        share = 1 - BEST if best and best.p_value > alpha else 1.0
        halves = largest[_place_of(share * granted, len(largest))] * np.sqrt(fit.errors)
        if best and best.p_value <= alpha:
            ahead = np.abs(differences[best.cell]) - best.lead
            side = (best.cell, cells) if higher_is_better else (cells, best.cell)
            halves[side] = np.minimum(halves[side], ahead[cells])
    np.fill_diagonal(halves, np.inf)
    spent = replace(fit, draws=fit.draws[:0])  # megabytes that have said what they had to say
    return Comparisons(spent, differences, halves, largest, best)


def _granted(fit: Fit) -> float:
    """Share of the error that is granted to draws."""
    cells = int(np.isfinite(fit.variances).sum())
    return KEPT[fit.blocked] * math.pow(ALIKE / max(ALIKE, cells), WARY)


def _asks_for_best(cells: int, runs: float) -> bool:
    """Two cells are a pair, of which nothing else is to be told."""
    return cells > 2 and runs >= KNOWN


def _place_of(alpha: float, draws: int) -> int:
    """Which of so many draws, in order of size, only ``alpha`` of all cases exceed."""
    return min(math.ceil((draws + 1) * (1 - alpha)), draws) - 1


def _find_best(fit: Fit, cells: Places, higher_is_better: bool, alpha: float) -> AheadOfAll:
    """The best mean against each other cell, in a two-sided test of that pair alone: one true best
    is all that it can be wrong about, and two cells that are equally good are the worst case."""
    own = fit.centres[cells] if higher_is_better else -fit.centres[cells]
    place = int(own.argmax())
    others = np.delete(np.arange(len(cells)), place)
    untied = not np.isfinite(fit.errors[cells[place], cells[others]]).all()
    if untied or fit.runs[cells[place]] < KNOWN:
        return AheadOfAll(int(cells[place]), -math.inf, 1.0)
    ahead, draws = own[place] - own[others], fit.draws[:, cells]
    gaps = np.sort(np.abs(draws[:, others] - draws[:, [place]]), axis=0)
    lead = float((ahead - gaps[_place_of(alpha, len(gaps))]).min())
    p_value = float((1 + (gaps >= ahead).sum(axis=0)).max()) / (1 + len(gaps))
    return AheadOfAll(int(cells[place]), lead, min(1.0, p_value / _granted(fit) / BEST))


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
    """p-values of one cell against all, corrected for all that is claimed; 1 where nothing is
    known. None is less than what so many draws can tell."""
    t = np.abs(compared.differences[row]) / np.sqrt(compared.fit.errors[row])
    beyond = len(compared.largest) - np.searchsorted(compared.largest, t)
    p_values: Array = (1 + beyond) / (1 + len(compared.largest)) / _granted(compared.fit)
    best = compared.best
    if best:
        p_values = np.minimum(p_values / (1 - BEST), np.maximum(p_values, best.p_value))
        concerned = (np.arange(len(t)) == best.cell) | (row == best.cell)
        p_values = np.where(concerned, np.minimum(p_values, best.p_value), p_values)
    known = (t > 0) & np.isfinite(compared.fit.errors[row])
    return np.where(known, np.minimum(p_values, 1.0), 1.0)


def left_to_pairs(alpha: float, cells: int, runs: int) -> float:
    """What of the error the pairs have where no cell is ahead of all others."""
    return (1 - BEST) * alpha if _asks_for_best(cells, runs) else alpha


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
