"""Ranking: ties stay ties, true winners win, and the error rate is what it says."""

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.records import Cell, WorkloadSpec
from diskproof.stats.intervals import Sample
from diskproof.stats.ranking import Measured, Ranked, rank, settle

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
    assert [label for label, _ in labels(rows)] == ["1=", "1=", "?"]


def test_nothing_to_rank() -> None:
    assert rank([], True) == ()
    assert labels([measured("a", 1, 2)]) == [("1", "a")]


def test_a_factor_of_two_in_three_blocks_is_proved() -> None:
    """The host far above seven cells that lie close together, each with 12 % of scatter."""
    rng = random.Random(2)
    speeds = (72e3, 30e3, 29e3, 28e3, 27e3, 25e3, 24e3, 22e3)
    alone = 0
    for _ in range(60):
        rows = [
            measured(str(i), *(speed * math.exp(rng.gauss(0, 0.12)) for _ in range(3)))
            for i, speed in enumerate(speeds)
        ]
        first = rank(rows, True)[0]
        alone += (first.label, first.cell.level("cache")) == ("1", "0")
    assert alone >= 53


def test_a_cell_that_lost_a_bad_block_does_not_profit() -> None:
    drift = (1.0, 1.0, 1.0, 0.2)
    rows = [measured(str(i), *(d * (100 - i) for d in drift)) for i in range(5)]
    lucky = measured("lucky", *(d * 60 for d in drift[:3]))
    assert labels([*rows, lucky])[-1] == ("6", "lucky")


def test_a_cell_of_wild_scatter_is_not_placed_and_spoils_no_other() -> None:
    rng = random.Random(8)
    rows = [
        measured(str(i), *(speed * math.exp(rng.gauss(0, 0.02)) for _ in range(5)))
        for i, speed in enumerate((300, 200, 140, 100, 70, 50))
    ]
    wild = measured("wild", 5, 400, 20, 3, 60)
    ranked = {line.cell.level("cache"): line for line in rank([*rows, wild], True)}
    assert [ranked[str(i)].label for i in range(6)] == ["1", "2", "3", "4", "5", "6"]
    assert ranked["wild"].rank is None and ranked["wild"].tied_with_best


def test_claims_follow_the_order_of_lines() -> None:
    proved = np.array(
        [[0, 1, 1, 1, 1], [0, 0, 1, 0, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], bool
    )
    claimed, placed = settle(proved, [True] * 5, [False, False, False, True, False])
    assert placed == [True, True, True, False, True]
    assert claimed.sum(axis=0).tolist() == [0, 1, 2, 0, 2]
    kept, all_placed = settle(proved, [True] * 5, [False] * 5)
    assert all(all_placed) and kept.sum(axis=0).tolist() == [0, 1, 1, 1, 2]


@st.composite
def studies(draw: st.DrawFn) -> list[Measured]:
    """Cells of one number of runs, with any spread, some of them equal."""
    cells, runs = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    seed = draw(st.integers(0, 10**6))
    rng = random.Random(seed)
    blocked = draw(st.booleans())
    rows = []
    for cell in range(cells):
        level, spread = rng.choice((0, 0.3, 3)), rng.choice((0.0, 0.02, 0.5))
        values = [math.exp(level + rng.gauss(0, spread)) for _ in range(runs)]
        rows.append(measured(str(cell), *values, blocks=blocked))
    return rows


@settings(deadline=None)  # the first example imports scipy
@given(studies(), st.booleans())
def test_a_ranking_agrees_with_itself(rows: list[Measured], higher: bool) -> None:
    lines = rank(rows, higher)
    means = [line.interval.mean for line in lines]
    assert means == sorted(means, reverse=higher)
    places = [line.rank for line in lines if line.rank is not None]
    assert places == sorted(places)
    for place, line in enumerate(lines):
        if line.rank is not None:
            better = [other for other in lines[:place] if not shares(line, other)]
            assert sum(other.rank is not None for other in better) < line.rank <= len(better) + 1
        assert line.shared == (line.rank is not None and places.count(line.rank) > 1)


def shares(left: Ranked, right: Ranked) -> bool:
    return bool(set(left.groups) & set(right.groups))


def test_a_real_winner_among_many_is_found() -> None:
    rng = random.Random(11)
    rows = [
        measured(str(i), *(rng.gauss(100, 3) * (1.6 if i == 0 else 1) for _ in range(6)))
        for i in range(24)
    ]
    first = rank(rows, True)[0]
    assert (first.label, first.cell.level("cache")) == ("1", "0")
