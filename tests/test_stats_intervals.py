"""Intervals: the published data, hand-made edges, and coverage by simulation."""

import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diskproof.stats.intervals import (
    RatioInterval,
    Sample,
    geometric_interval,
    mean_interval,
    paired_blocks,
    ratio_interval,
    resolution,
    student_interval,
)

PUBLISHED = Path(__file__).parent / "golden" / "kvm-perf-sample.txt"
positive = st.floats(min_value=1e-6, max_value=1e9)


def published() -> list[tuple[list[float], float, float]]:
    """(values, printed mean, printed half width) for each line pair of the published file."""
    found: dict[str, list[float]] = {}
    cases = []
    for line in PUBLISHED.read_text().splitlines():
        if match := re.match(r"(read|write)s: \[(.*)\]", line):
            found[match[1]] = [float(part) for part in match[2].split(",")]
        elif match := re.match(r"(read|write)interval: (\S+) \+/- (\S+)", line):
            cases.append((found[match[1]], float(match[2]), float(match[3])))
    return cases


def test_published_means_and_intervals() -> None:
    """Within 1e-4 of what was printed. The source's t quantile for n = 10 is 9e-7 too large
    (2.2621592 for 2.2621572), which shows in absolute terms in its widest interval only."""
    cases = published()
    assert len(cases) == 42
    for values, mean, half in cases:
        interval = student_interval(values)
        assert interval.mean == pytest.approx(mean, abs=1e-4)
        assert interval.half_width == pytest.approx(half, abs=1e-4, rel=1e-6)


def test_single_run_claims_nothing() -> None:
    interval = mean_interval([5.0])
    assert (interval.n, interval.mean, interval.half_width, interval.sd) == (1, 5.0, None, None)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_mean_refuses_what_has_no_mean(values: list[float]) -> None:
    with pytest.raises(ValueError):
        mean_interval(values)


def test_equal_values_are_known_to_half_a_step_of_their_resolution() -> None:
    assert student_interval([3.0, 3.0, 3.0]).half_width == 0
    assert mean_interval([3.0, 3.0, 3.0]).half_width == 0.5
    assert geometric_interval([3.1, 3.1, 3.1]).half_width == pytest.approx(0.05)
    assert mean_interval([0.0, 0.0]).half_width == 0


@pytest.mark.parametrize(
    ("values", "step"),
    [((12.0, 300.0), 1), ((1.5, 2.0), 0.1), ((0.000123, 0.0002), 1e-6), ((0.0,), 0)],
)
def test_resolution_is_the_grid_that_all_values_lie_on(
    values: tuple[float, ...], step: float
) -> None:
    assert resolution(values) == pytest.approx(step)


def test_rounded_means_are_covered() -> None:
    """Student's interval alone holds 46, 64 and 87 % of them: where all three runs round alike it
    has no width."""
    rng = np.random.default_rng(2)
    for runs in (3, 5, 10):
        values = np.round(7.3 * np.exp(0.03 * rng.standard_normal((1000, runs))))
        held = 0
        for row in values:
            interval = mean_interval(row.tolist())
            assert interval.half_width is not None
            held += abs(interval.mean - 7.3) <= interval.half_width
        assert held >= 930


@pytest.mark.parametrize("runs", [3, 5, 10])
def test_geometric_means_are_covered(runs: int) -> None:
    rng = np.random.default_rng(4)
    held = 0
    for row in np.exp(0.3 * rng.standard_normal((2000, runs))):
        interval = geometric_interval(row.tolist())
        assert interval.half_width is not None
        held += abs(interval.mean - 1) <= interval.half_width
    assert 0.93 <= held / 2000 <= 0.975


