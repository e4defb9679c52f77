"""Ratios of percentiles: they hold the truth, pair where blocks are common, and know their bins."""

import math

import numpy as np
import pytest

from diskproof.records import Histogram
from diskproof.stats.histograms import CellFigure, pooled_figure
from diskproof.stats.percentiles import estimate_percentiles, together

GRID = np.geomspace(1e-5, 1e-1, 600)


def run(rng: np.random.Generator, speed: float) -> Histogram:
    """Operations of one run, log-normal, in fine bins."""
    places = np.searchsorted(GRID, 1e-3 * speed * np.exp(0.5 * rng.standard_normal(4000)))
    counts = np.bincount(places, minlength=len(GRID))
    return Histogram("read", tuple(GRID[counts > 0]), tuple(int(n) for n in counts[counts > 0]))


def figure(rng: np.random.Generator, luck: np.ndarray, speed: float = 1.0) -> CellFigure:
    return pooled_figure([run(rng, speed * math.exp(each)) for each in luck], 99)


@pytest.mark.parametrize("runs", [3, 6])
def test_the_interval_of_a_ratio_holds_the_truth(runs: int) -> None:
    rng, held = np.random.default_rng(runs), 0
    for _ in range(60):
        a, b = (figure(rng, 0.05 * rng.standard_normal(runs), speed) for speed in (1.0, 1.3))
        found = estimate_percentiles(b, a, paired=False).interval()
        assert found.low is not None and found.high is not None and found.method == "welch"
        held += found.low <= 1.3 <= found.high
    assert held >= 53  # 95 % of 60 are 57; fewer than this in one of a thousand


def test_what_a_block_does_to_both_sides_costs_a_paired_ratio_nothing() -> None:
    rng = np.random.default_rng(3)
    luck = 0.3 * rng.standard_normal(6)
    a, b = figure(rng, luck), figure(rng, luck, 1.3)
    paired, loose = (estimate_percentiles(b, a, paired=each).interval() for each in (True, False))
    assert paired.low is not None and loose.low is not None
    assert paired.low > 1.1 and paired.method == "paired" and loose.low < 1


def test_two_neighbouring_bins_are_no_proof() -> None:
    """Runs that repeat exactly, one bin apart: rounding may have made the difference."""
    a, b = (Histogram("read", (1e-4, edge, 1e-2), (100, 5000, 20)) for edge in (1e-3, 1.015e-3))
    one, other = (pooled_figure([each] * 10, 50) for each in (a, b))
    near = [CellFigure(10, f.value, None, None, draws=f.draws, step=0.015) for f in (one, other)]
    found = estimate_percentiles(near[1], near[0], paired=False).interval()
    assert found.low is not None and found.low < 1 < found.ratio


def test_cells_together_need_the_same_blocks() -> None:
    rng = np.random.default_rng(5)
    cells = [figure(rng, np.zeros(3), speed) for speed in (1.0, 4.0)]
    both = together(cells, [(0, 1, 2)] * 2)
    assert both is not None and both.value is not None
    assert both.value == pytest.approx(math.sqrt((cells[0].value or 0) * (cells[1].value or 0)))
    assert together(cells, [(0, 1, 2), (0, 1, 3)]) is None
