"""Calibration: the ranking errs as seldom as it says, whatever the noise; seeded and short.

`benchmarks/calibration.py` is the long form of this, with more designs and more studies.
"""

import math

import numpy as np
import pytest

from diskproof.stats.comparisons import ALPHA, compare_all
from diskproof.stats.intervals import ratio_interval
from support.noise_shapes import SHAPES, to_samples

pytestmark = pytest.mark.long


def at_most(studies: int, share: float = ALPHA) -> float:
    """Counts above this are unlikely (one in a thousand) at that share."""
    return studies * share + 3.1 * math.sqrt(studies * share * (1 - share))


def errors(shape: str, cells: int, blocks: int, studies: int, *, blocked: bool = True) -> int:
    rng = np.random.default_rng([cells, blocks, studies])
    found = 0
    for _ in range(studies):
        logs = SHAPES[shape](rng, cells, blocks)
        found += bool(compare_all(to_samples(logs, blocked=blocked)).proved.any())
    return found


@pytest.mark.parametrize("blocks", [2, 3, 8])
@pytest.mark.parametrize("shape", SHAPES)
def test_equal_cells_are_not_told_apart(shape: str, blocks: int) -> None:
    assert errors(shape, 24, blocks, 80) <= at_most(80)


@pytest.mark.parametrize("shape", ["equal", "few noisy", "half noisy", "spread", "slow tenth"])
@pytest.mark.parametrize("cells", [2, 3, 8])
def test_nor_are_few_cells(shape: str, cells: int) -> None:
    assert errors(shape, cells, 3, 120) <= at_most(120)
    assert errors(shape, cells, 5, 120, blocked=False) <= at_most(120)


def test_a_thousand_studies_of_equal_cells() -> None:
    """Neither too many false differences nor so few that the intervals are idle."""
    wrong = errors("drifting", 12, 5, 1000)
    assert 5 <= wrong <= at_most(1000)


@pytest.mark.parametrize("shape", ["equal", "few noisy", "spread"])
def test_unequal_numbers_of_runs(shape: str) -> None:
    rng = np.random.default_rng(17)
    wrong = failed = 0
    for _ in range(150):
        logs = SHAPES[shape](rng, 24, 10)
        present = np.ones(logs.shape, dtype=bool)
        present[::2, 3:] = False
        wrong += bool(compare_all(to_samples(logs, present, blocked=False)).proved.any())
        lost = rng.random(logs.shape) > 1 / 6
        failed += bool(compare_all(to_samples(logs, lost, blocked=True)).proved.any())
    assert wrong <= at_most(150) and failed <= at_most(150)


@pytest.mark.parametrize("shape", ["equal", "skewed", "drifting"])
@pytest.mark.parametrize("blocks", [5, 10])
def test_the_interval_of_a_ratio_covers(shape: str, blocks: int) -> None:
    rng = np.random.default_rng(29)
    studies, held = 1000, 0
    for _ in range(studies):
        pair = to_samples(SHAPES[shape](rng, 2, blocks), blocked=True)
        found = ratio_interval(*pair)
        assert found.low is not None and found.high is not None
        held += found.low <= 1 <= found.high
    assert 0.93 <= held / studies <= 0.97


def test_simultaneous_intervals_hold_together() -> None:
    """All ratios of a study at once, in at least 95 % of studies."""
    rng = np.random.default_rng(31)
    truth = np.linspace(0, 0.7, 10)
    studies, missed = 300, 0
    for _ in range(studies):
        logs = truth[:, None] + SHAPES["few noisy"](rng, 10, 5)
        compared = compare_all(to_samples(logs, blocked=True))
        misses = np.abs(compared.differences - np.subtract.outer(truth, truth))
        missed += bool((misses > compared.half_widths).any())
    assert missed <= at_most(studies)


def test_a_factor_is_found_in_three_blocks() -> None:
    """Where t tests of single pairs, corrected, prove nothing at all."""
    rng = np.random.default_rng(37)
    found = 0
    for _ in range(100):
        logs = SHAPES["drifting"](rng, 12, 3)
        logs[0] += math.log(2)
        found += bool(compare_all(to_samples(logs, blocked=True)).proved[0, 1:].all())
    assert found >= 90
