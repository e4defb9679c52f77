"""Where results scatter - inside a run, between runs, between blocks - and what more effort buys.

Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time": estimate the variance of each
level and its cost, then repeat where a second of machine time buys most precision.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from diskproof.stats.cell_means import fit_cell_means
from diskproof.stats.intervals import Sample

BATCHES = 10
LEAST_SAMPLES = 20


@dataclass(frozen=True)
class RunTrace:
    """One run: its measured seconds, the seconds around them, and its speed over time."""

    measured_seconds: float
    other_seconds: float
    values: Sequence[float]


@dataclass(frozen=True)
class VarianceLevels:
    """Coefficients of variation (shares of the mean) at each level of a study.

    ``block``: what all cells of a block share; comparisons inside a block do not see it. ``run``:
    from run to run of a cell, fresh image, process and boot together. ``inside``: how far the
    mean of one run is uncertain because the run is short; it is a part of ``run``. Each is None
    where the store does not tell. ``measured_seconds`` and ``other_seconds`` are medians.
    """

    runs: int
    block: float | None
    run: float | None
    inside: float | None
    measured_seconds: float | None
    other_seconds: float | None

    @property
    def inside_share(self) -> float | None:
        """The part of the variance between runs that longer runs would remove, at most 1."""
        if self.run is None or self.inside is None or not self.run:
            return None
        return min(1.0, (self.inside / self.run) ** 2)

    @property
    def best_seconds(self) -> float | None:
        """The measured time a run at which a given total time gives the narrowest interval.

        A run costs o + T seconds and its result varies by b + v/T, where v/T is what lies inside
        it; the product is least at T = sqrt(o v / b). infinity when nothing but the inside varies.
        """
        share, measured, other = self.inside_share, self.measured_seconds, self.other_seconds
        if share is None or not measured or other is None:
            return None
        return (
            measured * math.sqrt(other / measured * share / (1 - share)) if share < 1 else math.inf
        )

    @property
    def saving(self) -> float | None:
        """Total time at ``best_seconds`` over that of now, for the same interval."""
        share, measured, best = self.inside_share, self.measured_seconds, self.best_seconds
        if share is None or best is None or not measured or self.other_seconds is None:
            return None
        if not math.isfinite(best):
            return measured / (measured + self.other_seconds)
        per_run = (1 - share) + (share * measured / best if best else 0.0)
        return (self.other_seconds + best) * per_run / (self.other_seconds + measured)


def variance_levels(samples: Sequence[Sample], traces: Sequence[RunTrace]) -> VarianceLevels:
    """Moment estimates from the blocked model on the log scale and from the runs' time series.

    ``samples`` are one metric of several cells, ``traces`` a choice of their runs.
    """
    usable = [s for s in samples if s.values and min(s.values) > 0]
    fitted = fit_cell_means(usable) if usable else None
    run = block = None
    if fitted is not None and fitted.freedom:
        run = _cv(fitted.variance)
        if fitted.block_numbers:
            noise = fitted.variance * float((1 / fitted.block_sizes).mean())
            block = _cv(max(0.0, float(fitted.block_effects.var(ddof=1)) - noise))
    inside = [each for trace in traces if (each := uncertainty_inside(trace.values)) is not None]
    timed = [trace for trace in traces if trace.measured_seconds > 0]
    return VarianceLevels(
        sum(len(s.values) for s in usable),
        block,
        run,
        median(inside) if inside else None,
        median(t.measured_seconds for t in timed) if timed else None,
        median(t.other_seconds for t in timed) if timed else None,
    )


def uncertainty_inside(values: Sequence[float]) -> float | None:
    """Standard error of a run's mean from its own time series, as a share of the mean.

    By batch means (Schmeiser 1982): samples a second apart are correlated, means of ten long
    batches hardly. None for fewer than 20 samples or a mean that is not positive.
    """
    if len(values) < LEAST_SAMPLES or not all(map(math.isfinite, values)):
        return None
    size = len(values) // BATCHES
    means = [math.fsum(values[b * size : (b + 1) * size]) / size for b in range(BATCHES)]
    mean = math.fsum(means) / BATCHES
    if mean <= 0:
        return None
    square = math.fsum((each - mean) ** 2 for each in means) / (BATCHES - 1)
    return math.sqrt(square / BATCHES) / mean


def _cv(variance: float) -> float:
    """Coefficient of variation of a log-normal value."""
    return math.sqrt(math.expm1(min(variance, 700.0)))
