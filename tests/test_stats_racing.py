"""Racing: what is decided, when, and how often that is wrong."""

import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from diskproof.records import Cell, WorkloadSpec
from diskproof.stats.boundaries import FIRST, Boundary, find_boundary, pair_alpha, spent
from diskproof.stats.comparisons import compare_all
from diskproof.stats.intervals import Sample
from diskproof.stats.race_course import Race
from diskproof.stats.race_fit import fit_race
from diskproof.stats.racing import judge
from diskproof.stats.ranking import Measured, rank
from diskproof.study.protocol import RaceRules

RULES = RaceRules()


def table(blocks: int, truth: list[float], sigma: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, 0.2, (blocks, 1))
    return np.array(truth) + shared + rng.normal(0, sigma, (blocks, len(truth)))


def run_race(truth: list[float], sigma: float, seed: int, rules: RaceRules = RULES) -> Race:
    """A race through simulated blocks on a host that changes by 20 % from block to block."""
    rng = random.Random(seed)
    race = Race(len(truth), rules)
    while race.racing:
        host = rng.gauss(0, 0.2)
        row = [math.nan] * len(truth)
        for cell in race.racing:
            row[cell] = truth[cell] + host + rng.gauss(0, sigma)
        race.add_block(row)
    return race


# -- boundaries -----------------------------------------------------------------------------


def test_the_boundary_of_the_first_look_is_the_normal_quantile() -> None:
    assert Boundary(0.01).at(FIRST) == pytest.approx(norm.isf(0.01 * spent(FIRST)), abs=1e-6)


@pytest.mark.parametrize("alpha", [0.05, 0.002])
def test_paths_of_nought_cross_as_often_as_was_spent(alpha: float) -> None:
    """200,000 random walks of 40 steps against the boundary computed by recursion."""
    boundary, blocks, walks = find_boundary(alpha), 40, 200_000
    rng = np.random.default_rng(1)
    sums, crossed = rng.normal(size=walks), np.zeros(walks, dtype=bool)
    for block in range(2, blocks + 1):
        sums += rng.normal(size=walks)
        crossed |= sums / math.sqrt(block) > boundary.at(block)
    expected = alpha * spent(blocks)
    error = math.sqrt(expected / walks)
    assert crossed.mean() == pytest.approx(expected, abs=4 * error)


def test_more_blocks_do_not_move_earlier_boundaries() -> None:
    long = Boundary(0.01)
    long.at(60)
    assert Boundary(0.01).at(7) == long.at(7)


@given(st.floats(1e-4, 0.3), st.integers(1, 3000), st.integers(1, 5))
@settings(deadline=None)
def test_pairs_share_the_error(alpha: float, others: int, top: int) -> None:
    share = pair_alpha(alpha, others, top)
    assert alpha / (top * others) * 0.99 <= share <= alpha * (1 + 1e-6)


@pytest.mark.parametrize("others", [1, 2, 20])
def test_one_against_many_is_dunnetts(others: int) -> None:
    """Against 400,000 drawn families."""
    rng = np.random.default_rng(3)
    best = rng.normal(size=(400_000, 1))
    ahead = (rng.normal(size=(400_000, others)) - best) / math.sqrt(2)
    share = (ahead > norm.isf(pair_alpha(0.05, others))).any(axis=1).mean()
    assert share == pytest.approx(0.05, abs=0.0015)


# -- the fit --------------------------------------------------------------------------------


def test_complete_blocks_give_differences_of_means() -> None:
    values = table(5, [0.0, 0.3, -0.2, 0.1], 0.05, 1)
    fit = fit_race(values)
    means = values.mean(axis=0)
    assert fit.centres - fit.centres[0] == pytest.approx(means - means[0])
    errors = fit.squared_errors(np.arange(4))
    expected = np.add.outer(fit.variances, fit.variances) / 5
    off = ~np.eye(4, dtype=bool)
    assert errors[off] == pytest.approx(expected[off])


def test_a_cell_that_lacks_the_slow_block_is_not_made_fast_by_it() -> None:
    values = np.zeros((4, 3)) + np.array([[0.0], [0.0], [-1.0], [0.0]])
    values[2, 1] = math.nan
    assert fit_race(values).centres == pytest.approx([fit_race(values).centres[0]] * 3)


def test_cells_without_a_common_block_cannot_be_compared() -> None:
    values = np.array([[0.0, 0.1, math.nan, math.nan], [0.0, 0.2, math.nan, math.nan],
                       [math.nan, math.nan, 5.0, 5.1], [math.nan, math.nan, 5.0, 5.3]])  # fmt: skip
    errors = fit_race(values).squared_errors(np.arange(4))
    assert np.isinf(errors[:2, 2:]).all() and np.isfinite(errors[0, 1])
    verdict = judge(values, range(4), RULES)
    assert not verdict.dropped and not verdict.settled and verdict.lead_at_least == 0


def test_variances_agree_with_what_they_were_drawn_from() -> None:
    fit = fit_race(table(20, [0.0] * 50, 0.05, 2))
    assert np.sqrt(fit.variances) == pytest.approx([0.05] * 50, rel=0.5)
    assert math.sqrt(fit.common) == pytest.approx(0.05, rel=0.05)


