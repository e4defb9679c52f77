"""The other promise of a race: the best is likely known, by a posterior that knows the factors.

``log value = cell + block + error`` as everywhere; a cell is a sum of its levels' effects, of the
interactions of two levels and of what is its own, each normal with a spread that is learnt from
the runs (an additive model with interactions that are shrunk; a Gaussian process over the levels).
So a cell's neighbours tell of it, and it may be known to be slow after a single run. Blocks are
free, the error's variance is learnt too. What is not known of the spreads is averaged over
(a grid, weighted by the marginal likelihood), so the posterior is a mixture of Student's t; its
draws, with a fixed seed, answer every question. A posterior does not mind how often it is looked
at; it does mind a prior that is wrong.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.race_fit import fit_race
from diskproof.stats.racing import Drop, RaceVerdict
from diskproof.study.protocol import RaceRules

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Levels = Sequence[Mapping[str, str]]

ERROR = 0.08
ERROR_FREEDOM = 2.0
"""What a run's error is taken for before any was repeated, in log units, and how many degrees of
freedom that is worth. Rather too large: with 5 % races at CV 8 % were right less often than they
said."""

SPREADS = (0.3, 1.0, 3.0, 10.0, 30.0), (0.1, 0.3, 1.0, 3.0), (0.1, 0.3, 1.0, 3.0, 10.0)
"""Standard deviations of the levels' effects, of interactions and of what is a cell's own, as
multiples of the error's; all combinations are equally likely before the first run."""
FEW_SPREADS = (3.0, 30.0), (0.3, 3.0), (0.3, 3.0)
MANY_CELLS = 300
"""Of more cells the coarser grid will do: there is more to learn the spreads from."""

DRAWS = 4000
SEED = 1
NEGLIGIBLE = 2e-3
"""Weight below which a combination of spreads is left out."""

WIDER = 1.2
"""Draws lie so many times as far from their middle as the model says. It learns how alike cells are
from the very runs whose best it names; without this, races among many cells near the best said 95 %
and were right in 91 % (benchmarks/racing.py)."""

OVERLOOKED = 0.2
"""Share of the allowed doubt that may lie in cells that rest."""


@dataclass(frozen=True)
class Kernels:
    """How alike cells are before they run, cells x cells each: shared levels, shared pairs of
    levels, and each by itself."""

    mains: Array
    pairs: Array

    @classmethod
    def of(cls, levels: Levels) -> "Kernels":
        """Only factors that differ tell anything; a cell that lacks one has a level of its own."""
        names = sorted({name for each in levels for name in each})
        values = {name: np.array([each.get(name, "") for each in levels]) for name in names}
        alike = [
            (each[:, None] == each[None, :]).astype(float)
            for each in values.values()
            if len(set(each)) > 1
        ]
        nothing = np.zeros((len(levels), len(levels)))
        both = [one * other for one, other in itertools.combinations(alike, 2)]
        return cls(sum(alike, nothing), sum(both, nothing))


@dataclass(frozen=True)
class _Evidence:
    """What the runs tell of the cells with the blocks taken out: ``precision @ cells = right``
    in units of the error, ``squares`` about the blocks' means with ``freedom``."""

    precision: Array
    right: Array
    squares: float
    freedom: float


def draw_cells(table: Array, kernels: Kernels) -> Array:
    """Draws of the cells' speeds, draws x cells, up to a constant; ``table`` (blocks x cells) holds
    logarithms, nan where there is none."""
    evidence = _weigh(table)
    spreads, weights = _learn_spreads(evidence, kernels)
    rng = np.random.default_rng(SEED)
    draws = []
    for (mains, pairs, own), weight in zip(spreads, weights, strict=True):
        prior = mains**2 * kernels.mains + pairs**2 * kernels.pairs + own**2 * np.eye(len(table.T))
        draws.append(_draw(evidence, prior, max(1, round(DRAWS * weight)), rng))
    every = np.vstack(draws)
    middle = every.mean(axis=0)
    widened: Array = middle + WIDER * (every - middle)
    return widened


def _weigh(table: Array) -> _Evidence:
    """A run of a cell that scatters more than the others counts less."""
    present = np.isfinite(table)
    fit = fit_race(table)
    known = math.isfinite(fit.common)
    weights = np.median(fit.variances) / fit.variances if known else np.ones(table.shape[1])
    shares = present * weights
    sums = np.maximum(shares.sum(axis=1), 1e-12)
    logs = np.where(present, table, 0.0)
    means = (shares * logs).sum(axis=1) / sums
    away = (logs - means[:, None]) * present
    precision = np.diag(shares.sum(axis=0)) - (shares / sums[:, None]).T @ shares
    freedom = float(present.sum() - present.any(axis=1).sum())
    return _Evidence(
        precision, (shares * away).sum(axis=0), float((shares * away**2).sum()), freedom
    )


