"""Steady state by both SNIA criteria, then a measurement window of its own.

SNIA Solid State Storage Performance Test Specification: over a window of five rounds the values'
range is at most 20 % of their average, and the straight line fitted to them rises or falls by at
most 10 % of it. Added here: no later window may leave the level that was called steady, and the
line through all that follows keeps to the 10 % as well, so that neither the fast minutes before
a write cliff nor a slow slide pass for it. And where the whole run slides, what follows the window
must be flatter than that beyond doubt: a window late in a slide sees but its end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

WINDOW = 5
MAX_RANGE = 0.20
MAX_SLOPE = 0.10
ALPHA = 0.05
MAX_LEAVING = 0.10
"""How far the average of a later window may lie from that of the steady one."""


@dataclass(frozen=True)
class Window:
    """Rounds ``start`` to ``end`` (exclusive). ``range_share`` and ``slope_share`` are the spans of
    the values and of the fitted line, over ``average``."""

    start: int
    end: int
    average: float
    range_share: float
    slope_share: float

    @property
    def steady(self) -> bool:
        return self.range_share <= MAX_RANGE and self.slope_share <= MAX_SLOPE


@dataclass(frozen=True)
class SteadyState:
    """``verdict`` ``measured``: steady, and ``measurement`` averages the rounds after the steady
    window; ``unmeasured``: steady, but fewer than ``missing`` more rounds follow than a window
    needs; ``not reached``; ``too short``: fewer rounds than a window. ``last`` is the last window,
    which says by how much it was missed."""

    verdict: Literal["measured", "unmeasured", "not reached", "too short"]
    rounds: int
    window: Window | None
    measurement: Window | None
    last: Window | None
    missing: int


def judge_steady_state(rounds: Sequence[float], size: int = WINDOW) -> SteadyState:
    """Find the steady window and the measurement window in the values of successive rounds.

    Raises ValueError for a value that is not finite or a window below two rounds.
    """
    if size < 2 or not all(map(math.isfinite, rounds)):
        raise ValueError("steady state needs finite values and a window of two rounds or more")
    count = len(rounds)
    if count < size:
        return SteadyState("too short", count, None, None, None, size - count)
    windows = [_window(rounds, start, start + size) for start in range(count - size + 1)]
    found = next((each for each in windows if each.steady and _stays(rounds, each, windows)), None)
    if found is None:
        return SteadyState("not reached", count, None, None, windows[-1], 0)
    missing = max(0, found.end + size - count)
    if missing:
        return SteadyState("unmeasured", count, found, None, windows[-1], missing)
    measurement = _window(rounds, found.end, count)
    return SteadyState("measured", count, found, measurement, windows[-1], 0)


def _stays(rounds: Sequence[float], window: Window, windows: Sequence[Window]) -> bool:
    """No later window leaves the level, and all that follows does not slide away from it."""
    rest = _window(rounds, window.start, len(rounds))
    room = MAX_LEAVING * abs(window.average)
    later = windows[window.start :]
    return (
        rest.slope_share <= MAX_SLOPE
        and all(abs(each.average - window.average) <= room for each in later)
        and not _goes_on_sliding(rounds, window.start)
    )


def _goes_on_sliding(rounds: Sequence[float], start: int) -> bool:
    """Whether the run as a whole slides, and its rounds from ``start`` may do so still."""
    from scipy.special import stdtrit
    from scipy.stats import linregress

    whole = linregress(range(len(rounds)), rounds)
    far = abs(whole.slope) * (len(rounds) - 1) > MAX_SLOPE * abs(math.fsum(rounds) / len(rounds))
    if not (start and far and whole.pvalue < ALPHA):
        return False
    rest = linregress(range(len(rounds) - start), rounds[start:])
    # Any of the windows may look flat by chance.
    doubt = stdtrit(len(rounds) - start - 2, 1 - ALPHA / len(rounds)) * rest.stderr
    return bool(math.copysign(1, whole.slope) * (whole.slope - rest.slope) <= doubt)


def _window(rounds: Sequence[float], start: int, end: int) -> Window:
    values = rounds[start:end]
    size = len(values)
    average = math.fsum(values) / size
    spread = max(values) - min(values)
    centre = (size - 1) / 2
    square = math.fsum((place - centre) ** 2 for place in range(size))
    slope = math.fsum((place - centre) * value for place, value in enumerate(values)) / square
    rise = abs(slope) * (size - 1)
    scale = abs(average)
    if not scale:
        flat = 0.0 if not spread else math.inf
        return Window(start, end, average, flat, flat)
    return Window(start, end, average, spread / scale, rise / scale)


def rounds_of(
    times: Sequence[float], values: Sequence[float], count: int = 25
) -> tuple[float, ...]:
    """A run's time series as the means of ``count`` equal spans of its time, or of as many as give
    each span a sample; spans without a sample are left out."""
    pairs = [
        (time, value)
        for time, value in zip(times, values, strict=True)
        if math.isfinite(time) and math.isfinite(value)
    ]
    if not pairs:
        return ()
    first, last = min(pairs)[0], max(pairs)[0]
    count = max(1, min(count, len(pairs)))
    spans: list[list[float]] = [[] for _ in range(count)]
    for time, value in pairs:
        share = (time - first) / (last - first) if last > first else 0.0
        spans[min(count - 1, int(share * count))].append(value)
    return tuple(math.fsum(each) / len(each) for each in spans if each)