def test_a_cell_that_scatters_alone_keeps_its_own_variance() -> None:
    values = table(6, [0.0] * 20, 0.02, 3)
    values[:, 7] += np.array([0.3, -0.2, 0.25, -0.3, 0.2, -0.25])
    fit = fit_race(values)
    assert math.sqrt(fit.variances[7]) > 0.2 and fit.freedom[7] < 6
    assert np.sqrt(np.delete(fit.variances, 7)).max() < 0.1


# -- one look -------------------------------------------------------------------------------


def test_clear_losers_leave_and_the_verdict_says_by_whom_and_how_much() -> None:
    verdict = judge(table(3, [0.0, -0.5, -0.01, -1.0], 0.02, 4), range(4), RULES)
    assert {drop.cell for drop in verdict.dropped} == {1, 3}
    for drop in verdict.dropped:
        assert drop.rival in (0, 2) and drop.block == 2 and drop.reason == "slower"
        assert drop.ratio < drop.at_most < 1
    assert set(verdict.racing) == {0, 2}


def test_the_best_two_are_settled_together() -> None:
    rules = replace(RULES, top=2)
    verdict = judge(table(6, [0.0, -0.1, -0.6, -0.7], 0.01, 5), range(4), rules)
    assert verdict.leaders == (0, 1) and verdict.settled and not verdict.open
    assert {drop.cell for drop in verdict.dropped} == {2, 3}
    assert all(drop.rival == 1 for drop in verdict.dropped), "beaten by both, by the second least"


def test_a_cell_within_delta_is_tied_not_dropped() -> None:
    verdict = judge(table(30, [0.0, -0.001, -0.5], 0.005, 6), range(3), RULES)
    assert verdict.settled and verdict.tied and set(verdict.racing) == {0, 1}
    assert verdict.entry == verdict.leaders
    assert verdict.lead_at_least >= 0.98


def test_nothing_is_judged_before_min_blocks() -> None:
    rules = replace(RULES, min_blocks=4)
    early = judge(table(3, [0.0, -2.0], 0.01, 7), range(2), rules)
    assert (early.dropped, early.settled, early.lead_at_least) == ((), False, 0.0)
    assert judge(table(4, [0.0, -2.0], 0.01, 7), range(2), rules).settled


def test_failed_cells_leave_and_a_lone_one_wins() -> None:
    values = table(2, [0.0, 0.0, 0.0], 0.02, 8)
    values[:, [0, 2]] = math.nan
    verdict = judge(values, range(3), RULES)
    assert [(d.cell, d.reason) for d in verdict.dropped] == [(0, "failed"), (2, "failed")]
    assert verdict.leaders == (1,) and verdict.settled
    values[:] = math.nan
    assert judge(values, range(3), RULES).leaders == ()


@pytest.mark.parametrize("top", [1, 3, 7])
def test_as_many_as_there_are_wanted_is_settled_at_once(top: int) -> None:
    rules = replace(RULES, top=top)
    race = run_race([0.0] * min(3, top), 0.05, 9, rules)
    assert race.course().settled and len(race.course().verdicts) == 2


@given(
    st.lists(
        st.lists(st.floats(-3, 3) | st.just(math.nan), min_size=4, max_size=4),
        min_size=2,
        max_size=8,
    ),
    st.integers(1, 5),
)
@settings(deadline=None)
def test_any_table_gives_a_verdict_that_is_consistent(rows: list[list[float]], top: int) -> None:
    rules = replace(RULES, top=top)
    verdict = judge(np.array(rows), range(4), rules)
    parts = [*verdict.leaders, *verdict.open, *verdict.tied]
    assert sorted(parts) == sorted(verdict.racing)
    gone = {drop.cell for drop in verdict.dropped}
    assert gone | set(parts) == set(range(4)) and not gone & set(parts)
    assert 0 <= verdict.probability <= 1 + 1e-9 and verdict.lead_at_least >= 0
    assert verdict.settled == (not verdict.open)
    if verdict.settled and verdict.leaders:
        assert verdict.lead_at_least >= 1 - rules.delta - 1e-9


@given(st.integers(0, 10_000), st.floats(0.3, 5.0))
@settings(deadline=None, max_examples=25)
def test_the_unit_of_a_metric_and_the_order_of_cells_do_not_matter(seed: int, scale: float) -> None:
    values = table(4, [0.0, -0.05, -0.3, -0.6, -0.02], 0.03, seed)
    order = np.random.default_rng(seed).permutation(5)
    plain = judge(values, range(5), RULES)
    moved = judge(values[:, order] + math.log(scale), range(5), RULES)
    assert {order[cell] for cell in moved.racing} == set(plain.racing)
    assert [order[cell] for cell in moved.leaders] == list(plain.leaders)
    assert moved.lead_at_least == pytest.approx(plain.lead_at_least)


# -- whole races ----------------------------------------------------------------------------


