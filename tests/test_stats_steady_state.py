"""Steady state: both criteria, the cliff, and the honest "not reached"."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.stats.steady_state import judge_steady_state, rounds_of


def cliff(rng: random.Random, fast: int, fall: int, slow: int, noise: float = 0.02) -> list[float]:
    """A write cliff: fast while a cache absorbs, a fall, then the steady slow level."""
    levels = [4.0] * fast + [4.0 * 0.25 ** ((i + 1) / (fall + 1)) for i in range(fall)]
    levels += [1.0] * slow
    return [1000 * level * math.exp(rng.gauss(0, noise)) for level in levels]


def test_no_early_accept_at_a_write_cliff() -> None:
    """Plateaus of up to 12 rounds fool both criteria alone; the median delay is at most a round."""
    rng = random.Random(1)
    delays = []
    for _ in range(500):
        fast, fall = rng.randint(1, 12), rng.randint(0, 6)
        found = judge_steady_state(cliff(rng, fast, fall, 14))
        assert found.verdict == "measured" and found.window is not None
        delays.append(found.window.start - (fast + fall))
    assert min(delays) >= -1  # the last step of a gentle fall lies within the criteria
    assert sorted(delays)[len(delays) // 2] <= 1
    assert sum(delay < 0 for delay in delays) <= 0.05 * len(delays)


def test_measurement_is_apart_from_the_steady_window() -> None:
    values = [500.0, 300.0] + [100.0] * 5 + [104.0] * 5
    found = judge_steady_state(values)
    assert found.verdict == "measured"
    assert found.window is not None and (found.window.start, found.window.end) == (2, 7)
    assert found.measurement is not None and found.measurement.start == 7
    assert found.measurement.average == pytest.approx(104)


@pytest.mark.parametrize(
    ("values", "verdict", "missing"),
    [
        ([], "too short", 5),
        ([1.0] * 4, "too short", 1),
        ([1.0] * 5, "unmeasured", 5),
        ([1.0] * 9, "unmeasured", 1),
        ([1.0] * 10, "measured", 0),
        ([0.0] * 10, "measured", 0),
        ([float(i) for i in range(1, 11)], "not reached", 0),
        ([100.0, 150.0] * 8, "not reached", 0),
    ],
)
def test_verdicts(values: list[float], verdict: str, missing: int) -> None:
    found = judge_steady_state(values)
    assert (found.verdict, found.missing) == (verdict, missing)
    assert (found.measurement is not None) == (verdict == "measured")


def test_each_criterion_counts_alone() -> None:
    slope_only = [100 * (1 + 0.035 * i) for i in range(5)]  # range 13 %, slope 13 %
    range_only = [100.0, 122.0, 100.0, 100.0, 122.0]  # slope under 10 %
    for values, name in ((slope_only, "slope_share"), (range_only, "range_share")):
        found = judge_steady_state(values)
        assert found.verdict == "not reached" and found.last is not None
        shares = {"slope_share": found.last.slope_share, "range_share": found.last.range_share}
        exceeded = {
            key for key, share in shares.items() if share > (0.1 if "slope" in key else 0.2)
        }
        assert exceeded == {name}


def test_a_slow_slide_through_both_criteria_is_not_steady() -> None:
    """2 % a round passes both criteria in every window and never ends."""
    assert judge_steady_state([100 * 0.98**i for i in range(40)]).verdict != "measured"


def test_the_slope_is_that_of_least_squares() -> None:
    values = [3.0, 1.0, 4.0, 1.5, 9.0]
    found = judge_steady_state(values)
    assert found.last is not None
    slope = np.polyfit(range(5), values, 1)[0]
    assert found.last.slope_share == pytest.approx(abs(slope) * 4 / np.mean(values))


@pytest.mark.parametrize(("values", "size"), [([1.0, math.nan], 2), ([1.0], 1)])
def test_refuses_what_has_no_level(values: list[float], size: int) -> None:
    with pytest.raises(ValueError, match="steady state"):
        judge_steady_state(values, size)


def test_rounds_of_a_series() -> None:
    times = [0.5 * i for i in range(100)]
    assert rounds_of(times, [7.0] * 100) == (7.0,) * 25
    assert rounds_of(times, [float(i) for i in range(100)], 4) == (12.0, 37.0, 62.0, 87.0)
    assert rounds_of([], []) == ()
    assert rounds_of([1.0, 2.0], [math.nan, 3.0]) == (3.0,)
    assert len(rounds_of([0.0, 1.0, 50.0], [1.0, 1.0, 2.0], 25)) == 2


@given(st.lists(st.floats(0.5, 2.0), max_size=30), st.integers(-20, 20))
def test_units_change_no_verdict(values: list[float], power: int) -> None:
    """Powers of two, which scale without rounding."""
    one, other = judge_steady_state(values), judge_steady_state([v * 2.0**power for v in values])
    assert (one.verdict, one.missing) == (other.verdict, other.missing)
    if one.window and other.window:
        assert (one.window.start, one.window.end) == (other.window.start, other.window.end)
        assert other.window.average == one.window.average * 2.0**power


@pytest.mark.parametrize("cv", [0.01, 0.02, 0.05])
def test_a_slide_over_the_whole_run_is_no_steady_state(cv: float) -> None:
    rng = np.random.default_rng(5)
    slides = np.linspace(1, 0.85, 25) * rng.normal(1, cv, (100, 25))
    settles = (1 + 0.6 * np.exp(-np.arange(25) / 3)) * rng.normal(1, cv, (100, 25))
    assert sum(judge_steady_state(each).verdict == "measured" for each in slides) <= 7
    assert sum(judge_steady_state(each).verdict == "measured" for each in settles) >= 93
