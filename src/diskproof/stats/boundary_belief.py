"""What runs with different numbers of tiles tell about the largest number that holds.

A noisy binary search (Karp & Kleinberg 2007, SODA, 881-890) in the manner of probabilistic
bisection (Horstein 1963; Waeber, Frazier & Henderson 2013, SIAM Journal on Control and Optimization
51(3), 2261-2279): a probability for each place where the boundary may be. There an answer is a sign
that is right with a known probability; here, as Rodriguez & Ludkovski (arXiv 1711.00843) do, that
probability is taken from the runs: how far from the limit they are, in units of their scatter.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

SCATTER = 0.11
"""Standard deviation of a run's log ratio before anything is known: repeats of whole workloads in
guests scatter by 5 to 15 %."""

PRIOR_FREEDOM = 4
"""Degrees of freedom that SCATTER counts for: three baseline runs add two of their own."""

SPOILT = 1 / 16
"""However far from the limit, one run may mislead so often: a host that hung for a moment, a guest
that died of something else, a lucky run of a number that fails half of the time. More than 5 %: so
no answer at 95 % rests on a single run."""

LOST = 1 / 6
"""A run that failed says less than one that was measured: guests also die of what has nothing to do
with how many they are. Two in a row are no proof, three are."""

NEAR = 0.25
"""How far from the limit a number is, as a log ratio, before anything is known (standard
deviation): neighbours cost nearly the same, so where one lies on the limit others do. Runs that
scatter as much or more say little of which side they are on."""

_SURE = 8
"""More runs that agree than this add nothing (4e-11): probabilities stay off nought and one."""

_NODES = 15
_REACH = 3.0
"""Quadrature over the error of the limit: nodes, and how many standard errors to each side."""
_SCATTERS = 7
"""Values that the scatter may have, all equally likely."""


@dataclass(frozen=True)
class Trial:
    """One run with ``tiles`` tiles (1 or more).

    ``worst_ratio`` is the largest, over all workloads, tiles and judged metrics, of metric /
    (service level x one-tile median): above 1 the service level was missed. A run that failed
    (guest out of memory, timeout) has ``math.inf``.
    """

    tiles: int
    worst_ratio: float

    def __post_init__(self) -> None:
        if self.tiles < 1:
            raise ValueError(f"a run has one tile at least, not {self.tiles}")
        if not self.worst_ratio > 0:
            raise ValueError(f"a ratio to the service level is above 0, not {self.worst_ratio}")

    @property
    def holds(self) -> bool:
        return self.worst_ratio <= 1


@dataclass(frozen=True)
class Evidence:
    """The runs with one number of tiles: ``centre`` is the median log ratio, ``error`` its standard
    error in multiples of a run's scatter; ``over`` and ``under`` count the runs on each side of the
    limit, ``failed`` those of ``over`` that failed."""

    tiles: int
    centre: float
    error: float
    over: int
    under: int
    failed: int

    @property
    def runs(self) -> int:
        return self.over + self.under

    def log_holds(self, scatter: Array, shifts: Array) -> Array:
        """Logarithm of the probability that the typical run holds, if a run scatters by so much
        and the limit is really at these log ratios."""
        import numpy as np
        from scipy.special import log_ndtr

        errors = scatter * self.error
        known = NEAR / np.sqrt(NEAR**2 + errors**2)
        chance: Array = log_ndtr(known * (shifts - self.centre) / errors)
        against = min(max(1, self.over - self.under), _SURE)
        lost = min(against, self.failed)
        least = lost * math.log(LOST) + (against - lost) * math.log(SPOILT)
        most = math.log1p(-(SPOILT ** min(max(1, self.under - self.over), _SURE)))
        return np.clip(chance, least, most)


@dataclass(frozen=True)
class Belief:
    """``chances[k]`` is the probability that k is the largest number that holds, k = 0 .. most
    (the last: most or more). ``alone`` is each number's probability to hold by its own runs."""

    chances: tuple[float, ...]
    runs: dict[int, int]
    alone: dict[int, float]

    def at_least(self, tiles: int) -> float:
        """Probability that this number holds."""
        return math.fsum(self.chances[tiles:])