def test_a_race_ends_undecided_at_max_blocks_and_says_what_it_would_take() -> None:
    race = run_race([0.0] * 4, 0.2, 10, replace(RULES, max_blocks=5))
    course = race.course()
    assert course.over and not course.settled and len(course.verdicts) == 5
    assert course.verdicts[-1].blocks_needed > 5
    assert course.verdicts[-1].probability < 0.95


def test_equal_cells_are_seldom_told_apart() -> None:
    """A/A: any cell out is a false claim. At most 5 % of 150 races of 12 equal cells, plus three
    standard errors."""
    rules = replace(RULES, max_blocks=10)
    false = sum(bool(run_race([0.0] * 12, 0.03, seed, rules).course().drops) for seed in range(150))
    assert false <= 150 * 0.05 + 3 * math.sqrt(150 * 0.05 * 0.95)


def test_a_race_that_max_blocks_cannot_decide_is_given_up_when_its_answer_is_probable() -> None:
    """Equal cells: the longest race there is."""
    course = run_race([0.0] * 12, 0.03, 11, replace(RULES, max_blocks=20)).course()
    last = course.verdicts[-1]
    assert course.over and not course.settled and 5 <= len(course.verdicts) < 20
    assert last.probability >= 0.975 and last.blocks_needed > 20


def test_a_rested_cell_comes_back_when_the_lead_changes() -> None:
    """Seen in some race of these seeds; otherwise resting would be dropping."""
    assert any(
        set(now) - set(before)
        for seed in range(40)
        for entries in [run_race([0.0, -0.01, -0.03, -0.04, -0.05], 0.08, seed).course().entries]
        for before, now in pairwise(entries)
    )


def test_races_are_right_and_cheap() -> None:
    """60 studies of 24 cells, 20 % apart, CV 3 %, on a host that changes by 20 % a block: at most
    34 % of an exhaustive study's ten blocks, and the winner within delta of the best."""
    runs = right = 0
    for seed in range(60):
        rng = random.Random(seed)
        truth = [rng.gauss(0, 0.2) for _ in range(24)]
        race = run_race(truth, 0.03, seed)
        course = race.course()
        runs += sum(map(len, course.entries))
        right += truth[course.verdicts[-1].leaders[0]] >= max(truth) - RULES.margin
    assert runs / (60 * 240) <= 0.34
    assert right >= 57


@pytest.mark.parametrize("cells", [2, 24])
def test_the_error_over_all_looks_is_kept_where_it_is_hardest(cells: int) -> None:
    """One cell is ahead of equal ones by a little more than delta: any other winner is wrong, and
    so is dropping it. At most 5 % of 150 races, plus three standard errors."""
    truth = [0.0] * (cells - 1) + [RULES.margin + 0.001]
    wrong = 0
    for seed in range(150):
        course = run_race(truth, 0.02, seed, replace(RULES, max_blocks=12)).course()
        dropped = any(drop.cell == cells - 1 for drop in course.drops)
        wrong += dropped or (course.settled and course.verdicts[-1].leaders[0] != cells - 1)
    assert wrong <= 150 * 0.05 + 3 * math.sqrt(150 * 0.05 * 0.95)


# -- what a ranking says after a race ---------------------------------------------------------


def raced_samples(truth: list[float], sigma: float, seed: int, rules: RaceRules) -> list[Sample]:
    """The runs of a race, as a store hands them to a ranking."""
    rng, race, rows = random.Random(seed), Race(len(truth), rules), []
    while race.racing:
        row = [math.nan] * len(truth)
        for cell in race.racing:
            row[cell] = truth[cell] + rng.gauss(0, sigma)
        race.add_block(row)
        rows.append(row)
    columns = np.array(rows).T
    kept = [np.flatnonzero(np.isfinite(column)) for column in columns]
    return [
        Sample(tuple(np.exp(column[there]).tolist()), tuple(there.tolist()), looked=True)
        for column, there in zip(columns, kept, strict=True)
    ]


def test_a_ranking_after_a_race_pays_for_its_looks() -> None:
    """Equal cells: a ranking that knew nothing of the looks claims something in 12 % of these."""
    rules, races = replace(RULES, max_blocks=10), 50
    looked = [raced_samples([0.0] * 12, 0.03, seed, rules) for seed in range(races)]
    unlooked = [[replace(sample, looked=False) for sample in each] for each in looked]
    claims = sum(bool(compare_all(each).proved.any()) for each in looked)
    assert claims <= races * 0.05
    assert sum(bool(compare_all(each).proved.any()) for each in unlooked) > claims


def test_a_ranking_after_a_race_proves_what_the_race_did_and_marks_who_stopped() -> None:
    truth = [0.0, -0.001, -0.4, -0.5, -0.6]
    samples = raced_samples(truth, 0.01, 5, replace(RULES, min_blocks=4))
    cells = [Cell((("cache", str(place)),), WorkloadSpec("load", "fio")) for place in range(5)]
    lines = rank([Measured(*each) for each in zip(cells, samples, strict=True)], True)
    first, *others = lines
    assert not first.stopped and all(line.is_apart(first) for line in others[1:])
    assert all(line.stopped for line in others[1:]) and not others[0].is_apart(first)
    assert all(line.alone.low is None and line.ratio.p_value is None for line in others)
