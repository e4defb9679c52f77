"""First runs, outliers, drift and variance by level: known truth in, known truth out."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import example, given, settings
from hypothesis import strategies as st

from diskproof.stats.drift import estimate_drift
from diskproof.stats.first_run import first_run_effect
from diskproof.stats.intervals import Sample
from diskproof.stats.outliers import find_outliers
from diskproof.stats.variance import RunTrace, uncertainty_inside, variance_levels


def study(
    rng: random.Random,
    cells: int,
    blocks: int,
    *,
    cv: float = 0.03,
    shared: float = 0.0,
    first: float = 1.0,
    slope: float = 0.0,
    numbered: bool = True,
) -> list[Sample]:
    """Cells of different speed; ``shared`` by block, ``first`` block's factor, log ``slope``."""
    luck = [rng.gauss(slope * b, shared) + math.log(first) * (b == 0) for b in range(blocks)]
    return [
        Sample(
            tuple(100 * (1 + c) * math.exp(luck[b] + rng.gauss(0, cv)) for b in range(blocks)),
            tuple(range(blocks)) if numbered else (),
        )
        for c in range(cells)
    ]


# -- outliers -------------------------------------------------------------------------------


def test_an_outlier_is_found_and_described() -> None:
    samples = study(random.Random(4), 24, 5, shared=0.1)
    values = list(samples[3].values)
    values[2] *= 1.4
    samples[3] = Sample(tuple(values), samples[3].blocks)
    (found,) = find_outliers(samples)
    assert (found.cell, found.run) == (3, 2)
    assert found.ratio == pytest.approx(1.4, rel=0.1) and found.deviations > 3.5


@pytest.mark.parametrize(
    ("cells", "blocks", "numbered"), [(24, 3, True), (24, 10, False), (1, 8, False)]
)
def test_ordinary_runs_are_rarely_called_outliers(cells: int, blocks: int, numbered: bool) -> None:
    rng = random.Random(9)
    wrong = sum(
        bool(find_outliers(study(rng, cells, blocks, shared=0.05 * numbered, numbered=numbered)))
        for _ in range(200)
    )
    assert wrong <= 200 * 0.05 + 3 * math.sqrt(200 * 0.05 * 0.95)


def test_a_cell_that_scatters_more_is_not_all_outliers() -> None:
    rng = random.Random(3)
    samples = [*study(rng, 20, 8), *study(rng, 1, 8, cv=0.2)]
    assert len([each for each in find_outliers(samples) if each.cell == 20]) <= 1


def test_what_has_no_outliers() -> None:
    assert find_outliers([]) == ()
    assert find_outliers([Sample((1.0, 50.0)), Sample((0.0, 1.0, 2.0))]) == ()
    assert find_outliers([Sample((5.0,) * 6)] * 3) == ()
    assert find_outliers([Sample((5.0, 5.0, 5.0, 5.0, 9.0))] * 1)[0].run == 4


# -- the first run --------------------------------------------------------------------------


def test_first_run_over_independent_cells() -> None:
    rng = random.Random(8)
    samples = study(rng, 10, 5, first=1.2, numbered=False)
    found = first_run_effect(samples)
    assert found is not None and found.judged_by == "cells" and found.cells == 10
    assert found.low is not None and found.high is not None
    assert found.low < 1.2 < found.high and found.low > 1.1


def test_one_odd_block_among_drifting_ones_proves_nothing() -> None:
    """All cells share the first block: 24 of them are one first run, not 24."""
    rng = random.Random(21)
    tries, wrong, found = 300, 0, 0
    for _ in range(tries):
        equal = first_run_effect(study(rng, 24, 6, shared=0.05))
        odd = first_run_effect(study(rng, 24, 6, shared=0.01, first=1.2))
        assert equal is not None and odd is not None and odd.judged_by == "blocks"
        wrong += equal.p_value is not None and equal.p_value < 0.05
        found += odd.p_value is not None and odd.p_value < 0.05
    assert wrong <= tries * 0.05 + 3 * math.sqrt(tries * 0.05 * 0.95)
    assert found >= 0.95 * tries


def test_first_run_with_too_little() -> None:
    assert first_run_effect([]) is None
    assert first_run_effect([Sample((1.0,)), Sample((0.0, 1.0))]) is None
    alone = first_run_effect([Sample((2.0, 1.0, 1.0))])
    assert alone is not None and alone.ratio == pytest.approx(2) and alone.low is None
    two = first_run_effect([Sample((2.0, 1.0), (0, 1)), Sample((4.0, 2.0), (0, 1))])
    assert two is not None and two.ratio == pytest.approx(2) and two.low is None


# -- drift ----------------------------------------------------------------------------------


def test_drift_is_the_line_through_the_blocks() -> None:
    samples = study(random.Random(5), 12, 8, slope=-0.02)
    hours = {block: 0.5 * block for block in range(8)}
    found = estimate_drift(samples, hours)
    assert found is not None and found.low is not None and found.high is not None
    assert found.low < math.exp(-0.14) < found.high and found.high < 0.95
    assert found.per_hour == pytest.approx(math.exp(-0.04), rel=0.01)
    line = sm.OLS(
        np.log([level.ratio for level in found.blocks]),
        sm.add_constant([level.hours for level in found.blocks]),
    ).fit()
    low, high = line.conf_int()[1] * 3.5
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((low, high))
    assert found.p_value == pytest.approx(line.pvalues[1])


