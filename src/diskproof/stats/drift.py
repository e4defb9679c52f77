"""Did the host itself become faster or slower while the study ran?"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.cell_means import Difference, fit_cell_means
from diskproof.stats.intervals import RESOLUTION, Sample

Vector = NDArray[np.float64]

MEMORY = 0.7
"""How much of a block's departure the next one still has. A host that wanders and comes back has
one; few blocks cannot tell how large, so this much is granted (Prais and Winsten 1954)."""


@dataclass(frozen=True)
class BlockLevel:
    """A block: all its cells over their own mean, as a ratio. ``hours`` since the first block."""

    block: int
    hours: float
    ratio: float


@dataclass(frozen=True)
class Drift:
    """``ratio``: the last block over the first one by the straight line through all blocks.

    ``low``, ``high`` and ``p_value`` (of a ratio of 1) are None below three blocks. ``per_hour`` is
    None when the blocks' times are not known, and means little (up to infinite) in a short study.
    ``spread`` is the standard deviation of the blocks' logarithms beyond what the noise of runs
    explains.
    """

    ratio: float
    low: float | None
    high: float | None
    p_value: float | None
    per_hour: float | None
    spread: float
    blocks: tuple[BlockLevel, ...]


def estimate_drift(samples: Sequence[Sample], hours: Mapping[int, float]) -> Drift | None:
    """A line through the block effects of ``log value = cell + block``.

    ``hours``: when each block began, from any origin; blocks in equal steps when it is empty.
    The repeats are blocks, not runs: what happens to the host hits all cells of a block; and a
    block resembles the one before it (``MEMORY``). None without two blocks that the cells connect.
    """
    usable = [s for s in samples if s.values and min(s.values) > 0]
    if not usable or any(len(s.blocks) != len(s.values) for s in usable):
        return None
    fitted = fit_cell_means(usable)
    numbers = fitted.block_numbers
    if len(numbers) < 2:
        return None
    timed = all(number in hours for number in numbers)
    clock = np.array([hours[n] if timed else float(n) for n in numbers])
    clock = clock - clock.min()
    span = float(clock.max())
    if not span:
        return None
    slope = _slope(clock, fitted.block_effects)
    whole = Difference(slope.value * span, slope.error and slope.error * span, slope.freedom)
    low, high = whole.bounds() or (None, None)
    levels = zip(numbers, clock, fitted.block_effects, strict=True)
    noise = fitted.variance * float((1 / fitted.block_sizes).mean())
    return Drift(
        _exp(whole.value),
        None if low is None else _exp(low),
        None if high is None else _exp(high),
        whole.p_value,
        _exp(slope.value) if timed else None,
        math.sqrt(max(0.0, float(fitted.block_effects.var(ddof=1)) - noise)),
        tuple(
            BlockLevel(n, float(at) if timed else float(n), math.exp(float(effect)))
            for n, at, effect in levels
        ),
    )


def _slope(clock: Vector, effects: Vector) -> Difference:
    """Slope by least squares after Prais and Winsten's transformation; no error below three."""
    level = _without_memory(np.ones(len(clock)))
    x, y = _without_memory(clock - clock.mean()), _without_memory(effects)
    x, y = (each - level * (each @ level) / (level @ level) for each in (x, y))
    square = float(x @ x)
    slope = float(x @ y) / square
    freedom = len(x) - 2
    if freedom < 1:
        return Difference(slope, None, None)
    left = y - slope * x
    sd = max(math.sqrt(float(left @ left) / freedom), RESOLUTION)
    return Difference(slope, sd / math.sqrt(square), freedom)


def _without_memory(values: Vector) -> Vector:
    """What is new in each block; the first one is scaled to scatter as much."""
    fresh: Vector = np.array(values, dtype=float)
    fresh[1:] -= MEMORY * values[:-1]
    fresh[0] *= math.sqrt(1 - MEMORY**2)
    return fresh


def _exp(power: float) -> float:
    return math.exp(max(-700.0, power)) if power < 700 else math.inf
