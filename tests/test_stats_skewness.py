"""Skewed runs are told where they can be, and no others are; seeded and short."""

import numpy as np
import pytest

from diskproof.stats.intervals import Sample
from diskproof.stats.skewness import are_skewed
from support.noise_shapes import FURTHER, SHAPES, to_samples

EVERY = {**SHAPES, **FURTHER}


def told(shape: str, cells: int, blocks: int, studies: int) -> int:
    rng = np.random.default_rng([*shape.encode(), cells, blocks])
    drawn = (EVERY[shape](rng, cells, blocks) for _ in range(studies))
    return sum(are_skewed(to_samples(logs, blocked=True)) for logs in drawn)


@pytest.mark.parametrize("shape", ["skewed", "slow tenth"])
def test_skewed_runs_are_told(shape: str) -> None:
    assert told(shape, 24, 10, 20) >= 18 and told(shape, 24, 5, 20) >= 6


@pytest.mark.parametrize("shape", ["equal", "half noisy", "spread", "heavy tails", "drifting"])
def test_others_are_not(shape: str) -> None:
    assert told(shape, 24, 5, 30) + told(shape, 24, 3, 30) <= 5


def test_of_few_runs_nothing_is_said() -> None:
    few = [Sample((100.0, 100.0, 50.0), (0, 1, 2))] * 7
    assert not are_skewed(few) and not are_skewed([]) and not are_skewed([Sample((0.0, 1.0))])