def test_pairing_takes_out_what_blocks_share() -> None:
    drift = [1.0, 2.0, 4.0, 8.0]
    a = Sample(tuple(1.10 * x for x in drift), (0, 1, 2, 3))
    b = Sample(tuple(drift), (0, 1, 2, 3))
    paired, welch = ratio_interval(a, b), ratio_interval(Sample(a.values), Sample(b.values))
    assert paired.method == "paired" and welch.method == "welch"
    assert paired.ratio == pytest.approx(1.10) == welch.ratio
    assert paired.p_value is not None and welch.p_value is not None
    assert paired.p_value < 1e-4
    assert welch.p_value > 0.5


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        ((0, 1, 2), (0, 1, 2), (0, 1, 2)),
        ((0, 1, 2, 3), (0, 1, 3), (0, 1, 3)),
        ((0,), (0,), ()),
        ((0, 1, 2, 3), (3, 4, 5, 6), ()),
        ((0, 0, 1), (0, 1, 2), ()),
        ((), (0, 1), ()),
    ],
)
def test_which_blocks_pair(a: tuple[int, ...], b: tuple[int, ...], common: tuple[int, ...]) -> None:
    ones = [Sample((1.0,) * (len(blocks) or 2), blocks) for blocks in (a, b)]
    assert paired_blocks(ones[0], ones[1]) == common


def test_zero_variance_is_not_infinite_proof() -> None:
    same = ratio_interval(Sample((5.0,) * 3, (0, 1, 2)), Sample((5.0,) * 3, (0, 1, 2)))
    near = ratio_interval(Sample((5.001,) * 3), Sample((5.0,) * 3))
    far = ratio_interval(Sample((9.0,) * 3), Sample((5.0,) * 3))
    assert same.p_value == 1 and same.ratio == 1
    assert near.p_value is not None and near.p_value > 0.05
    assert far.p_value is not None and far.p_value < 1e-4


@pytest.mark.parametrize(
    ("a", "b"), [((1.0,), (2.0, 3.0)), ((0.0, 1.0), (1.0, 2.0)), ((1.0, 2.0), (0.0, 0.0))]
)
def test_too_little_gives_a_ratio_and_no_claim(a: tuple[float, ...], b: tuple[float, ...]) -> None:
    result = ratio_interval(Sample(a), Sample(b))
    assert result.method == "none"
    assert result.low is result.high is result.p_value is None


@settings(deadline=None)  # the first example imports scipy
@given(st.lists(positive, min_size=2, max_size=8), st.lists(positive, min_size=2, max_size=8))
def test_swapping_inverts(a: list[float], b: list[float]) -> None:
    ahead: RatioInterval = ratio_interval(Sample(tuple(a)), Sample(tuple(b)))
    back = ratio_interval(Sample(tuple(b)), Sample(tuple(a)))
    assert ahead.ratio * back.ratio == pytest.approx(1)
    assert ahead.p_value == pytest.approx(back.p_value)
    assert ahead.low is not None and ahead.high is not None
    assert ahead.low <= ahead.ratio <= ahead.high


@settings(deadline=None)  # the first example imports scipy
@given(st.lists(st.floats(-1e12, 1e12), min_size=2, max_size=20))
def test_interval_holds_its_mean(values: list[float]) -> None:
    interval = mean_interval(values)
    assert min(values) - 1e-3 <= interval.mean <= max(values) + 1e-3
    assert interval.half_width is not None and interval.half_width >= 0


@pytest.mark.parametrize("paired", [True, False])
def test_ratio_covers_the_truth(paired: bool) -> None:
    """95 % intervals of a true ratio of 1.3 hold it in 95 % of 1000 studies (3 sigma: 93-97 %)."""
    rng = random.Random(20240607)
    hits = 0
    for _ in range(1000):
        drift = [rng.gauss(0, 0.1 if paired else 0) for _ in range(6)]
        a = tuple(1.3 * math.exp(x + rng.gauss(0, 0.05)) for x in drift)
        b = tuple(math.exp(x + rng.gauss(0, 0.1)) for x in drift)
        blocks = tuple(range(6)) if paired else ()
        result = ratio_interval(Sample(a, blocks), Sample(b, blocks))
        assert result.low is not None and result.high is not None
        hits += result.low <= 1.3 <= result.high
    assert 930 <= hits <= 970


def test_a_spread_of_values_whose_squares_are_no_numbers() -> None:
    wide = mean_interval([1e300, -1e300])
    assert wide.sd == pytest.approx(math.sqrt(2) * 1e300)
