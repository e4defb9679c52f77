"""A ranking that prints ties as ties.

Every pair of cells is compared (t on logarithms, paired by block where blocks match, else Welch)
and the p-values are corrected together by Holm's method. All pairs and not just those with the
best: which cell is the best is read off the same data, so among equal cells the comparison with
the observed best is a comparison of extremes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diskproof.records import Cell
from diskproof.stats.intervals import (
    RESOLUTION,
    Interval,
    RatioInterval,
    Sample,
    mean_interval,
    ratio_interval,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix = NDArray[np.float64]

ALPHA = 0.05


@dataclass(frozen=True)
class Measured:
    """What one cell gave for one metric, to be ranked."""

    cell: Cell
    sample: Sample


@dataclass(frozen=True)
class Ranked:
    """One line of a ranking, best mean first.

    ``rank`` is 1 plus the number of cells proved better; None for a single run, which proves
    nothing. ``shared`` says that another cell has the same rank. Each of ``groups`` (from 0)
    stands for the cells not proved different from the best cell in it.
    ``ratio`` is this cell over the best one, geometric means, its interval not corrected.
    """

    rank: int | None
    shared: bool
    cell: Cell
    interval: Interval
    ratio: RatioInterval
    tied_with_best: bool
    groups: tuple[int, ...]

    @property
    def label(self) -> str:
        """``1``, ``2=`` for a tie, ``?`` for a single run."""
        return "?" if self.rank is None else f"{self.rank}{'=' if self.shared else ''}"


def rank(rows: Sequence[Measured], higher_is_better: bool) -> tuple[Ranked, ...]:
    """Order cells by mean and say which differences hold at a family-wise error of 5 %."""
    if not rows:
        return ()
    intervals = {id(row): mean_interval(row.sample.values) for row in rows}
    sign = -1 if higher_is_better else 1
    ordered = sorted(rows, key=lambda row: (sign * intervals[id(row)].mean, row.cell.id))
    proved = differences([row.sample for row in ordered])
    known = [len(row.sample.values) > 1 for row in ordered]
    places = [1 + sum(proved[row][:row]) if known[row] else None for row in range(len(ordered))]
    groups = group_numbers(proved)
    return tuple(
        Ranked(
            rank=places[i],
            shared=places[i] is not None and places.count(places[i]) > 1,
            cell=row.cell,
            interval=intervals[id(row)],
            ratio=ratio_interval(row.sample, ordered[0].sample),
            tied_with_best=not proved[0][i],
            groups=groups[i],
        )
        for i, row in enumerate(ordered)
    )


def group_numbers(proved: Sequence[Sequence[bool]]) -> list[tuple[int, ...]]:
    """Groups from a table of proved differences, rows in order of the ranking.

    The first cell without a group leads the next one and shares it with every later cell that
    is not proved different from it.
    """
    groups: list[tuple[int, ...]] = [()] * len(proved)
    count = 0
    for leader in range(len(proved)):
        if groups[leader]:
            continue
        for other in range(leader, len(proved)):
            if not proved[leader][other]:
                groups[other] += (count,)
        count += 1
    return groups


def differences(samples: Sequence[Sample]) -> list[list[bool]]:
    """Which pairs differ, corrected for all pairs together, as a symmetric table."""
    import numpy as np

    upper = np.triu_indices(len(samples), 1)
    proved = np.zeros((len(samples), len(samples)), dtype=bool)
    proved[upper] = holm(pairwise_p(samples)[upper])
    return [[bool(cell) for cell in row] for row in proved | proved.T]


def holm(p_values: Matrix) -> NDArray[np.bool_]:
    """Which hypotheses fall (Holm 1979): the i-th smallest of m is held against alpha/(m - i + 1),
    and the first that stands lets all larger ones stand."""
    import numpy as np

    order = np.argsort(p_values)
    falls = p_values[order] <= ALPHA / np.arange(len(p_values), 0, -1)
    result = np.empty(len(p_values), dtype=bool)
    result[order] = np.logical_and.accumulate(falls)
    return result


def pairwise_p(samples: Sequence[Sample]) -> Matrix:
    """Two-sided p-values of all pairs at once; what ``ratio_interval`` gives one by one.

    1 where nothing can be said: a single run, a value that has no logarithm.
    """
    import numpy as np
    from scipy.special import stdtr

    usable = np.array([len(s.values) > 1 and min(s.values) > 0 for s in samples])
    logs = [
        np.log(sample.values) if good else np.zeros(max(2, len(sample.values)))
        for sample, good in zip(samples, usable, strict=True)
    ]
    difference, variance, freedom = _welch_table(logs)
    paired, pair_difference, pair_variance, pairs = _paired_table(samples, logs)
    difference = np.where(paired, pair_difference, difference)
    variance = np.where(paired, pair_variance, variance)
    freedom = np.where(paired, pairs - 1, freedom)
    p_values = 2 * stdtr(freedom, -np.abs(difference) / np.sqrt(variance))
    return np.where(np.outer(usable, usable), p_values, 1.0)


def _welch_table(logs: Sequence[Matrix]) -> tuple[Matrix, Matrix, Matrix]:
    """Differences, their squared errors and degrees of freedom, all pairs; see ``_welch``."""
    import numpy as np

    sizes = np.array([len(each) for each in logs], dtype=float)
    means = np.array([each.mean() for each in logs])
    spreads = np.maximum([each.var(ddof=1) for each in logs], RESOLUTION**2) / sizes
    variance = np.add.outer(spreads, spreads)
    parts = spreads**2 / (sizes - 1)
    freedom = variance**2 / np.add.outer(parts, parts)
    freedom = np.minimum(freedom, 2 * (np.minimum.outer(sizes, sizes) - 1))
    return np.subtract.outer(means, means), variance, freedom


def _paired_table(
    samples: Sequence[Sample], logs: Sequence[Matrix]
) -> tuple[NDArray[np.bool_], Matrix, Matrix, Matrix]:
    """Which pairs share enough blocks, their mean differences, squared errors and pair counts.

    Sums over common blocks are matrix products: a block a cell lacks is a zero in ``present``.
    """
    import numpy as np

    columns = {block: i for i, block in enumerate(sorted({b for s in samples for b in s.blocks}))}
    values = np.zeros((len(samples), max(1, len(columns))))
    present = np.zeros_like(values)
    centre = np.concatenate(logs).mean()
    for row, (sample, log) in enumerate(zip(samples, logs, strict=True)):
        if sample.blocks and len(set(sample.blocks)) == len(sample.values):
            places = [columns[block] for block in sample.blocks]
            values[row, places] = log[: len(places)] - centre
            present[row, places] = 1
    pairs = present @ present.T
    sizes = np.array([len(sample.values) for sample in samples])
    paired = pairs >= np.maximum(2, np.minimum.outer(sizes, sizes) // 2 + 1)
    count = np.maximum(pairs, 2)
    mean = (values @ present.T - present @ values.T) / count
    squares = (values**2) @ present.T + present @ (values**2).T - 2 * values @ values.T
    spread = np.maximum((squares - count * mean**2) / (count - 1), RESOLUTION**2)
    return paired, mean, spread / count, count