def test_no_drift_is_rarely_claimed() -> None:
    rng = random.Random(6)
    wrong = 0
    for _ in range(300):
        found = estimate_drift(study(rng, 12, 5, shared=0.05), {})
        assert found is not None and found.per_hour is None
        wrong += found.p_value is not None and found.p_value < 0.05
    assert wrong <= 300 * 0.05 + 3 * math.sqrt(300 * 0.05 * 0.95)


def test_drift_with_too_little() -> None:
    assert estimate_drift([], {}) is None
    assert estimate_drift([Sample((1.0, 2.0))] * 2, {}) is None
    assert estimate_drift([Sample((1.0,), (0,))] * 3, {}) is None
    two = estimate_drift([Sample((1.0, 2.0), (0, 1))] * 3, {0: 5.0, 1: 5.0})
    assert two is None
    two = estimate_drift([Sample((1.0, 2.0), (0, 1))] * 3, {0: 5.0, 1: 6.0})
    assert two is not None and two.ratio == pytest.approx(2) and two.low is None


# -- variance by level ----------------------------------------------------------------------


def test_levels_of_variance_are_recovered() -> None:
    rng = random.Random(13)
    found = variance_levels(study(rng, 40, 30, cv=0.04, shared=0.08), [])
    assert found.run == pytest.approx(0.04, rel=0.1)
    assert found.block == pytest.approx(0.08, rel=0.3)
    assert found.inside is None and found.inside_share is None and found.saving is None
    assert variance_levels([Sample((1.0,))], []).run is None
    assert variance_levels([], []).runs == 0


def trace(rng: random.Random, samples: int, cv: float, memory: float = 0.0) -> tuple[float, ...]:
    """An AR(1) series around 100."""
    state, values = 0.0, []
    for _ in range(samples):
        state = memory * state + rng.gauss(0, cv * math.sqrt(1 - memory**2))
        values.append(100 * (1 + state))
    return tuple(values)


@pytest.mark.parametrize("memory", [0.0, 0.7])
def test_uncertainty_inside_a_run_sees_correlation(memory: float) -> None:
    """Against how much the means of 400 such runs really scatter."""
    rng = random.Random(17)
    runs = [trace(rng, 200, 0.1, memory) for _ in range(400)]
    scatter = float(np.std([np.mean(each) for each in runs], ddof=1)) / 100
    squares = [(uncertainty_inside(each) or 0) ** 2 for each in runs]
    assert math.sqrt(np.mean(squares)) == pytest.approx(scatter, rel=0.15)


def test_advice_is_the_best_length() -> None:
    """Brute force over lengths of a run finds the same optimum."""
    rng = random.Random(2)
    traces = [RunTrace(60.0, 15.0, trace(rng, 120, 0.1)) for _ in range(9)]
    found = variance_levels(study(rng, 20, 10, cv=0.03), traces)
    share, best, saving = found.inside_share, found.best_seconds, found.saving
    assert share is not None and best is not None and saving is not None and 0 < share < 1

    def cost(seconds: float) -> float:
        return (15 + seconds) * (1 - share + share * 60 / seconds)

    least = min((cost(s / 10), s / 10) for s in range(1, 6000))
    assert best == pytest.approx(least[1], abs=0.1)
    assert saving == pytest.approx(least[0] / cost(60), rel=1e-3)


@pytest.mark.parametrize("values", [(), (1.0,) * 5, (0.0,) * 40, (math.nan,) * 40])
def test_series_that_tell_nothing(values: tuple[float, ...]) -> None:
    assert uncertainty_inside(values) is None


values = st.lists(st.floats(0.1, 10.0), min_size=3, max_size=6)


@example([[1.0, 1.0, 1.0], [1.0, 2.0, 1.0, 2.0]], 0.25)
@settings(max_examples=40)
@given(st.lists(values, min_size=2, max_size=5), st.floats(1e-3, 1e3))
def test_units_change_nothing(rows: list[list[float]], unit: float) -> None:
    samples = [Sample(tuple(row)) for row in rows]
    scaled = [Sample(tuple(unit * x for x in row)) for row in rows]
    a, b = find_outliers(samples), find_outliers(scaled)
    assert [(x.cell, x.run) for x in a] == [(x.cell, x.run) for x in b]
    one, other = first_run_effect(samples), first_run_effect(scaled)
    assert one is not None and other is not None
    assert one.ratio == pytest.approx(other.ratio)


def test_blocks_that_follow_each_other_at_once_overflow_nothing() -> None:
    samples = [Sample((1009.0, 3017.0), (0, 1)), Sample((7500.0, 8428.0), (0, 1))]
    found = estimate_drift(samples, {0: 498681.8251, 1: 498681.8259})
    assert found is not None and found.ratio == pytest.approx(1.83, abs=0.01)
    assert found.per_hour == math.inf
