"""Runs that stand apart from the others of their cell: labelled, never dropped.

Two questions, and both must be answered for a label. Is the run far off for this study? Its
distance is held against the tails of all other runs, so that nothing is labelled where runs far off
are common. And is it the run, not the cell? Among few runs a restless cell often shows two that
happen to lie close together and one that does not.
"""

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.intervals import RESOLUTION, Sample

Vector = NDArray[np.float64]

ALPHA = 0.01
"""Of the tails: runs of equal cells with the tails of Student's t of 3 degrees of freedom stand out
in 5 % of studies at most."""
ALPHA_IN_CELL = 0.05
CALM_CELLS = 16
"""So many calm cells beside each one in question say that a cell is calm as a rule; their variance
counts for it as one more run would."""
LEAST_RUNS = 4
"""Runs of a cell that tell a run from a restless cell without the help of others."""
_FREEDOMS = 1 / np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.33, 0.4, 0.5, 0.7, 1.0])
"""Of tails from nearly normal to Cauchy's, all equally likely before the runs are seen."""
_FIT_ROUNDS = 25
_NORMAL = 0.6744897501960817
"""Median of the absolute value of a standard normal variable."""
_SWEEPS = 10
"""The rounds of the median polish; more change nothing visible."""


@dataclass(frozen=True)
class Outlier:
    """Run ``run`` of sample ``cell`` (places in what was given). ``ratio`` is its value over the
    median of the others of its cell, blocks taken out; ``deviations`` how many robust standard
    deviations of the study."""

    cell: int
    run: int
    ratio: float
    deviations: float


@dataclass(frozen=True)
class _Candidate:
    """The run of a cell that is furthest from the median of the others."""

    cell: int
    run: int
    distance: float
    error: float
    """``distance`` in units in which a single run scatters as any other."""


def can_tell(samples: Sequence[Sample]) -> bool:
    """Whether there are runs enough to tell a slow run from a restless cell."""
    counts = [len(s.values) for s in samples if s.values and min(s.values) > 0]
    return any(n >= LEAST_RUNS for n in counts) or sum(n > 2 for n in counts) > CALM_CELLS


def find_outliers(samples: Sequence[Sample]) -> tuple[Outlier, ...]:
    """Runs further out than chance makes one in 20 studies show, one a cell at most, the furthest
    first.

    On the log scale, what a block's cells share taken out first, by medians. Cells with fewer than
    three runs, or with a value that is not positive, have none.
    """
    usable = [c for c, s in enumerate(samples) if len(s.values) > 2 and min(s.values) > 0]
    if not usable:
        return ()
    logs = _without_blocks([samples[cell] for cell in usable])
    far = _find_far(logs)
    chances = {each: _chance_in_cell(each, logs, far) for each in far}
    spread = max(_spread(logs), RESOLUTION)
    found = [
        Outlier(usable[e.cell], e.run, math.exp(e.distance), e.distance / spread)
        for e, chance in chances.items()
        if chance * len(far) < ALPHA_IN_CELL
    ]
    # Rounded: what is equal but for the last digits keeps the order of cells and runs.
    return tuple(sorted(found, key=lambda each: -round(abs(each.deviations), 9)))


def _find_far(logs: Sequence[Vector]) -> list[_Candidate]:
    """The candidates that are far off for this study, corrected for all runs (Holm 1979). Those
    found before are left out of what the next is held against."""
    total = sum(map(len, logs))
    ordered = sorted(map(_furthest, range(len(logs)), logs), key=lambda e: -round(abs(e.error), 9))
    far: list[_Candidate] = []
    for candidate in ordered:
        without = {(each.cell, each.run) for each in [*far, candidate]}
        chance = _chance_beyond(candidate.error, _residuals(logs, without))
        if chance * (total - len(far)) > ALPHA:
            break
        far.append(candidate)
    return far


