"""A ranking that prints ties as ties.

The claims come from ``comparisons``: all pairs of cells at once, and the best against all others.
All pairs and not just those with the best: which cell is the best is read off the same data, so
among equal cells the comparison with the observed best is a comparison of extremes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from diskproof.records import Cell
from diskproof.stats.comparisons import ALPHA, Comparisons, adjusted_p, compare_all, letter_groups
from diskproof.stats.intervals import (
    Interval,
    RatioInterval,
    Sample,
    geometric_interval,
    ratio_interval,
)
from diskproof.stats.model import Fit

Flags = NDArray[np.bool_]

NOISY = 2.0
"""A cell whose error variance is more than this many times the median cell's may be left
unplaced; it would else take the claims away from all lines above it."""


@dataclass(frozen=True)
class Measured:
    """What one cell gave for one metric, to be ranked."""

    cell: Cell
    sample: Sample


@dataclass(frozen=True)
class CellRank:
    """Where a cell stands.

    ``rank`` is 1 plus the number of cells proved better, and never falls from a line to the next.
    It is None for a cell that cannot be placed: a single run, or one with so much scatter that
    fewer cells are proved better than it than are proved better than a line above it. ``shared``
    says that another cell has the same rank. Cells that share one of ``groups`` (from 0) are not
    told apart; a single run has none.
    """

    rank: int | None
    shared: bool
    tied_with_best: bool
    groups: tuple[int, ...]

    @property
    def label(self) -> str:
        """``1``, ``2=`` for a tie, ``?`` for a cell that cannot be placed."""
        return "?" if self.rank is None else f"{self.rank}{'=' if self.shared else ''}"

    def is_apart(self, other: "CellRank") -> bool:
        """Whether the two are told apart. Of a single run nothing is known."""
        return bool(self.groups and other.groups and not {*self.groups} & {*other.groups})


@dataclass(frozen=True)
class Ranked(CellRank):
    """One line of a ranking, best mean first. ``ratio`` is this cell over the best one, its
    interval simultaneous with those of all pairs; ``alone`` is the same ratio with the interval
    it would have if these two cells had been the whole study (in a race, that says who runs on by
    what it sees of all, there is none). ``stopped``: the race went on without it."""

    cell: Cell
    interval: Interval
    ratio: RatioInterval
    alone: RatioInterval
    stopped: bool = False


def rank(
    rows: Sequence[Measured], higher_is_better: bool, alpha: float = ALPHA
) -> tuple[Ranked, ...]:
    """Order cells by mean and say which differences hold at a family-wise error of ``alpha``.

    All speaks of one mean, the geometric one: order, interval, ratio and claim. For the order, that
    of a cell which lacks blocks is put right by what those blocks did to the other cells.
    """
    if not rows:
        return ()
    unsorted = compare_all([row.sample for row in rows], alpha, higher_is_better)
    order = _by_mean(rows, unsorted.fit, higher_is_better)
    ordered, compared = [rows[i] for i in order], unsorted.reordered(order)
    samples = [row.sample for row in ordered]
    last = max(each.blocks[-1:] for each in samples)
    places, ratios = place(compared, higher_is_better), _ratios(compared, samples, 0)
    return tuple(
        Ranked(
            rank=places[i].rank,
            shared=places[i].shared,
            cell=row.cell,
            interval=geometric_interval(row.sample.values),
            ratio=ratios[i],
            alone=_alone(row.sample, samples[0]) if i else ratios[0],
            stopped=row.sample.looked and row.sample.blocks[-1:] < last,
            tied_with_best=places[i].tied_with_best,
            groups=places[i].groups,
        )
        for i, row in enumerate(ordered)
    )


def _alone(sample: Sample, best: Sample) -> RatioInterval:
    found = ratio_interval(sample, best)
    return replace(found, low=None, high=None, p_value=None) if sample.looked else found


def place(compared: Comparisons, higher_is_better: bool) -> list[CellRank]:
    """Ranks and groups of cells that stand in their order, the best first."""
    better = compared.differences if higher_is_better else -compared.differences
    known, noisy = _scatter(compared)
    claimed, placed = settle(compared.proved & (better > 0), known, noisy)
    ranks = [1 + int(claimed[:, row].sum()) if sure else None for row, sure in enumerate(placed)]
    groups = letter_groups(told_apart(compared.proved, claimed, placed))
    return [
        CellRank(
            rank=ranks[row],
            shared=ranks[row] is not None and ranks.count(ranks[row]) > 1,
            tied_with_best=0 in own,
            groups=own if known[row] else (),
        )
        for row, own in enumerate(groups)
    ]


def _by_mean(rows: Sequence[Measured], fit: Fit, higher_is_better: bool) -> list[int]:
    sign = -1 if higher_is_better else 1
    means = [
        _exp(centre) if min(row.sample.values) > 0 else fmean(row.sample.values)
        for row, centre in zip(rows, fit.centres, strict=True)
    ]
    return sorted(range(len(rows)), key=lambda i: (sign * means[i], rows[i].cell.id))


def _exp(power: float) -> float:
    return math.exp(power) if power < 709 else math.inf


def _scatter(compared: Comparisons) -> tuple[list[bool], list[bool]]:
    """Tell of which cells anything is known at all, and which of them are noisy."""
    variances = compared.fit.variances
    known = np.isfinite(variances)
    limit = NOISY * np.median(variances[known]) if known.any() else 0.0
    return [bool(each) for each in known], [bool(each) for each in variances > limit]


def settle(
    proved_better: Flags, known: Sequence[bool], removable: Sequence[bool]
) -> tuple[Flags, list[bool]]:
    """Claims that agree with the order of the lines, and which cells can be placed.

    ``proved_better[i, j]`` says that cell i is proved better than j; rows in order of the ranking.
    A cell with much scatter may stand below one that is proved worse than more cells. If it is
    ``removable``, it is not placed; as few as possible are left out so, and all that are not
    ``known``. For the others, i is claimed better than j only if it is proved better than j and
    all placed cells below j. That takes claims away and adds none, so the family-wise error
    stays, and the number of cells claimed better cannot fall down the table.
    """
    upper = np.triu(proved_better, 1)
    counts = [int(count) for count in upper.sum(axis=0)]
    rows = [row for row in range(len(counts)) if known[row]]
    weights = [1 if removable[row] else 2 for row in rows]
    in_line = {rows[place] for place in _rising([counts[row] for row in rows], weights)}
    highest, placed = 0, [False] * len(counts)
    for row in rows:
        highest = max(highest, counts[row]) if row in in_line else highest
        placed[row] = counts[row] >= highest or not removable[row]
    claimed = np.zeros_like(upper)
    below = np.ones(len(counts), dtype=bool)
    for row in reversed(range(len(counts))):
        if placed[row]:
            below = below & upper[:, row]
            claimed[:row, row] = below[:row]
    return claimed, placed


def _rising(counts: Sequence[int], weights: Sequence[int]) -> set[int]:
    """Places of the heaviest subsequence that never falls."""
    held, total = np.asarray(counts), np.zeros(len(counts))
    before = np.full(len(counts), -1)
    for place, weight in enumerate(weights):
        fitting = np.where(held[:place] <= held[place], total[:place], 0.0)
        if fitting.any():
            before[place] = int(fitting.argmax())
            total[place] = fitting.max()
        total[place] += weight
    found: set[int] = set()
    place = int(total.argmax()) if counts else -1
    while place >= 0:
        found.add(place)
        place = int(before[place])
    return found


def told_apart(proved: Flags, claimed: Flags, placed: Sequence[bool]) -> Flags:
    """Which pairs differ for the groups: as claimed among placed cells, else as proved."""
    both = np.outer(placed, placed)
    return np.where(both, claimed | claimed.T, proved)


def ratios_to(compared: Comparisons, best: int) -> list[RatioInterval]:
    """Each cell over one of them, the blocks taken out; that one over itself has no interval."""
    logs, halves = compared.differences[:, best], compared.half_widths
    down, up = halves[:, best], halves[best]
    runs, looked = compared.fit.runs, compared.fit.sure is not None
    p_values = adjusted_p(compared, best)
    with np.errstate(over="ignore"):
        ratio, low, high = np.exp(logs), np.exp(logs - down), np.exp(logs + up)
    ratios = []
    for i in range(len(logs)):
        n = int(min(runs[i], runs[best]))
        if np.isfinite(down[i]):
            bounds = (float(low[i]), float(high[i]), None if looked else float(p_values[i]))
            ratios.append(RatioInterval(float(ratio[i]), *bounds, "simultaneous", n))
        else:
            ratios.append(RatioInterval(float(ratio[i]), None, None, None, "none", n))
    return ratios


def ratios_over(
    samples: Sequence[Sample], base: int, higher_is_better: bool, alpha: float = ALPHA
) -> list[RatioInterval]:
    """Each sample over the one at ``base``, with intervals that hold for all pairs at once: what a
    ranking says of the best cell, said of any other."""
    return _ratios(compare_all(samples, alpha, higher_is_better), samples, base)


def _ratios(compared: Comparisons, samples: Sequence[Sample], base: int) -> list[RatioInterval]:
    """As ``ratios_to``; of plain means where a value has no logarithm."""
    plain = [min(*sample.values, *samples[base].values) <= 0 for sample in samples]
    return [
        ratio_interval(sample, samples[base]) if odd else ratio
        for sample, odd, ratio in zip(samples, plain, ratios_to(compared, base), strict=True)
    ]
