"""How a cache warms up: the speed of a re-read over time, from a cold start to its steady state."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

WARM_SHARE = 0.9
FEWEST = 20
"""Samples below which a run says nothing of its course."""
NEIGHBOURS = 5
"""Samples whose median must be warm: one lucky sample is not."""
MAX_RISE = 0.1
"""By how much the end of a run may differ from what was before it, to pass for steady."""
TAIL = 3  # the last third of a run is its end

Trace = tuple[Sequence[float], Sequence[float]]
"""Times in seconds since the start, each the end of its sample, and speeds."""


@dataclass(frozen=True)
class WarmUp:
    """One run. ``first`` is its mean speed in the first tenth, ``last`` in the last third.

    ``seconds`` is the time after which the speed has reached 90 % of ``last``; None when the
    last third was still rising or falling by more than 10 %: then ``last`` is no steady state.
    """

    first: float
    last: float
    seconds: float | None


def find_warm_up(times: Sequence[float], values: Sequence[float]) -> WarmUp | None:
    """The warming up of one run by its speed over time; None when it has fewer than 20 samples or
    no speed. The time is exact to a sample and never too short: it is that of the end of the
    first sample which is warm together with the four after it (their median)."""
    pairs = [pair for pair in zip(times, values, strict=True) if all(map(math.isfinite, pair))]
    speeds = [value for _, value in pairs]
    if len(pairs) < FEWEST:
        return None
    end = speeds[-(len(speeds) // TAIL) :]
    last = math.fsum(end) / len(end)
    if last <= 0:
        return None
    first = statistics.fmean(speeds[: len(speeds) // 10])
    halves = statistics.fmean(end[: len(end) // 2]), statistics.fmean(end[len(end) // 2 :])
    steady = abs(halves[1] - halves[0]) <= MAX_RISE * last
    return WarmUp(first, last, _warm_since(pairs, WARM_SHARE * last) if steady else None)


def _warm_since(pairs: Sequence[tuple[float, float]], enough: float) -> float:
    """The last third is on average above ``enough``; should no five samples in a row be, the end
    of the run is the answer that promises least."""
    for place in range(len(pairs) - NEIGHBOURS + 1):
        near = [value for _, value in pairs[place : place + NEIGHBOURS]]
        if statistics.median(near) >= enough and near[0] >= enough:
            return pairs[place][0]
    return pairs[-1][0]


def average_traces(traces: Sequence[Trace], count: int) -> tuple[list[float], list[list[float]]]:
    """Traces of several runs side by side: at most ``count`` equal spans of their shared time as
    (the end of each span, the mean speed of each run in it); spans in which a run has no sample
    are left out."""
    ends = [max(times) for times, _ in traces if times]
    if not ends or len(ends) < len(traces):
        return [], []
    length = min(ends)
    count = max(1, min(count, *(len(times) for times, _ in traces)))
    spans = [_span_means(trace, length, count) for trace in traces]
    shared = [place for place in range(count) if all(place in each for each in spans)]
    return (
        [length * (place + 1) / count for place in shared],
        [[each[place] for each in spans] for place in shared],
    )


def _span_means(trace: Trace, length: float, count: int) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for time, value in zip(*trace, strict=True):
        if 0 < time <= length * (1 + 1e-9) and math.isfinite(value):
            place = min(count - 1, math.ceil(time / length * count - 1e-9) - 1)
            found.setdefault(max(0, place), []).append(value)
    return {place: math.fsum(each) / len(each) for place, each in found.items()}
