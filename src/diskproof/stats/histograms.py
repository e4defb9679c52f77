"""Latency distributions: merged over runs, and read back as percentiles."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from diskproof.records import Histogram


def merge_histograms(histograms: Sequence[Histogram]) -> Histogram:
    """One histogram of all operations of all runs: counts of equal bins are added.

    fio's bins lie on one fixed grid (its latency groups), so bins of equal edge are equal bins.
    Raises ValueError for none, or for a negative count or an edge that is not a number.
    """
    if not histograms:
        raise ValueError("no histogram to merge")
    counts: Counter[float] = Counter()
    for histogram in histograms:
        for edge, count in zip(histogram.edges, histogram.counts, strict=True):
            if count < 0 or not math.isfinite(edge):
                raise ValueError(f"not a histogram bin: {count} operations up to {edge} s")
            counts[edge] += count
    edges = tuple(sorted(edge for edge, count in counts.items() if count))
    return Histogram(histograms[0].name, edges, tuple(counts[edge] for edge in edges))


def cumulative(histogram: Histogram) -> tuple[tuple[float, float], ...]:
    """(latency in seconds, share of operations done by then) for each bin with operations."""
    total = sum(histogram.counts)
    if not total:
        return ()
    done = accumulate(histogram.counts)
    return tuple((edge, so_far / total) for edge, so_far in zip(histogram.edges, done, strict=True))


def find_percentile(histogram: Histogram, percent: float) -> float | None:
    """Upper edge of the bin that holds the operation at ``percent``; None when it is empty.

    The nearest-rank definition: the smallest edge by which at least that share is done.
    """
    if not 0 < percent <= 100:
        raise ValueError(f"{percent} is not a percentile; it must be above 0 and at most 100")
    running = list(accumulate(histogram.counts))
    if not running or running[-1] == 0:
        return None
    # The small allowance keeps 99.9 % of 1000 at rank 999: 0.999 * 1000 is 999.0000000000001.
    wanted = max(1, math.ceil(percent / 100 * running[-1] * (1 - 1e-12)))
    return histogram.edges[bisect_left(running, wanted)]