def _furthest(cell: int, values: Vector) -> _Candidate:
    distances = [float(v - np.median(np.delete(values, run))) for run, v in enumerate(values)]
    run = max(range(len(values)), key=lambda place: round(abs(distances[place]), 9))
    others = len(values) - 1
    # The median of two is their mean.
    width = math.sqrt(1 + (math.pi / 2 if others > 2 else 1) / others)
    return _Candidate(cell, run, distances[run], distances[run] / width)


def _residuals(logs: Sequence[Vector], without: Set[tuple[int, int]]) -> Vector:
    """Distances to the mean of their cell, as wide as a run scatters, but for these runs."""
    found = []
    for cell, values in enumerate(logs):
        kept = values[[run for run in range(len(values)) if (cell, run) not in without]]
        found.append((kept - kept.mean()) * math.sqrt(len(kept) / (len(kept) - 1)))
    return np.concatenate(found)


def _chance_beyond(error: float, residuals: Vector) -> float:
    """How often a run is so far off, by Student's t fitted to the others: an average over how
    heavy its tails may be, each weighed by how well it fits."""
    from scipy.special import stdtr
    from scipy.stats import t

    squares, freedom = residuals**2, _FREEDOMS[:, None]
    scale = np.full((len(_FREEDOMS), 1), max(float(np.median(squares)), RESOLUTION**2))
    for _ in range(_FIT_ROUNDS):
        weighed = (freedom + 1) / (freedom + squares / scale) * squares
        scale = np.maximum(weighed.mean(axis=1, keepdims=True), RESOLUTION**2)
    fits = np.sum(t.logpdf(residuals, freedom, 0, np.sqrt(scale)), axis=1)
    weights = np.exp(fits - fits.max())
    tails = 2 * stdtr(_FREEDOMS, -abs(error) / np.sqrt(scale[:, 0]))
    return float(weights @ tails / weights.sum())


def _chance_in_cell(
    candidate: _Candidate, logs: Sequence[Vector], far: Sequence[_Candidate]
) -> float:
    """How often some run of a cell is so far from the others by their own scatter (Grubbs 1950);
    where most cells are calm, theirs counts as well."""
    from scipy.special import stdtr

    others = np.delete(logs[candidate.cell], candidate.run)
    runs, freedom, variance = len(others) + 1, float(len(others) - 1), float(others.var(ddof=1))
    asked = {each.cell for each in far}
    calm = [values.var(ddof=1) for cell, values in enumerate(logs) if cell not in asked]
    if len(calm) >= CALM_CELLS * len(far):
        variance = (freedom * variance + float(np.mean(calm))) / (freedom + 1)
        freedom += 1
    off = float(logs[candidate.cell][candidate.run] - others.mean())
    error = math.sqrt(max(variance, RESOLUTION**2) * (1 + 1 / len(others)))
    return float(2 * stdtr(freedom, -abs(off) / error)) * runs


def _spread(logs: Sequence[Vector]) -> float:
    """Standard deviation from the median distance of two runs of a cell.

    Distances of pairs need no centre, whose error would matter with three runs.
    """
    pairs = [np.abs(np.subtract.outer(each, each))[np.triu_indices(len(each), 1)] for each in logs]
    return float(np.median(np.concatenate(pairs))) / math.sqrt(2) / _NORMAL


def _without_blocks(samples: Sequence[Sample]) -> list[Vector]:
    """Logarithms less what the median cell did in each block (Tukey's median polish).

    A block of fewer than three cells says nothing of what its cells share.
    """
    logs = [np.log(np.array(sample.values)) for sample in samples]
    if any(len(sample.blocks) != len(sample.values) for sample in samples):
        return logs
    for _ in range(_SWEEPS):
        around: dict[int, list[float]] = {}
        for sample, values in zip(samples, logs, strict=True):
            for block, value in zip(sample.blocks, values - np.median(values), strict=True):
                around.setdefault(block, []).append(float(value))
        shared = {b: float(np.median(v)) if len(v) > 2 else 0.0 for b, v in around.items()}
        logs = [
            values - np.array([shared[block] for block in sample.blocks])
            for sample, values in zip(samples, logs, strict=True)
        ]
    return logs
