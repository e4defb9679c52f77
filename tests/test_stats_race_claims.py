"""After a race its runs are no fixed sample; ``benchmarks/race_claims.py`` is the long form."""

import itertools
import math

import numpy as np
import pytest

from diskproof.stats.boundaries import looked_p, looked_tail
from diskproof.stats.factor_analysis import analyse_factors
from diskproof.stats.intervals import Sample, ratio_interval
from diskproof.stats.race_course import Race
from diskproof.stats.speed_verdict import judge
from diskproof.study.protocol import LikelyRules, RaceRules

FACTORS = {"format": ("raw", "qcow2"), "cache": ("none", "writeback", "unsafe")}
LEVELS = [dict(zip(FACTORS, each, strict=True)) for each in itertools.product(*FACTORS.values())]


def race(rng: np.random.Generator, rules: RaceRules) -> list[Sample]:
    """Equal cells at CV 5 %."""
    course, rows = Race(len(LEVELS), rules, LEVELS), []
    while course.racing:
        row = np.full(len(LEVELS), math.nan)
        row[list(course.racing)] = 0.05 * rng.standard_normal(len(course.racing))
        course.add_block(row.tolist())
        rows.append(row)
    table = np.array(rows)
    places = [np.flatnonzero(np.isfinite(column)) for column in table.T]
    return [
        Sample(tuple(np.exp(column[own]).tolist()), tuple(own.tolist()), looked=True)
        for column, own in zip(table.T, places, strict=True)
    ]


@pytest.mark.parametrize("kind", [RaceRules, LikelyRules])
def test_equal_cells_of_races_are_rarely_told_apart(kind: type[RaceRules]) -> None:
    rng, rules, wrong = np.random.default_rng(11), kind(max_blocks=6), 0
    factors = 0
    for _ in range(12):
        cells = race(rng, rules)
        verdicts = judge(list(zip(cells[:3], cells[3:], strict=True)), [True] * 3)
        wrong += any(each.outcome in ("faster", "slower") for each in verdicts)
        assert all(each.further_runs is None for each in verdicts)
        first = [
            Sample(each.values[:count], each.blocks[:count])
            for each in cells
            if (count := sum(block < rules.min_blocks for block in each.blocks))
        ]
        assert len(first) == len(cells)
        found = analyse_factors(list(zip(LEVELS, first, strict=True)), FACTORS)
        assert found is not None
        factors += any((each.p_corrected or 1) <= 0.05 for each in found.effects)
    assert wrong <= 3 and factors <= 3


def test_looks_are_paid_for() -> None:
    """The p-value and the interval agree, and both say less than of a fixed sample."""
    values, fast = (1.0, 1.02, 0.99, 1.01), (1.08, 1.1, 1.07, 1.11)
    plain = ratio_interval(Sample(fast), Sample(values))
    looked = ratio_interval(Sample(fast, looked=True), Sample(values))
    assert plain.p_value is not None and looked.p_value is not None
    assert looked.p_value > 3 * plain.p_value
    assert looked.low is not None and plain.low is not None and looked.low < plain.low
    for alpha in (0.2, 0.05, 0.01, 1e-3, 1e-5):
        assert looked_p(looked_tail(alpha, 6), 6) == pytest.approx(alpha, rel=0.05)
    assert looked_p(0.0, 3) == 0.0 and looked_p(0.5, 3) <= 1
