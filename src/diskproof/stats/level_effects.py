"""Each level of a factor against its base level, as a ratio with an interval."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.cell_means import CellMeans, Difference
from diskproof.stats.design import Design
from diskproof.stats.holm import holm_adjusted
from diskproof.stats.intervals import RESOLUTION

Vector = NDArray[np.float64]

Noise = tuple[float, int]
"""Variance of a run on the log scale and its degrees of freedom."""


@dataclass(frozen=True)
class LevelEffect:
    """One level over the base level: a ratio of geometric means of the metric.

    ``method`` ``matched``: over the ``pairs`` of cells that differ in this factor only;
    ``adjusted``: by the model without interactions, because too few such pairs were measured;
    ``inseparable``: the measured cells do not show it (``ratio`` is nan). ``low`` and ``high``
    are None without noise to judge by; ``p_corrected`` is corrected for all effects of a study by
    Holm's method. ``least`` and ``most`` are the extreme ratios among the pairs: far apart, the
    factor acts differently in different company.
    """

    factor: str
    level: str
    base: str
    method: Literal["matched", "adjusted", "inseparable"]
    ratio: float
    low: float | None
    high: float | None
    p_corrected: float | None
    pairs: int
    least: float | None
    most: float | None


def level_effects(
    design: Design, fitted: CellMeans, noise: Noise | None
) -> tuple[LevelEffect, ...]:
    """Every level but the first of every factor, against the first.

    ``noise`` stands in where the fitted model has no repeats to tell the noise by.
    """
    found = [
        _effect(design, fitted, noise, factor, level)
        for factor, levels in design.factors.items()
        for level in levels[1:]
    ]
    tested = [each for each in found if each.p_corrected is not None]
    corrected = iter(holm_adjusted([each.p_corrected or 0.0 for each in tested]))
    return tuple(
        each if each.p_corrected is None else replace(each, p_corrected=next(corrected))
        for each in found
    )


def _effect(
    design: Design, fitted: CellMeans, noise: Noise | None, factor: str, level: str
) -> LevelEffect:
    base = design.factors[factor][0]
    pairs = matched_pairs(design, factor, level)
    counts = [sum(cell.get(factor) == name for cell in design.cells) for name in (level, base)]
    logs = [float(fitted.means[one] - fitted.means[other]) for one, other in pairs]
    extremes = (_exp(min(logs)), _exp(max(logs))) if logs else (None, None)
    if pairs and 2 * len(pairs) >= min(counts):
        method: Literal["matched", "adjusted"] = "matched"
        estimate = _with_noise(fitted, _matched_contrast(pairs, len(design.cells)), noise)
    else:
        method = "adjusted"
        found = _adjusted(design, fitted, noise, factor, level)
        if found is None:
            nothing = (math.nan, None, None, None)
            return LevelEffect(factor, level, base, "inseparable", *nothing, len(pairs), *extremes)
        estimate = found
    low, high = estimate.bounds() or (None, None)
    return LevelEffect(
        factor,
        level,
        base,
        method,
        _exp(estimate.value),
        None if low is None else _exp(low),
        None if high is None else _exp(high),
        estimate.p_value,
        len(pairs),
        *extremes,
    )


def matched_pairs(design: Design, factor: str, level: str) -> list[tuple[int, int]]:
    """(cell with the level, cell with the base level) that are equal in every other factor."""
    base = design.factors[factor][0]
    others: dict[tuple[str | None, ...], dict[str, int]] = {}
    for place, cell in enumerate(design.cells):
        company = tuple(cell.get(name) for name in design.factors if name != factor)
        others.setdefault(company, {})[cell.get(factor, "")] = place
    return [(own[level], own[base]) for own in others.values() if level in own and base in own]


def _matched_contrast(pairs: list[tuple[int, int]], cells: int) -> Vector:
    contrast = np.zeros(cells)
    for one, other in pairs:
        contrast[one] += 1 / len(pairs)
        contrast[other] -= 1 / len(pairs)
    return contrast


def _with_noise(fitted: CellMeans, contrast: Vector, noise: Noise | None) -> Difference:
    estimate = fitted.estimate(contrast)
    if noise is None or estimate.error is not None:
        return estimate
    error = math.sqrt(noise[0] * float((contrast**2 / fitted.counts).sum()))
    return Difference(estimate.value, error, noise[1])


def _adjusted(
    design: Design, fitted: CellMeans, noise: Noise | None, factor: str, level: str
) -> Difference | None:
    """By least squares on the cell means with main effects only.

    What the cells deviate from that model (interactions) counts as noise, when that is more than
    the noise of runs: which cells were measured is taken as a sample of all combinations.
    """
    columns = np.hstack([np.ones((len(design.cells), 1)), *map(design.columns, design.mains)])
    wanted = _wanted(design, factor, level)
    inverse = np.linalg.pinv(columns)
    contrast = wanted @ inverse
    if not np.allclose(contrast @ columns, wanted, atol=1e-7):
        return None
    estimate = _with_noise(fitted, contrast, noise)
    left = fitted.means - columns @ (inverse @ fitted.means)
    freedom = len(design.cells) - int(np.linalg.matrix_rank(columns))
    if not freedom:
        return estimate
    variance = max(float((left**2).sum()) / freedom, RESOLUTION**2)
    error = math.sqrt(variance * float((contrast**2).sum()))
    if estimate.error is None or error > estimate.error:
        return Difference(estimate.value, error, freedom)
    return estimate


def _wanted(design: Design, factor: str, level: str) -> Vector:
    """The comparison of two levels in terms of the model's coefficients."""
    parts: Mapping[str, Vector] = {
        name: np.zeros(len(levels) - 1) for name, levels in design.factors.items()
    }
    base = design.factors[factor][0]
    parts[factor][:] = design.level_code(factor, level) - design.level_code(factor, base)
    return np.concatenate([np.zeros(1), *parts.values()])


def _exp(power: float) -> float:
    return math.exp(power) if power < 700 else math.inf
