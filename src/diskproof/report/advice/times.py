"""How many times as fast."""

from __future__ import annotations

import math
from dataclasses import dataclass

from diskproof.report.ratios import is_untold
from diskproof.stats.intervals import RatioInterval


@dataclass(frozen=True)
class Times:
    """How many times as fast, whichever way the metric points; the interval holds for all pairs of
    the workload together, and has no ends where too little is known."""

    ratio: float
    low: float | None
    high: float | None

    @property
    def inverse(self) -> Times:
        """The same the other way round."""
        low = None if not self.high else 1 / self.high
        high = None if not self.low else 1 / self.low
        return Times(1 / self.ratio if self.ratio > 0 else 0.0, low, high)

    @property
    def text(self) -> str:
        """``2.1 times [1.7, 2.6]``."""
        if not 0 < self.ratio < math.inf:
            return "an unknown number of times"
        if self.low is None or self.high is None:
            return f"{self.ratio:.3g} times (no interval)"
        if is_untold(self.low, self.high):
            return f"{self.ratio:.3g} times, from too few runs for an interval"
        return f"{self.ratio:.3g} times [{self.low:.3g}, {self.high:.3g}]"


def times_of(ratio: RatioInterval, higher_is_better: bool) -> Times:
    """A ratio of figures as one of speeds."""
    times = Times(ratio.ratio, ratio.low, ratio.high)
    return times if higher_is_better else times.inverse
