"""Simulated hosts that carry tiles, for tests and benchmarks of the capacity search."""

import math
import random
import statistics
from collections.abc import Callable, Iterator

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


def search_restless(
    curve: Curve, most: int, runs: int, pace: Iterator[float]
) -> tuple[Capacity, list[Trial]]:
    """A whole search on a host whose every run, also of the baseline, takes ``pace`` times as long
    as a typical one (infinity: it was lost). The limit is that of the baseline runs so far."""
    made: list[tuple[int, float]] = []

    def trials() -> list[Trial]:
        alone = [seconds for tiles, seconds in made if tiles == 1 and seconds < FAILED]
        limit = LEVEL * statistics.median(alone) if alone else math.nan
        return [Trial(n, seconds / limit if alone else FAILED) for n, seconds in made]

    while (tiles := next_trial(trials(), most, runs)) is not None:
        made.append((tiles, curve(tiles) * next(pace)))
    return find_capacity(trials(), most), trials()


def restless(rng: random.Random) -> Iterator[float]:
    """Runs scatter by 30 %."""
    while True:
        yield rng.lognormvariate(0, 0.294)


def two_states(rng: random.Random) -> Iterator[float]:
    """Every second run takes 1.4 times as long."""
    while True:
        yield rng.lognormvariate(0, 0.05) * (1.4 if rng.random() < 0.5 else 1.0)


def losing(rng: random.Random, share: float = 0.1) -> Iterator[float]:
    """One run in ten is lost, whatever its number of tiles."""
    while True:
        yield FAILED if rng.random() < share else rng.lognormvariate(0, 0.1)


def losing_more(rng: random.Random) -> Iterator[float]:
    """One run in five is lost."""
    return losing(rng, 0.2)


def drifting(rng: random.Random) -> Iterator[float]:
    """Each run takes 3 % longer than the one before."""
    slower = 1.0
    while True:
        slower *= 1.03
        yield rng.lognormvariate(0, 0.05) * slower


def wandering(rng: random.Random) -> Iterator[float]:
    """From run to run the host is 8 % faster or slower than it was."""
    off = 0.0
    while True:
        off += rng.gauss(0, 0.08)
        yield rng.lognormvariate(0, 0.05) * math.exp(off)


RESTLESS: dict[str, Callable[[random.Random], Iterator[float]]] = {
    "restless": restless,
    "two states": two_states,
    "1/10 lost": losing,
    "1/5 lost": losing_more,
    "drifting": drifting,
    "wandering": wandering,
}