def _learn_spreads(evidence: _Evidence, kernels: Kernels) -> tuple[Array, Array]:
    """Combinations of spreads that the runs leave likely, with their weights."""
    from scipy.linalg import cholesky, solve_triangular

    cells = len(evidence.right)
    grid = np.array(list(itertools.product(*(SPREADS if cells <= MANY_CELLS else FEW_SPREADS))))
    values, vectors = np.linalg.eigh(evidence.precision)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    parts = [root @ kernels.mains @ root, root @ kernels.pairs @ root, evidence.precision]
    # The right side in the root's coordinates: what the root cannot reach was never measured.
    reached = values > 1e-9 * values.max(initial=1e-12)
    inverse = np.where(reached, 1 / np.sqrt(np.where(reached, values, 1.0)), 0.0)
    seen = (vectors * inverse) @ vectors.T @ evidence.right
    least = evidence.squares - float(seen @ seen)
    logs = np.empty(len(grid))
    for place, spreads in enumerate(grid**2):
        marginal = np.eye(cells) + sum(s * part for s, part in zip(spreads, parts, strict=True))
        lower = cholesky(marginal, lower=True, check_finite=False)
        solved = solve_triangular(lower, seen, lower=True, check_finite=False)
        squares = max(0.0, least) + float(solved @ solved) + ERROR_FREEDOM * ERROR**2
        logs[place] = -np.log(np.diag(lower)).sum()
        logs[place] -= (ERROR_FREEDOM + evidence.freedom) / 2 * math.log(squares)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    kept = weights > NEGLIGIBLE
    return grid[kept], weights[kept] / weights[kept].sum()


def _draw(evidence: _Evidence, prior: Array, draws: int, rng: np.random.Generator) -> Array:
    """Draws of one Student's t: the posterior at given spreads, the error's variance unknown."""
    from scipy.linalg import cholesky, solve

    cells = len(prior)
    gain = solve(np.eye(cells) + prior @ evidence.precision, prior, check_finite=False)
    covariance = (gain + gain.T) / 2
    mean = covariance @ evidence.right
    squares = max(0.0, evidence.squares - float(evidence.right @ mean))
    squares += ERROR_FREEDOM * ERROR**2
    jitter = 1e-9 * float(np.trace(covariance)) / cells
    lower = cholesky(covariance + jitter * np.eye(cells), lower=True, check_finite=False)
    errors = np.sqrt(squares / rng.chisquare(ERROR_FREEDOM + evidence.freedom, draws))
    found: Array = mean + errors[:, None] * (rng.standard_normal((draws, cells)) @ lower.T)
    return found


@dataclass(frozen=True)
class Likely:
    """What is likely of the cells: ``chances`` to be no more than delta below the best of all,
    ``centres`` and ``covariance`` of their logarithms."""

    chances: tuple[float, ...]
    centres: Array
    covariance: Array

    @classmethod
    def of(cls, draws: Array, racing: Sequence[int], margin: float) -> "Likely":
        """Of draws x cells; who is not ``racing`` has failed and is no best."""
        near = np.zeros_like(draws)
        best = draws[:, list(racing)].max(axis=1, keepdims=True, initial=-math.inf)
        near[:, list(racing)] = best - draws[:, list(racing)] <= margin
        covariance = np.atleast_2d(np.cov(draws, rowvar=False))
        return cls(tuple(near.mean(axis=0).tolist()), draws.mean(axis=0), covariance)

    def chance_ahead(self, one: int, other: int) -> float:
        """How likely one cell is faster than another."""
        from scipy.special import ndtr

        spread = self.covariance[one, one] + self.covariance[other, other]
        spread = max(float(spread - 2 * self.covariance[one, other]), 1e-12)
        return float(ndtr((self.centres[one] - self.centres[other]) / math.sqrt(spread)))


def judge_likely(
    table: Array, every: Array, racing: Sequence[int], rules: RaceRules
) -> RaceVerdict:
    """Judge the blocks so far, as ``racing.judge`` does, by draws of ``every`` cell; here nothing
    is sure and no cell leaves but one that has failed: the others rest while it is unlikely that
    they matter."""
    blocks = len(table)
    valued = np.isfinite(table).sum(axis=0) > 0
    patient = blocks < max(rules.min_blocks, 2)
    dropped = tuple(
        Drop(cell, blocks - 1, "failed") for cell in racing if not (valued[cell] or patient)
    )
    alive = [cell for cell in racing if valued[cell] or patient]
    draws = every[:, alive]
    order = (-draws.mean(axis=0)).argsort(kind="stable")
    named = tuple(alive[place] for place in order[: rules.top])
    others = order[rules.top :]
    if not len(others):
        return RaceVerdict(tuple(alive), dropped, named, (), (), not patient, math.inf, 1.0)
    # How far the best of the others is ahead of the last of the leaders, draw by draw.
    ahead = draws[:, others] - draws[:, order[: rules.top]].min(axis=1)[:, None]
    most, rival = ahead.max(axis=1), ahead.argmax(axis=1)
    wrong: Flags = most > rules.margin
    threats = np.bincount(rival[wrong], minlength=len(others)) / len(draws)
    runs_on = _runs_on(threats, OVERLOOKED * (1 - rules.confidence))
    if blocks < rules.min_blocks:
        runs_on[:] = True
    probability = 1.0 - float(wrong.mean())
    return RaceVerdict(
        tuple(alive),
        dropped,
        named,
        tuple(alive[place] for place in others[runs_on]),
        tuple(alive[place] for place in others[~runs_on]),
        probability >= rules.confidence and not patient,
        math.exp(-float(np.quantile(most, rules.confidence))),
        probability,
    )


def _runs_on(threats: Array, overlooked: float) -> Flags:
    """All but the least threatening cells, whose threats together come to no more than that."""
    order = threats.argsort(kind="stable")
    small: Flags = threats[order].cumsum() <= overlooked
    found = np.ones(len(threats), dtype=bool)
    found[order[small]] = False
    return found
