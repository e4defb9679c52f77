"""Races for the likely best: what the posterior knows, when it stops, how often that is wrong."""

import itertools
import math
import random
import time

import numpy as np
import pytest

from diskproof.stats.likely import Kernels, Likely, draw_cells, judge_likely
from diskproof.stats.race_course import Race
from diskproof.study.protocol import EXHAUSTIVE, LikelyRules

RULES = LikelyRules()
FACTORS = {"format": "rq", "cache": "nwud", "aio": "tiu"}
LEVELS = [dict(zip(FACTORS, each, strict=True)) for each in itertools.product(*FACTORS.values())]


def additive(seed: int, levels: list[dict[str, str]] = LEVELS, mixed: float = 0.1) -> list[float]:
    """Levels 20 % apart, interactions of two of them of ``mixed``."""
    rng, effects = random.Random(seed), {}
    truth = []
    for each in levels:
        named = tuple(each.items())
        speed = sum(effects.setdefault(level, rng.gauss(0, 0.2)) for level in named)
        for pair in itertools.combinations(named, 2):
            speed += effects.setdefault(pair, rng.gauss(0, mixed))
        truth.append(speed)
    return truth


def run_race(
    truth: list[float], sigma: float, seed: int, levels: list[dict[str, str]], rules: LikelyRules
) -> Race:
    rng, race = random.Random(seed), Race(len(truth), rules, levels)
    while race.racing:
        host, row = rng.gauss(0, 0.2), [math.nan] * len(truth)
        for cell in race.racing:
            row[cell] = truth[cell] + host + rng.gauss(0, sigma)
        race.add_block(row)
    return race


def test_cells_are_alike_by_shared_levels_and_pairs_of_them() -> None:
    kernels = Kernels.of([{"a": "x", "b": "1"}, {"a": "x", "b": "2"}, {"a": "y", "c": "same"}])
    assert kernels.mains[0, 1] == 1 + 1 and kernels.mains[0, 2] == 0
    assert kernels.pairs[0, 1] == 1  # both have the same a, and neither has c
    assert not Kernels.of([{"a": "x"}, {"a": "x"}]).mains.any()


def test_neighbours_tell_of_a_cell_that_never_ran() -> None:
    """Its two levels are known from others: within 10 %, while cells differ by a factor of 4."""
    levels = [{"a": str(a), "b": str(b)} for a in range(6) for b in range(6)]
    truth = np.array([0.3 * (int(each["a"]) + int(each["b"])) for each in levels])
    table = np.tile(truth, (3, 1)) + np.random.default_rng(1).normal(0, 0.02, (3, 36))
    table[:, 7] = math.nan
    centres = draw_cells(table, Kernels.of(levels)).mean(axis=0)
    assert centres[7] - centres[0] == pytest.approx(truth[7] - truth[0], abs=0.1)


def test_the_posterior_of_repeated_cells_is_about_their_means() -> None:
    rng = np.random.default_rng(2)
    table = np.array([0.0, -0.05, -0.5]) + rng.normal(0, 0.03, (12, 3))
    table += rng.normal(0, 0.3, (12, 1))
    draws = draw_cells(table, Kernels.of([{}] * 3))
    means = table.mean(axis=0)
    found = draws.mean(axis=0)
    assert found - found[0] == pytest.approx(means - means[0], abs=0.01)
    known = Likely.of(draws, range(3), RULES.margin)
    assert known.chances[0] > 0.95 > known.chances[1] and known.chances[2] == 0
    assert known.chance_ahead(0, 2) > 0.99 and known.chance_ahead(1, 0) < 0.05


def test_a_likely_race_is_right_at_a_part_of_the_cost() -> None:
    """10 studies at CV 8 %: at most 45 % of what ten blocks cost, each within the cap."""
    shares, right = [], 0
    for seed in range(10):
        truth = additive(seed)
        race = run_race(truth, 0.08, seed, LEVELS, RULES)
        (leader,) = race.course().verdicts[-1].leaders
        right += truth[leader] >= max(truth) - RULES.margin
        shares.append(race.runs / (EXHAUSTIVE * len(truth)))
    assert sum(shares) / len(shares) <= 0.45 and max(shares) <= 1
    assert right >= 8


def test_it_never_costs_more_than_measuring_everything_and_says_that_it_is_open() -> None:
    race = run_race([0.0] * 6, 0.3, 4, [{}] * 6, RULES)
    course = race.course()
    assert course.over and not course.settled and race.runs <= EXHAUSTIVE * 6
    assert course.verdicts[-1].probability < RULES.confidence


def test_what_a_neighbour_knows_is_not_believed_against_the_cells_own_runs() -> None:
    """One combination is twice as fast as its levels let expect: it wins all the same."""
    truth = [0.0] * 24
    truth[5] = 0.7
    for seed in range(3):
        assert run_race(truth, 0.05, seed, LEVELS, RULES).course().verdicts[-1].leaders == (5,)


def test_a_cell_that_always_fails_leaves_and_is_no_best() -> None:
    table = np.array([[0.0, -0.5, math.nan], [0.0, -0.5, math.nan], [0.0, -0.5, math.nan]])
    draws = draw_cells(table, Kernels.of([{}] * 3))
    verdict = judge_likely(table, draws, range(3), RULES)
    assert [(drop.cell, drop.reason) for drop in verdict.dropped] == [(2, "failed")]
    assert verdict.leaders == (0,) and 2 not in verdict.racing
    assert Likely.of(draws, verdict.racing, RULES.margin).chances[2] == 0


def test_the_best_two_are_likely_together() -> None:
    table = np.array([0.0, -0.1, -0.6, -0.7]) + np.random.default_rng(5).normal(0, 0.01, (6, 4))
    draws = draw_cells(table, Kernels.of([{}] * 4))
    verdict = judge_likely(table, draws, range(4), LikelyRules(top=2))
    assert set(verdict.leaders) == {0, 1} and verdict.settled and not verdict.open


def test_all_run_before_min_blocks_and_nothing_stops_before_two() -> None:
    truth = [0.0, -3.0, -3.0]
    patient = run_race(truth, 0.01, 1, [{}] * 3, LikelyRules(min_blocks=4)).course()
    assert [len(each) for each in patient.entries[:4]] == [3] * 4
    assert len(run_race(truth, 0.01, 1, [{}] * 3, RULES).course().verdicts) >= 2


def test_a_decision_among_80_cells_takes_less_than_a_second() -> None:
    levels = [{"a": str(a), "b": str(b), "c": str(c)} for a in range(4) for b in range(5)
              for c in range(4)]  # fmt: skip
    table = np.array(additive(1, levels)) + np.random.default_rng(1).normal(0, 0.05, (4, 80))
    kernels, spent = Kernels.of(levels), []
    for _ in range(3):
        began = time.thread_time()
        judge_likely(table, draw_cells(table, kernels), range(80), RULES)
        spent.append(time.thread_time() - began)
    assert min(spent) < 1
