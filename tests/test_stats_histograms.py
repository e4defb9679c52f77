"""Histograms: merging adds, percentiles agree with the operations counted one by one."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.records import Histogram
from diskproof.stats.histograms import merge_histograms

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
