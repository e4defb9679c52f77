"""Calibration: the ranking errs as seldom as it says, whatever the noise; seeded and short.

`benchmarks/calibration.py` is the long form of this, with more designs and more studies.
"""

import itertools
import math

import numpy as np
import pytest

from diskproof.records import Cell, StudyRecord, WorkloadSpec
from diskproof.report.view import rank_workloads
from diskproof.stats.comparisons import ALPHA, compare_all
from diskproof.stats.intervals import ratio_interval
from diskproof.store import ResultRow
from support.noise_shapes import FURTHER, SHAPES, to_samples

pytestmark = pytest.mark.long


def at_most(studies: int, share: float = ALPHA) -> float:
    """Counts above this are unlikely (one in a thousand) at that share."""
    return studies * share + 3.1 * math.sqrt(studies * share * (1 - share))


EVERY = {**SHAPES, **FURTHER}


def errors(shape: str, cells: int, blocks: int, studies: int, *, blocked: bool = True) -> int:
    rng = np.random.default_rng([cells, blocks, studies])
    found = 0
    for _ in range(studies):
        logs = EVERY[shape](rng, cells, blocks)
        found += bool(
            compare_all(to_samples(logs, blocked=blocked), higher_is_better=True).proved.any()
        )
    return found


@pytest.mark.parametrize("shape", EVERY)
def test_equal_cells_are_not_told_apart(shape: str) -> None:
    assert sum(errors(shape, 8, blocks, 20) for blocks in (2, 3, 5)) <= at_most(60)


@pytest.mark.parametrize(("cells", "blocks"), [(40, 2), (80, 3)])
def test_one_wild_cell_among_many_calm_ones_is_not_pooled_away(cells: int, blocks: int) -> None:
    """It made 18 % of studies of 80 cells in 3 blocks claim a difference, 55 % in 2."""
    assert errors("wild x10", cells, blocks, 30) <= at_most(30)


@pytest.mark.parametrize("shape", ["equal", "few noisy", "spread", "slow tenth"])
def test_nor_are_few_cells(shape: str) -> None:
    assert sum(errors(shape, cells, 3, 30) for cells in (2, 3)) <= at_most(60)
    assert errors(shape, 3, 5, 30, blocked=False) <= at_most(30)


def test_studies_of_equal_cells_are_no_idle_intervals() -> None:
    """Neither too many false differences nor so few that the intervals are idle."""
    assert 1 <= errors("drifting", 3, 10, 200) <= at_most(200)


@pytest.mark.parametrize("shape", ["equal", "few noisy", "spread"])
def test_unequal_numbers_of_runs(shape: str) -> None:
    rng = np.random.default_rng(17)
    wrong = failed = 0
    for _ in range(30):
        logs = SHAPES[shape](rng, 12, 10)
        present = np.ones(logs.shape, dtype=bool)
        present[::2, 3:] = False
        wrong += bool(
            compare_all(
                to_samples(logs, present, blocked=False), higher_is_better=True
            ).proved.any()
        )
        lost = rng.random(logs.shape) > 1 / 6
        failed += bool(
            compare_all(to_samples(logs, lost, blocked=True), higher_is_better=True).proved.any()
        )
    assert wrong <= at_most(30) and failed <= at_most(30)


def test_all_workloads_of_a_study_are_one_family() -> None:
    """Corrected each by itself, six workloads err in a quarter of studies."""
    loads = [WorkloadSpec(f"load {number}", "fio") for number in range(6)]
    cells = [[Cell((("format", str(number)),), load) for number in range(4)] for load in loads]
    study = StudyRecord("s", "s", "run", "", 0, 3, tuple(itertools.chain(*cells)))
    rng, wrong = np.random.default_rng(41), 0
    for _ in range(30):
        rows = [
            ResultRow("s", "h", cell, "iops", "1/s", True, True, tuple(row), (0, 1, 2), ("",) * 3)
            for own in cells
            for cell, row in zip(own, np.exp(SHAPES["spread"](rng, 4, 3)).tolist(), strict=True)
        ]
        views = rank_workloads(study, rows)
        wrong += any(len({line.ranked.rank for line in view.lines} - {None}) > 1 for view in views)
        assert [view.alpha for view in views] == pytest.approx([ALPHA / 6] * 6)
    assert wrong <= at_most(30)


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
    studies, missed = 60, 0
    for _ in range(studies):
        logs = truth[:, None] + SHAPES["few noisy"](rng, 10, 5)
        compared = compare_all(to_samples(logs, blocked=True), higher_is_better=True)
        misses = compared.differences - np.subtract.outer(truth, truth)  # either way round
        missed += bool((misses > compared.half_widths).any())
    assert missed <= at_most(studies)


def test_a_factor_is_found_in_three_blocks() -> None:
    """Where t tests of single pairs, corrected, prove nothing at all."""
    rng = np.random.default_rng(37)
    found = 0
    for _ in range(40):
        logs = SHAPES["drifting"](rng, 12, 3)
        logs[0] += math.log(2)
        found += bool(
            compare_all(to_samples(logs, blocked=True), higher_is_better=True).proved[0, 1:].all()
        )
    assert found >= 36
