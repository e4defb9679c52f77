"""How long a cache takes to warm up, on courses whose answer is known."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.stats.warm_up import FEWEST, average_traces, find_warm_up


def course(speeds: list[float]) -> tuple[list[float], list[float]]:
    return [(place + 1) / 10 for place in range(len(speeds))], speeds


def test_a_ramp_is_warm_where_it_reaches_nine_tenths() -> None:
    found = find_warm_up(*course([min(1000.0, 100.0 * n) for n in range(1, 61)]))
    assert found is not None
    assert (found.last, found.first) == (1000.0, pytest.approx(350.0))  # of 6 samples
    assert found.seconds == pytest.approx(0.9)  # the ninth sample runs at 900


def test_an_exponential_approach() -> None:
    found = find_warm_up(*course([1000 * (1 - math.exp(-n / 10)) for n in range(100)]))
    assert found is not None and found.seconds is not None
    assert found.seconds == pytest.approx(math.log(10), abs=0.2)  # 10 samples to 1/e


def test_one_lucky_sample_is_not_warm() -> None:
    found = find_warm_up(*course([*([10.0] * 5), 1000.0, *([10.0] * 14), *([1000.0] * 40)]))
    assert found is not None and found.seconds == pytest.approx(2.1)


def test_what_never_warms_is_warm_at_once() -> None:
    found = find_warm_up(*course([500.0] * 30))
    assert found is not None and (found.first, found.last, found.seconds) == (500.0, 500.0, 0.1)


def test_a_run_that_still_rises_has_no_steady_state() -> None:
    found = find_warm_up(*course([float(n) for n in range(1, 61)]))
    assert found is not None and found.seconds is None


@pytest.mark.parametrize("speeds", [[], [1.0] * (FEWEST - 1), [0.0] * 40, [math.nan] * 40])
def test_too_little_says_nothing(speeds: list[float]) -> None:
    assert find_warm_up(*course(speeds)) is None


@given(st.lists(st.floats(0, 1e9), min_size=FEWEST, max_size=80))
def test_the_time_is_one_of_the_run(speeds: list[float]) -> None:
    times, _ = course(speeds)
    found = find_warm_up(times, speeds)
    if found and found.seconds is not None:
        assert found.seconds in times
        assert min(speeds) <= found.last * (1 + 1e-9)


def test_traces_of_several_runs_share_their_spans() -> None:
    slow = ([0.5, 1.0, 1.5, 2.0], [1.0, 3.0, 5.0, 7.0])
    fast = ([0.5, 1.0, 1.5, 2.0, 2.5], [2.0, 4.0, 6.0, 8.0, 10.0])
    assert average_traces([slow, fast], 2) == ([1.0, 2.0], [[2.0, 3.0], [6.0, 7.0]])
    assert average_traces([slow], 60) == ([0.5, 1.0, 1.5, 2.0], [[1.0], [3.0], [5.0], [7.0]])
    assert average_traces([slow, ([], [])], 2) == ([], [])
    assert average_traces([], 2) == ([], [])
