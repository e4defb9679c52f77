"""Latency distributions: merged over runs, and read back as percentiles."""

from collections.abc import Sequence
from itertools import accumulate

from diskproof.records import Histogram, Numbers

_EXACT = 2.0**63
"""Sums below are those of 64 bits; no fio has counted as far, but a store may say so."""


def merge_histograms(histograms: Sequence[Histogram]) -> Histogram:
    """One histogram of all operations of all runs: counts of equal bins are added.

    fio's bins lie on one fixed grid (its latency groups), so bins of equal edge are equal bins.
    Raises ValueError for none, or for a negative count or an edge that is not a number.
    """
    if not histograms:
        raise ValueError("no histogram to merge")
    import numpy as np

    edges = np.concatenate([np.asarray(each.edges, np.float64) for each in histograms])
    rough = np.concatenate([np.asarray(each.counts, np.float64) for each in histograms])
    if not np.isfinite(edges).all() or (rough < 0).any():
        raise ValueError("not a histogram: an edge that is no number, or a count below 0")
    kind = np.uint64 if rough.sum() < _EXACT else object
    counts = np.concatenate([np.asarray(each.counts, kind) for each in histograms])[rough > 0]
    edges = edges[rough > 0]
    order = np.argsort(edges, kind="stable")
    edges, counts = edges[order], counts[order]
    first = np.flatnonzero(np.diff(edges, prepend=-np.inf))
    sums = np.add.reduceat(counts, first) if len(first) else counts
    merged = Numbers("Q", sums.tobytes()) if kind is np.uint64 else tuple(sums)
    return Histogram(histograms[0].name, Numbers("d", edges[first].tobytes()), merged)


def cumulative(histogram: Histogram) -> tuple[tuple[float, float], ...]:
    """(latency in seconds, share of operations done by then) for each bin with operations."""
    total = sum(histogram.counts)
    if not total:
        return ()
    done = accumulate(histogram.counts)
    return tuple((edge, so_far / total) for edge, so_far in zip(histogram.edges, done, strict=True))
