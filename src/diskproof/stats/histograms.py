"""Latency distributions: merged over runs, and read back as percentiles."""

import math
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
