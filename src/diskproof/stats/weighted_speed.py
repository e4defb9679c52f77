"""The weighted score of the 2013 article on Windows guests on KVM.

A random and a sequential speed cannot be averaged as they are: the sequential one is a hundred
times the other. So the random one is multiplied by f, the baseline's sequential over its random
speed: on the bare host both then count the same. Weighted speed = mean(sequential, f x random),
in the unit of the sequential speed, for reads and for writes each with their own f; the final
order is by the mean of the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from diskproof.stats.score import Levels

Speeds = Mapping[Levels, float]


@dataclass(frozen=True)
class Pair:
    """Speeds of cells by their levels, more is better: a sequential and a random workload."""

    sequential: Speeds
    random: Speeds

    def find_factor(self, baseline: Levels) -> float | None:
        """f of the baseline cell; None if it lacks one of the speeds."""
        above, below = self.sequential.get(baseline), self.random.get(baseline)
        return above / below if above and below and above > 0 and below > 0 else None

    def find_weighted(self, levels: Levels, factor: float | None) -> float | None:
        above, below = self.sequential.get(levels), self.random.get(levels)
        if factor is None or above is None or below is None:
            return None
        return (above + factor * below) / 2


@dataclass(frozen=True)
class WeightedSpeed:
    """One cell; None for what it lacks a speed for. ``total`` needs both."""

    levels: Levels
    read: float | None
    write: float | None

    @property
    def total(self) -> float | None:
        return None if self.read is None or self.write is None else (self.read + self.write) / 2


@dataclass(frozen=True)
class WeightedSpeeds:
    """All cells by their ``total`` (those without come last), and both factors."""

    read_factor: float | None
    write_factor: float | None
    lines: tuple[WeightedSpeed, ...]

    def top(self, column: str, count: int = 5) -> tuple[WeightedSpeed, ...]:
        """The best by ``read``, ``write`` or ``total``."""
        held = [line for line in self.lines if getattr(line, column) is not None]
        return tuple(sorted(held, key=lambda line: -getattr(line, column))[:count])


def weigh_speeds(read: Pair, write: Pair, baseline: Levels) -> WeightedSpeeds:
    """Weighted speeds of every cell that has any of the four, with f from ``baseline``."""
    factors = read.find_factor(baseline), write.find_factor(baseline)
    seen = dict.fromkeys(
        levels
        for speeds in (read.sequential, read.random, write.sequential, write.random)
        for levels in speeds
    )
    lines = [
        WeightedSpeed(
            levels,
            read.find_weighted(levels, factors[0]),
            write.find_weighted(levels, factors[1]),
        )
        for levels in seen
    ]
    lines.sort(key=lambda line: (line.total is None, -(line.total or 0.0)))
    return WeightedSpeeds(*factors, tuple(lines))
