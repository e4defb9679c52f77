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


def one_wild(times: float) -> Shape:
    """One cell scatters so many times as much as the others, which do by 3 %."""

    def shape(rng: np.random.Generator, cells: int, blocks: int) -> Array:
        sd = np.full(cells, 0.03)
        sd[0] *= times
        return sd[:, None] * rng.standard_normal((cells, blocks))

    return shape


def one_to_twenty(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """Each cell scatters by something between 1 and 20 %."""
    sd = np.exp(rng.uniform(np.log(0.01), np.log(0.2), cells))
    return sd[:, None] * rng.standard_normal((cells, blocks))


def rounded(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """3 % of times that are told as whole seconds, between 8 and 40."""
    true = rng.uniform(8, 40)
    return np.log(np.round(true * np.exp(0.03 * rng.standard_normal((cells, blocks)))))


def along_session(rng: np.random.Generator, levels: Array, cells: int, blocks: int) -> Array:
    """3 % of scatter on a host that has these levels, run by run, in blocks of random order."""
    order = rng.permuted(np.tile(np.arange(cells), (blocks, 1)), axis=1)
    host = np.empty((blocks, cells))
    np.put_along_axis(host, order, levels.reshape(blocks, cells), axis=1)
    return 0.03 * rng.standard_normal((cells, blocks)) + host.T


def step(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """From some run on the host is 20 % slower."""
    runs = np.arange(cells * blocks)
    return along_session(rng, np.log(0.8) * (runs >= rng.integers(len(runs))), cells, blocks)


def wandering(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """The host's level is an AR(1) process over the runs of the session: 5 %, memory 0.9."""
    levels = np.empty(cells * blocks)
    level = 0.05 * rng.standard_normal()
    for place, news in enumerate(0.05 * (1 - 0.9**2) ** 0.5 * rng.standard_normal(len(levels))):
        level = 0.9 * level + news
        levels[place] = level
    return along_session(rng, levels, cells, blocks)


def warming(rng: np.random.Generator, cells: int, blocks: int) -> Array:
    """The first runs of the session are up to 30 % slower, the others ever less so."""
    runs = np.arange(cells * blocks)
    return along_session(rng, np.log(0.7) * np.exp(-runs / (0.3 * len(runs))), cells, blocks)


FURTHER: dict[str, Shape] = {
    "wild x3": one_wild(3),
    "wild x5": one_wild(5),
    "wild x10": one_wild(10),
    "wild x30": one_wild(30),
    "1 to 20 %": one_to_twenty,
    "rounded": rounded,
    "step": step,
    "AR(1)": wandering,
    "warm-up": warming,
}
"""Rarer than ``SHAPES``, and harder on who compares."""


def to_samples(
    logs: Array, present: NDArray[np.bool_] | None = None, *, blocked: bool
) -> list[Sample]:
    """Samples of these logarithms; ``present`` says which runs went well."""
    there = np.ones(logs.shape, dtype=bool) if present is None else present
    return [
        Sample(
            tuple(np.round(np.exp(row[kept]), 9).tolist()),  # whole seconds stay whole
            tuple(np.flatnonzero(kept).tolist()) if blocked else (),
        )
        for row, kept in zip(logs, there, strict=True)
    ]
