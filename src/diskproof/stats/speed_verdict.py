"""Is B faster than A, slower, the same for practical purposes, or is it too early to say?"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from diskproof.stats import intervals
from diskproof.stats.cell_means import fit_cell_means
from diskproof.stats.holm import holm_adjusted

DELTA = 0.02
POWER = 0.9
MOST_RUNS = 1000
"""More further runs than this are not counted out."""

Outcome = Literal["faster", "slower", "same", "undecided"]


@dataclass(frozen=True)
class SpeedVerdict:
    """B against A. ``ratio`` is B over A in the metric, ``p_corrected`` its p-value corrected for
    all comparisons made together (None for too few runs).

    ``same`` means that B is proved to be within delta of A. ``further_runs`` (a side, of an
    undecided one) would settle it with a probability of 90 % if the ratio and the scatter seen so
    far are the true ones; None when a single run tells no scatter, above MOST_RUNS, and of a race,
    which itself says who runs on.
    """

    outcome: Outcome
    ratio: intervals.RatioInterval
    p_corrected: float | None
    further_runs: int | None


def judge(
    pairs: Sequence[tuple[intervals.Sample, intervals.Sample]],
    higher_is_better: Sequence[bool],
    delta: float = DELTA,
    percentiles: Sequence[intervals.LogRatio | None] = (),
) -> tuple[SpeedVerdict, ...]:
    """A verdict on each (A, B), with 5 % for any false ``faster`` or ``slower`` among all of them.

    ``higher_is_better`` runs parallel to the pairs, and so do ``percentiles``: ratios that are
    judged instead of those of the runs' means. ``same`` takes precedence: a difference that is
    proved but surely within delta is of no practical interest. Raises ValueError for an empty
    sample or a delta outside 0..1.
    """
    if not 0 < delta < 1:
        raise ValueError(f"delta is a share between 0 and 1, not {delta}")
    told = percentiles or [None] * len(pairs)
    known = [
        each or intervals.estimate_ratio(b, a) for each, (a, b) in zip(told, pairs, strict=True)
    ]
    ratios = [
        each.interval() if each else intervals.ratio_interval(b, a)
        for each, (a, b) in zip(known, pairs, strict=True)
    ]
    tested = [place for place, ratio in enumerate(ratios) if ratio.p_value is not None]
    adjusted = holm_adjusted([ratios[place].p_value or 0.0 for place in tested])
    corrected = dict(zip(tested, adjusted, strict=True))
    found = []
    for place, (each, ratio) in enumerate(zip(known, ratios, strict=True)):
        outcome = _outcome(each, ratio, corrected.get(place), higher_is_better[place], delta)
        further = None
        if outcome == "undecided" and place in corrected and each and not each.looks:
            further = find_further_runs(*pairs[place], delta, len(tested), each.difference)
        found.append(SpeedVerdict(outcome, ratio, corrected.get(place), further))
    return tuple(found)


def _outcome(
    estimate: intervals.LogRatio | None,
    ratio: intervals.RatioInterval,
    corrected: float | None,
    higher_is_better: bool,
    delta: float,
) -> Outcome:
    if corrected is None or estimate is None:
        return "undecided"
    if _within(estimate, delta):
        return "same"
    if corrected > 1 - intervals.CONFIDENCE:
        return "undecided"
    return "faster" if (ratio.ratio > 1) == higher_is_better else "slower"


def _within(estimate: intervals.LogRatio, delta: float) -> bool:
    """Two one-sided tests at 5 % (Schuirmann 1987): the 90 % interval lies within delta."""
    inner = estimate.interval(2 * intervals.CONFIDENCE - 1)
    if inner.low is None or inner.high is None:
        return False
    return inner.low >= 1 / (1 + delta) and inner.high <= 1 + delta


def find_further_runs(
    a: intervals.Sample,
    b: intervals.Sample,
    delta: float,
    comparisons: int = 1,
    difference: float | None = None,
) -> int | None:
    """Runs that each side needs beyond those it has for a verdict with a probability of 90 %.

    At the observed ratio (or this ``difference`` of logarithms) and scatter; the difference is held
    against 5 % / ``comparisons``.
    """
    noise = _noise(a, b)
    if noise is None:
        return None
    noise = noise if difference is None else replace(noise, difference=difference)
    low, high = 0, 1
    while not _decides(noise, high, delta, comparisons):
        low, high = high, 2 * high
        if high > 2 * MOST_RUNS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        decided = _decides(noise, middle, delta, comparisons)
        low, high = (low, middle) if decided else (middle, high)
    return high if high <= MOST_RUNS else None


@dataclass(frozen=True)
class _Noise:
    """Observed log ratio, variances of a run (one, of the differences, when paired) and counts."""

    difference: float
    variances: tuple[float, ...]
    counts: tuple[int, ...]

    def after(self, more: int) -> tuple[float, float]:
        """Standard error and degrees of freedom with so many more runs a side."""
        parts = [v / (n + more) for v, n in zip(self.variances, self.counts, strict=True)]
        freedoms = [n + more - 1 for n in self.counts]
        total = sum(parts)
        freedom = total**2 / sum(p * p / f for p, f in zip(parts, freedoms, strict=True))
        return math.sqrt(total), min(freedom, len(parts) * min(freedoms))


def _noise(a: intervals.Sample, b: intervals.Sample) -> _Noise | None:
    common = intervals.paired_blocks(a, b)
    if common:
        old, new = (dict(zip(s.blocks, s.values, strict=True)) for s in (a, b))
        logs = [[math.log(new[block] / old[block]) for block in common]]
    else:
        logs = [[math.log(value) for value in sample.values] for sample in (b, a)]
    if min(map(len, logs)) < 2:
        return None
    means = [math.fsum(each) / len(each) for each in logs]
    variances = [
        max(math.fsum((x - mean) ** 2 for x in each) / (len(each) - 1), intervals.RESOLUTION**2)
        for each, mean in zip(logs, means, strict=True)
    ]
    return _Noise(
        means[0] - (means[1] if len(means) > 1 else 0.0),
        tuple(variances),
        tuple(len(each) for each in logs),
    )


def _decides(noise: _Noise, more: int, delta: float, comparisons: int) -> bool:
    error, freedom = noise.after(more)
    differs = power_of_difference(noise.difference / error, freedom, comparisons)
    return max(differs, _power_of_sameness(noise.difference, error, freedom, delta)) >= POWER


def power_of_difference(noncentrality: float, freedom: float, comparisons: int = 1) -> float:
    """Probability that a two-sided t-test at 5 % / ``comparisons`` proves a difference of
    ``noncentrality`` standard errors (noncentral t distribution)."""
    from scipy.special import nctdtr, stdtrit

    critical = float(stdtrit(freedom, 1 - (1 - intervals.CONFIDENCE) / 2 / comparisons))
    away = abs(noncentrality)
    if away > 30:  # beyond the range where the noncentral distribution is computed well
        return 1.0 if away > 2 * critical else 0.0
    return float(1 - nctdtr(freedom, away, critical) + nctdtr(freedom, away, -critical))


def _power_of_sameness(difference: float, error: float, freedom: float, delta: float) -> float:
    """Probability that both one-sided tests succeed, with the scatter taken as known."""
    from scipy.special import ndtr, stdtrit

    room = math.log1p(delta) - float(stdtrit(freedom, intervals.CONFIDENCE)) * error
    if room <= 0:
        return 0.0
    return float(ndtr((room - difference) / error) - ndtr((-room - difference) / error))


def overall_samples(
    pairs: Sequence[tuple[intervals.Sample, intervals.Sample]],
) -> tuple[intervals.Sample, intervals.Sample] | None:
    """Each side as one sample: by block, the geometric mean of its cells, all of equal weight.

    A block is the repeat: its cells share the host's luck and are not independent. A block that
    lacks some cells is put right by least squares (log value = cell + block); one that lacks most
    of them does not count. None when a side has no block, or a value that is not positive.
    """
    sides = [_by_block([pair[side] for pair in pairs]) for side in (0, 1)]
    return None if sides[0] is None or sides[1] is None else (sides[0], sides[1])


def _by_block(samples: Sequence[intervals.Sample]) -> intervals.Sample | None:
    if any(min(sample.values) <= 0 for sample in samples):
        return None
    if not all(len(s.blocks) == len(s.values) == len(set(s.blocks)) for s in samples):
        # Without blocks the runs of different cells have nothing in common: any order will do.
        rows = zip(*(sample.values for sample in samples), strict=False)
        return intervals.Sample(tuple(map(intervals.geometric_mean, rows)))
    runs = Counter(block for sample in samples for block in sample.blocks)
    if set(runs.values()) != {len(samples)}:
        return _fitted_by_block(samples, runs)
    tables = [dict(zip(s.blocks, s.values, strict=True)) for s in samples]
    common = tuple(sorted(runs))
    values = (intervals.geometric_mean([table[block] for table in tables]) for block in common)
    return intervals.Sample(tuple(values), common)


def _fitted_by_block(
    samples: Sequence[intervals.Sample], runs: Mapping[int, int]
) -> intervals.Sample | None:
    """What each block would have given with all cells in it, where it has at least half."""
    fitted = fit_cell_means(samples)
    centre = float(fitted.means.mean())
    found = {
        block: math.exp(centre + float(effect))
        for block, effect in zip(fitted.block_numbers, fitted.block_effects, strict=True)
        if 2 * runs[block] >= len(samples)
    }
    return intervals.Sample(tuple(found.values()), tuple(found)) if found else None
