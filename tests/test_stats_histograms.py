"""Histograms: merging adds, percentiles agree with the operations counted one by one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.records import Histogram
from diskproof.stats.histograms import (
    LEAST_BEYOND,
    TOO_FEW_OPERATIONS,
    find_percentile,
    merge_histograms,
    percentile_of,
    pooled_figure,
)

bins = st.dictionaries(
    st.integers(1, 50).map(lambda us: us * 1e-6), st.integers(1, 20), min_size=1, max_size=20
)


def histogram(content: dict[float, int]) -> Histogram:
    edges = tuple(sorted(content))
    return Histogram("read", edges, tuple(content[edge] for edge in edges))


@given(st.lists(bins, min_size=1, max_size=4), st.sampled_from([1, 50, 90, 99, 99.9, 100]))
def test_percentile_of_merged_is_that_of_all_operations(
    runs: list[dict[float, int]], percent: float
) -> None:
    merged = merge_histograms([histogram(run) for run in runs])
    flat = sorted(edge for run in runs for edge, count in run.items() for _ in range(count))
    place = max(1, math.ceil(round(percent * len(flat) / 100, 9)))
    assert merged.percentile(percent) == flat[place - 1]
    assert sum(merged.counts) == len(flat)


def test_nearest_rank_at_the_edge() -> None:
    thousand = Histogram("x", (1.0, 2.0), (999, 1))
    assert thousand.percentile(99.9) == 1.0
    assert thousand.percentile(100) == 2.0


def test_empty_says_so() -> None:
    empty = Histogram("x", (), ())
    assert empty.percentile(50) is None
    with pytest.raises(ValueError):
        merge_histograms([])


@pytest.mark.parametrize("bad", [Histogram("x", (1.0,), (-1,)), Histogram("x", (math.nan,), (1,))])
def test_refuses_what_is_no_bin(bad: Histogram) -> None:
    with pytest.raises(ValueError):
        merge_histograms([bad])


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_refuses_what_is_no_percentile(percent: float) -> None:
    with pytest.raises(ValueError):
        Histogram("x", (1.0,), (1,)).percentile(percent)


def test_a_percentile_needs_operations_beyond_it() -> None:
    enough = Histogram("x", (1.0, 2.0), (1000 * LEAST_BEYOND - 1, 1))
    assert find_percentile(enough, 99.9) == 1.0
    assert find_percentile(Histogram("x", (1.0,), (1000 * LEAST_BEYOND - 1,)), 99.9) is None
    assert find_percentile(enough, 100) is None


@given(st.lists(bins, min_size=1, max_size=4), st.sampled_from([1, 50, 90]))
def test_a_pooled_figure_lies_in_its_interval(runs: list[dict[float, int]], percent: float) -> None:
    histograms = [histogram(run) for run in runs]
    figure = pooled_figure(histograms, percent)
    assert figure.pooled and figure.n == len(runs)
    assert figure.value == find_percentile(merge_histograms(histograms), percent)
    assert (figure.value is None) == (figure.reason == TOO_FEW_OPERATIONS)
    if figure.value is None or len(runs) == 1:
        assert figure.low is None and figure.high is None
    else:
        assert figure.low is not None and figure.high is not None
        assert figure.low <= figure.value * (1 + 1e-9) and figure.value <= figure.high * (1 + 1e-9)


def test_equal_runs_have_no_width_and_one_slow_run_has() -> None:
    calm = Histogram("read", (1e-4, 2e-4), (900, 100))
    slow = Histogram("read", (1e-4, 9e-4), (800, 200))
    equal, mixed = pooled_figure([calm] * 4, 95), pooled_figure([calm, calm, calm, slow], 95)
    assert equal.low == equal.value == equal.high == 2e-4
    assert mixed.low is not None and mixed.high is not None and mixed.high / mixed.low > 2


@pytest.mark.parametrize(
    ("metric", "wanted"),
    [
        ("latency_p99.9", (("read", "write", "trim"), 99.9)),
        ("write_latency_p50", (("write",), 50.0)),
        ("flush_p99", (("flush",), 99.0)),
        ("latency_p0", None),
        ("latency_mean", None),
        ("read_flush_p99", None),
        ("job.latency_p99", None),
        ("latency_p99.", None),
    ],
)
def test_which_metrics_are_percentiles(metric: str, wanted: object) -> None:
    assert percentile_of(metric) == wanted
