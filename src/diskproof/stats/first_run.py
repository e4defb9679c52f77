"""Is the first run different from the later ones? An image's first writes often are."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from diskproof.stats.cell_means import Difference, fit_cell_means
from diskproof.stats.intervals import RESOLUTION, Sample, student_interval


@dataclass(frozen=True)
class FirstRunEffect:
    """First over later runs, a ratio of geometric means, over ``cells`` cells.

    ``low``, ``high`` and ``p_value`` (of a ratio of 1) are None where nothing can be said.
    ``judged_by`` ``cells``: cells are independent repeats of a first run; ``blocks``: all first
    runs share one block, which is held against how much later blocks differ among themselves.
    """

    ratio: float
    low: float | None
    high: float | None
    p_value: float | None
    cells: int
    judged_by: Literal["cells", "blocks"]


def first_run_effect(samples: Sequence[Sample]) -> FirstRunEffect | None:
    """Compare the first run of each cell with its later ones; None when no cell has two runs.

    Runs are in their order in time. Where samples have blocks, the first run is that in the first
    block of all, and cells without it are left out.
    """
    usable = [s for s in samples if len(s.values) > 1 and min(s.values) > 0]
    if usable and all(len(s.blocks) == len(s.values) for s in usable):
        return _by_blocks(usable)
    return _by_cells([_difference(s.values) for s in usable])


def _difference(values: Sequence[float]) -> float:
    """Log of the first value less the mean of the logs of the later ones."""
    later = [math.log(value) for value in values[1:]]
    return math.log(values[0]) - math.fsum(later) / len(later)


def _by_cells(differences: Sequence[float]) -> FirstRunEffect | None:
    """Student-t over the cells."""
    if not differences:
        return None
    interval = student_interval(differences)
    if interval.sd is None:
        return _effect(Difference(interval.mean, None, None), 1, "cells")
    error = max(interval.sd, RESOLUTION) / math.sqrt(interval.n)
    return _effect(Difference(interval.mean, error, interval.n - 1), interval.n, "cells")


def _by_blocks(samples: Sequence[Sample]) -> FirstRunEffect | None:
    """The first block's effect beside the mean of the later ones, judged by their spread.

    A new block differs from the mean of B others with variance s^2 (1 + 1/B): the prediction
    interval. The cells of one block share its luck and are no repeats of each other.
    """
    first = min(min(sample.blocks) for sample in samples)
    having = [sample for sample in samples if first in sample.blocks]
    fitted = fit_cell_means(having)
    if len(fitted.block_numbers) < 2:
        return _by_cells([_difference(_from_first(sample)) for sample in having[:1]])
    effects = [float(each) for each in fitted.block_effects]
    later = student_interval(effects[1:])
    value = effects[0] - later.mean
    if later.sd is None:
        return _effect(Difference(value, None, None), len(having), "blocks")
    error = max(later.sd, RESOLUTION) * math.sqrt(1 + 1 / later.n)
    return _effect(Difference(value, error, later.n - 1), len(having), "blocks")


def _from_first(sample: Sample) -> tuple[float, ...]:
    return tuple(value for _, value in sorted(zip(sample.blocks, sample.values, strict=True)))


def _effect(
    estimate: Difference, cells: int, judged_by: Literal["cells", "blocks"]
) -> FirstRunEffect:
    low, high = estimate.bounds() or (None, None)
    return FirstRunEffect(
        _exp(estimate.value),
        None if low is None else _exp(low),
        None if high is None else _exp(high),
        estimate.p_value,
        cells,
        judged_by,
    )


def _exp(power: float) -> float:
    return math.exp(max(-700.0, power)) if power < 700 else math.inf