def median_variance(runs: int) -> float:
    """Variance of the median of normal values over that of one: pi / 2n for many, 1 for one; 2 %
    too small for 3 and 5 values, up to 22 % too large for even numbers."""
    return math.pi / (2 * runs + math.pi - 2)


def weigh(trials: Iterable[Trial]) -> tuple[list[Evidence], float, int]:
    """The evidence for each number of tiles, lowest first, with the scatter of a run and its
    degrees of freedom, pooled over all numbers. The order of the trials does not matter."""
    logs: dict[int, list[float]] = {}
    for trial in sorted(trials, key=lambda each: (each.tiles, each.worst_ratio)):
        logs.setdefault(trial.tiles, []).append(math.log(trial.worst_ratio))
    squares, freedom = [PRIOR_FREEDOM * SCATTER**2], PRIOR_FREEDOM
    for values in logs.values():
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) > 1:
            # Around the median: never less than around the mean.
            middle = statistics.median(finite)
            squares.extend((value - middle) ** 2 for value in finite)
            freedom += len(finite) - 1
    scatter = math.sqrt(math.fsum(squares) / freedom)
    return [_evidence(tiles, values) for tiles, values in logs.items()], scatter, freedom


def _evidence(tiles: int, ordered: Sequence[float]) -> Evidence:
    low, high = statistics.median_low(ordered), statistics.median_high(ordered)
    # Where half of the runs failed, the typical run is at best on the limit.
    centre = (low + high) / 2 if math.isfinite(high) or not math.isfinite(low) else max(low, 0.0)
    over = sum(value > 0 for value in ordered)
    failed = sum(math.isinf(value) for value in ordered)
    error = math.sqrt(median_variance(len(ordered)))
    return Evidence(tiles, centre, error, over, len(ordered) - over, failed)


def find_belief(trials: Sequence[Trial], most: int) -> Belief:
    """Where the boundary may be, 0 .. ``most``, each equally likely before the first run.

    If k is the largest number that holds, all that were tried up to k hold and all above do not;
    the probability of that is the product over the numbers tried. Numbers never tried share what
    their neighbours leave. The limit is itself measured: the one-tile median has an error, and a
    wrong limit is wrong for all numbers in the same direction; so is a wrong scatter. Both are
    averaged over last.

    Raises ValueError for a trial with more than ``most`` tiles.
    """
    import numpy as np

    if any(trial.tiles > most for trial in trials):
        raise ValueError(f"a trial has more tiles than the most to try, {most}")
    evidence, scatter, freedom = weigh(trials)
    baseline = next((each.runs for each in evidence if each.tiles == 1), 0)
    nodes = np.linspace(-_REACH, _REACH, _NODES) if baseline else np.zeros(1)
    density = np.exp(-(nodes**2) / 2) / np.exp(-(nodes**2) / 2).sum()
    scatters = _likely_scatters(scatter, freedom)[:, None]
    limits = scatters * nodes * math.sqrt(median_variance(baseline)) if baseline else scatters * 0
    weights = np.zeros((*limits.shape, most + 1))
    alone = {}
    for each in evidence:
        # One tile is held against its own median: that error is not in it.
        holds = each.log_holds(scatters, limits if each.tiles > 1 else limits * 0)
        weights[..., : each.tiles] += np.log(-np.expm1(holds))[..., None]
        weights[..., each.tiles :] += holds[..., None]
        alone[each.tiles] = float((np.exp(holds) @ density).mean())
    shares = np.exp(weights - weights.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    # Each limit keeps its weight, which the baseline gave it: so a slower host never carries more.
    chances = np.einsum("ijk,j->k", shares, density) / len(scatters)
    runs = {each.tiles: each.runs for each in evidence}
    return Belief(tuple(chances.tolist()), runs, alone)


def _likely_scatters(scatter: float, freedom: int) -> Array:
    """What a run's scatter may be, by its chi-squared distribution: equal shares of it."""
    import numpy as np
    from scipy.special import chdtri

    shares = (np.arange(_SCATTERS) + 0.5) / _SCATTERS
    return np.asarray(scatter * np.sqrt(freedom / chdtri(freedom, 1 - shares)))
