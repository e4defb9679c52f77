"""Several workloads as one figure, and how much that figure hangs on the weights.

Cells of different workloads belong together when their levels are the same. The score of a cell
is the weighted geometric mean of its speeds, told as a ratio to the best: the order does not
depend on what the ratios are taken to (Fleming and Wallace 1986, doi 10.1145/5666.5673). A cell
that lacks a workload of positive weight has no score; nothing is guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.comparisons import Comparisons, compare_fit, fit_samples
from diskproof.stats.intervals import RatioInterval, Sample
from diskproof.stats.model import Fit
from diskproof.stats.ranking import CellRank, place, ratios_to

Array = NDArray[np.float64]

Levels = tuple[tuple[str, str], ...]
DRAWS = 4000
"""Weights drawn to see in which share of all weights a cell wins; within 0.8 % of the truth."""


@dataclass(frozen=True)
class ScoredLoad:
    """One workload: its cells' runs by their levels, and its weight (not negative)."""

    name: str
    higher_is_better: bool
    samples: Mapping[Levels, Sample]
    weight: float


@dataclass(frozen=True)
class Scored(CellRank):
    """One line of the score table, best first. ``ratio`` is this cell's score over the best one's,
    its interval simultaneous with those of all pairs. ``speeds`` are its ratios to the best cell
    by score in each workload, above 1 where it is faster. ``wins`` is the share of all possible
    weights under which this cell has the best score."""

    levels: Levels
    ratio: RatioInterval
    speeds: Mapping[str, float]
    wins: float


@dataclass(frozen=True)
class Scores:
    """``weights`` add up to 1. ``missing`` names the workloads that cells without a score lack.

    ``holds_within``: the first cell stays first as long as no weight is off by more than this
    share of itself (1: whatever the weights; None without a second cell).
    """

    weights: Mapping[str, float]
    lines: tuple[Scored, ...]
    missing: Mapping[Levels, tuple[str, ...]]
    holds_within: float | None


def score(loads: Sequence[ScoredLoad]) -> Scores:
    """Score all cells. Raises ValueError when no weight is positive."""
    counted = [load for load in loads if load.weight > 0]
    if not counted:
        raise ValueError("a score needs a workload of positive weight")
    total = sum(load.weight for load in counted)
    weights = {load.name: load.weight / total for load in counted}
    complete, missing = join_levels(counted)
    if not complete:
        return Scores(weights, (), missing, None)
    shares = np.array(list(weights.values()))
    unsorted, speeds = compare_scores(counted, complete)
    order = np.argsort(-(speeds @ shares), kind="stable")
    compared = unsorted.reordered([int(i) for i in order])
    ordered = [complete[i] for i in order]
    lines = _lines(ordered, compared, speeds[order], [load.name for load in counted])
    return Scores(weights, lines, missing, holds_within(speeds[order], shares))


def join_levels(
    loads: Sequence[ScoredLoad],
) -> tuple[list[Levels], dict[Levels, tuple[str, ...]]]:
    """The levels that every workload has a speed of, and what the others lack."""
    usable = [
        {levels for levels, runs in load.samples.items() if runs.values and min(runs.values) > 0}
        for load in loads
    ]
    seen = dict.fromkeys(levels for load in loads for levels in load.samples)
    missing = {
        levels: tuple(
            load.name for load, held in zip(loads, usable, strict=True) if levels not in held
        )
        for levels in seen
    }
    complete = [levels for levels, lacked in missing.items() if not lacked]
    return complete, {levels: lacked for levels, lacked in missing.items() if lacked}


def compare_scores(
    loads: Sequence[ScoredLoad], levels: Sequence[Levels]
) -> tuple[Comparisons, Array]:
    """The scores of these cells compared, and the logarithms of their speeds, cells x loads,
    more is better."""
    fits = [
        fit_samples([load.samples[each] for each in levels], seed=number)
        for number, load in enumerate(loads)
    ]
    signs = [1.0 if load.higher_is_better else -1.0 for load in loads]
    speeds = np.array([sign * fit.centres for sign, fit in zip(signs, fits, strict=True)]).T
    weights = np.array([load.weight for load in loads])
    fit = combine(fits, speeds, weights / weights.sum())
    return compare_fit(fit, higher_is_better=True), speeds


def combine(fits: Sequence[Fit], speeds: Array, shares: Array) -> Fit:
    """The fit of the weighted logarithms. Runs of different workloads are independent, so squared
    errors add up, and draws made apart belong together."""
    squared = shares**2
    sure = [fit.sure for fit in fits if fit.sure is not None]
    return Fit(
        centres=speeds @ shares,
        variances=np.tensordot(squared, np.array([fit.variances for fit in fits]), 1),
        errors=np.tensordot(squared, np.array([fit.errors for fit in fits]), 1),
        draws=np.tensordot(shares, np.array([fit.draws for fit in fits]), 1),
        runs=np.array([fit.runs for fit in fits]).min(axis=0),
        blocked=all(fit.blocked for fit in fits),
        sure=np.max(sure, axis=0) if sure else None,
    )


def _lines(
    ordered: Sequence[Levels], compared: Comparisons, speeds: Array, names: Sequence[str]
) -> tuple[Scored, ...]:
    places = place(compared, higher_is_better=True)
    ratios = ratios_to(compared, 0)
    wins = winning_shares(speeds)
    relative = np.exp(speeds - speeds[0])
    return tuple(
        Scored(
            rank=places[i].rank,
            shared=places[i].shared,
            tied_with_best=places[i].tied_with_best,
            groups=places[i].groups,
            levels=levels,
            ratio=ratios[i],
            speeds={name: float(relative[i, j]) for j, name in enumerate(names)},
            wins=float(wins[i]),
        )
        for i, levels in enumerate(ordered)
    )


def winning_shares(speeds: Array) -> Array:
    """For each cell the share of all weights, drawn evenly from the simplex with a fixed seed,
    under which its score is the best (the first acceptability index of Lahdelma and others 1998).
    """
    drawn = np.random.default_rng(1).dirichlet(np.ones(speeds.shape[1]), DRAWS)
    counts = np.bincount((speeds @ drawn.T).argmax(axis=0), minlength=len(speeds))
    shares: Array = counts / DRAWS
    return shares


def holds_within(speeds: Array, shares: Array) -> float | None:
    """How far all weights may be off, as a share of themselves, before the first row loses.

    Against another row, whose logarithms differ by d, weights w (1 -+ t) do worst where each errs
    against the sign of d: the lead is sum(w d) - t sum(w |d|).
    """
    leads = speeds[0] - speeds[1:]
    if not len(leads):
        return None
    size = np.abs(leads) @ shares
    with np.errstate(invalid="ignore", divide="ignore"):
        margins = np.where(size > 0, (leads @ shares) / size, 0.0)
    return float(np.clip(margins.min(), 0.0, 1.0))
