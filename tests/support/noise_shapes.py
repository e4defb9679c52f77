"""Seeded scatter of simulated studies, for the calibration of the statistics.

Each shape gives logarithms, cells x blocks, around nought.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.intervals import Sample

Array = NDArray[np.float64]
Shape = Callable[[np.random.Generator, int, int], Array]


def equal(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    return 0.05 * rng.standard_normal((cells, blocks))


def few_noisy(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """One cell in six scatters by 30 %, the others by 3 %: guests under emulation among others."""
    sd = np.where(np.arange(cells) < max(1, cells // 6), 0.3, 0.03)
    return sd[:, None] * rng.standard_normal((cells, blocks))


def half_noisy(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    sd = np.where(np.arange(cells) % 2, 0.3, 0.03)
    return sd[:, None] * rng.standard_normal((cells, blocks))


def few_quiet(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    sd = np.where(np.arange(cells) < max(1, cells // 6), 0.03, 0.3)
    return sd[:, None] * rng.standard_normal((cells, blocks))


def spread(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """Scatter of 3 %, give or take a factor of two from cell to cell."""
    sd = 0.03 * np.exp(0.7 * rng.standard_normal(cells))
    return sd[:, None] * rng.standard_normal((cells, blocks))


def skewed(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """Mostly fast, with a long tail of slow runs."""
    return -np.log1p(0.3 * np.exp(0.8 * rng.standard_normal((cells, blocks))))


def slow_tenth(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """3 %, and one run in ten 30 % slower."""
    slow = rng.random((cells, blocks)) < 0.1
    return 0.03 * rng.standard_normal((cells, blocks)) + np.log(0.7) * slow


def two_humps(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """3 %, and each second run 20 % slower: a host with two states."""
    slow = rng.random((cells, blocks)) < 0.5
    return 0.03 * rng.standard_normal((cells, blocks)) + np.log(0.8) * slow


def heavy_tails(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    return 0.03 * rng.standard_t(3, (cells, blocks))


def drifting(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """5 % of scatter on a host that wanders by 10 % from block to block."""
    return equal(rng, cells, blocks) + 0.1 * rng.standard_normal(blocks).cumsum()


SHAPES: dict[str, Shape] = {
    "equal": equal,
    "few noisy": few_noisy,
    "half noisy": half_noisy,
    "few quiet": few_quiet,
    "spread": spread,
    "skewed": skewed,
    "slow tenth": slow_tenth,
    "two humps": two_humps,
    "heavy tails": heavy_tails,
    "drifting": drifting,
}


def to_samples(
    logs: Array, present: NDArray[np.bool_] | None = None, *, blocked: bool
) -> list[Sample]:
    """Samples of these logarithms; ``present`` says which runs went well."""
    there = np.ones(logs.shape, dtype=bool) if present is None else present
    return [
        Sample(
            tuple(np.exp(row[kept]).tolist()),
            tuple(np.flatnonzero(kept).tolist()) if blocked else (),
        )
        for row, kept in zip(logs, there, strict=True)
    ]
