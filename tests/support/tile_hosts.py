"""Simulated hosts that carry tiles, for tests and benchmarks of the capacity search."""

import math
import random
import statistics
from collections.abc import Callable

from diskproof.stats.capacity import Capacity, Trial, find_capacity, next_trial

Curve = Callable[[int], float]
"""How much longer the typical run takes with so many tiles than with one."""

LEVEL = 2.0
FAILED = math.inf


def step(carries: int, off: float = 0.5) -> Curve:
    """Numbers that hold do so by a factor of exp(off), the others miss it by as much."""
    return lambda tiles: LEVEL * math.exp(-off if tiles <= carries else off)


def knee(free: float, power: float) -> Curve:
    """Free of charge up to a number of tiles, then slower as a power of their number."""
    return lambda tiles: max(1.0, (tiles / free) ** power)


def carried(curve: Curve, most: int) -> int:
    """The truth: the largest number whose typical run is within the level, nought if none is."""
    return sum(curve(tiles) <= LEVEL for tiles in range(1, most + 1))


def search(
    curve: Curve, most: int, runs: int, cv: float, rng: random.Random, spoilt: float = 0.0
) -> tuple[Capacity, list[Trial]]:
    """A whole search: log-normal runs, a limit from measured one-tile runs, and a share of
    ``spoilt`` runs (not of the baseline), half of which fail and half take three times as long."""
    sd = math.sqrt(math.log(1 + cv * cv))
    baseline = [rng.lognormvariate(0, sd) for _ in range(runs)]
    # Ratios are to the measured one-tile median; the curve says what it would be without noise.
    limit = LEVEL * statistics.median(baseline)
    alone, trials = list(baseline), list[Trial]()
    while (tiles := next_trial(trials, most, runs)) is not None:
        bad = rng.choice([3.0, FAILED]) if rng.random() < spoilt else 1.0
        value = alone.pop() if tiles == 1 else curve(tiles) * rng.lognormvariate(0, sd) * bad
        trials.append(Trial(tiles, value / limit))
    return find_capacity(trials, most), trials
