"""Ranking: ties stay ties, true winners win, and the error rate is what it says."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from diskproof.records import Cell, WorkloadSpec
from diskproof.stats.intervals import Sample, ratio_interval
from diskproof.stats.ranking import (
    ALPHA,
    Measured,
    differences,
    group_numbers,
    holm,
    pairwise_p,
    rank,
)

LOAD = WorkloadSpec("load", "fio")


def measured(name: str, *values: float, blocks: bool = True) -> Measured:
    numbers = tuple(range(len(values))) if blocks else ()
    return Measured(Cell((("cache", name),), LOAD), Sample(values, numbers))


def labels(rows: list[Measured], higher: bool = True) -> list[tuple[str, str]]:
    return [(line.label, line.cell.level("cache")) for line in rank(rows, higher)]


def test_clear_order_and_a_tie() -> None:
    rows = [
        measured("slow", 10, 11, 10.5, 10.2, 10.3),
        measured("fast", 100, 102, 101, 99, 100),
        measured("also", 101, 101, 100, 100, 99.5),
    ]
    assert labels(rows) == [("1=", "fast"), ("1=", "also"), ("3", "slow")]
    assert labels(rows, higher=False)[0] == ("1", "slow")
    best, second, last = rank(rows, True)
    assert best.tied_with_best and second.tied_with_best and not last.tied_with_best
    assert best.groups == second.groups == (0,) and last.groups == (1,)
    assert last.ratio.ratio == pytest.approx(0.104, rel=0.05)
    assert last.ratio.high is not None and last.ratio.high < 0.12


def test_a_single_run_claims_nothing() -> None:
    assert labels([measured("a", 100), measured("b", 1)]) == [("?", "a"), ("?", "b")]
    mixed = labels([measured("a", 100), measured("b", 1, 1.1, 1.05), measured("c", 9, 9.1, 9.05)])
    assert mixed == [("?", "a"), ("1", "c"), ("2", "b")]


def test_zero_variance_and_zero_values() -> None:
    rows = [measured("a", 5, 5, 5, 5), measured("b", 5, 5, 5, 5), measured("c", 0, 0, 0, 0)]
    assert [label for label, _ in labels(rows)] == ["1=", "1=", "1="]


def test_nothing_to_rank() -> None:
    assert rank([], True) == ()
    assert labels([measured("a", 1, 2)]) == [("1", "a")]


def test_groups_name_their_leader() -> None:
    chain = [[False, False, True], [False, False, False], [True, False, False]]
    assert group_numbers(chain) == [(0,), (0,), (1,)]
    bridge = [[i + j in (1, 2) and i != j for j in range(4)] for i in range(4)]
    assert group_numbers(bridge) == [(0,), (1,), (1,), (0, 1)]
    apart = [[i != j for j in range(3)] for i in range(3)]
    assert group_numbers(apart) == [(0,), (1,), (2,)]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_correction_is_holms(p_values: list[float]) -> None:
    expected = multipletests(p_values, ALPHA, "holm")[0]
    assert holm(np.array(p_values)).tolist() == expected.tolist()


values = st.floats(min_value=0.01, max_value=1e6)


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    block_list = draw(st.lists(st.integers(0, 6), unique=True, min_size=1, max_size=6))
    chosen = tuple(draw(st.lists(values, min_size=len(block_list), max_size=len(block_list))))
    return Sample(chosen, tuple(block_list) if draw(st.booleans()) else ())


@settings(deadline=None)  # the first example imports scipy
@given(st.lists(samples(), min_size=2, max_size=5))
def test_the_table_agrees_with_one_by_one(rows: list[Sample]) -> None:
    table = pairwise_p(rows)
    for i, left in enumerate(rows):
        for j, right in enumerate(rows):
            if i != j:
                single = ratio_interval(left, right).p_value
                assert table[i][j] == pytest.approx(1.0 if single is None else single, abs=1e-6)


def family_wise_errors(studies: int, seed: int, sizes: tuple[int, ...], paired: bool) -> int:
    """How many simulated studies of 24 equal cells claim any difference."""
    rng = random.Random(seed)
    wrong = 0
    for _ in range(studies):
        drift = [rng.gauss(0, 0.05) for _ in range(max(sizes))]
        rows = []
        for cell in range(24):
            n = sizes[cell % len(sizes)]
            noise = [rng.gauss(drift[block] if paired else 0, 0.06) for block in range(n)]
            rows.append(Sample(tuple(2.718281828**x for x in noise), tuple(range(n)) * paired))
        wrong += any(map(any, differences(rows)))
    return wrong


@pytest.mark.parametrize(
    ("sizes", "paired"),
    [((5,), True), ((5,), False), ((3, 10), False), ((2, 10), False), ((4, 6), True), ((2,), True)],
)
def test_equal_cells_are_not_told_apart(sizes: tuple[int, ...], paired: bool) -> None:
    """A/A calibration: family-wise error at most 5 % plus three standard errors of 400 studies."""
    studies = 400
    allowed = studies * ALPHA + 3 * (studies * ALPHA * (1 - ALPHA)) ** 0.5
    assert family_wise_errors(studies, 7, sizes, paired) <= allowed


@pytest.mark.parametrize("noise", ["skewed", "two humps"])
def test_other_noise_tells_no_equal_cells_apart(noise: str) -> None:
    """Eight blocks; where two humps need more than fewer runs can say is in docs/statistics.md."""
    rng = random.Random(23)
    blocks, wrong, studies = tuple(range(8)), 0, 200
    for _ in range(studies):
        rows = []
        for _ in range(24):
            if noise == "skewed":
                logs = [rng.expovariate(10) for _ in blocks]
            else:
                logs = [rng.gauss(0, 0.03) + 0.2 * (rng.random() < 0.3) for _ in blocks]
            rows.append(Sample(tuple(2.718281828**x for x in logs), blocks))
        wrong += any(map(any, differences(rows)))
    assert wrong <= studies * ALPHA + 3 * (studies * ALPHA * (1 - ALPHA)) ** 0.5


def test_a_real_winner_among_many_is_found() -> None:
    rng = random.Random(11)
    rows = [
        measured(str(i), *(rng.gauss(100, 3) * (1.6 if i == 0 else 1) for _ in range(6)))
        for i in range(24)
    ]
    first = rank(rows, True)[0]
    assert (first.label, first.cell.level("cache")) == ("1", "0")
