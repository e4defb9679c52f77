"""Whether intervals hold what they say: of means, of ratios (docs/statistics.md).

    PYTHONPATH=src:tests python benchmarks/calibration_intervals.py [STUDIES [PART...]]

Parts: ``coverage`` of the intervals of ratios, ``means`` of those of means, ``skewed`` how often
skewed runs are told.
"""

import sys
from collections.abc import Callable

import numpy as np

from calibration import EVERY, OF_SESSIONS
from calibration_power import head, row
from diskproof.stats.comparisons import compare_all
from diskproof.stats.intervals import geometric_interval, mean_interval, ratio_interval
from diskproof.stats.skewness import are_skewed
from support.noise_shapes import SHAPES, Array, Shape, to_samples


def means(studies: int) -> None:
    """Intervals of a mean: what the truth is comes from many runs."""
    print("\nShare of intervals that hold the mean, arithmetic and geometric (bar: 93-97.5 %)\n")
    head("scatter", (f"{kind} {n}" for kind in ("arithmetic", "geometric") for n in (3, 5, 10)))
    for name, shape in EVERY.items():
        if name in OF_SESSIONS or name.startswith("wild") or name in ("1 to 20 %", "spread"):
            continue  # normal for any one cell, or no matter of one cell
        rng = np.random.default_rng([7, *name.encode()])
        row(name, (f"{each:.1%}" for each in coverage_of_means(rng, name, shape, studies)))


def coverage_of_means(
    rng: np.random.Generator, name: str, shape: Shape, studies: int
) -> list[float]:
    whole, rates = name == "rounded", []
    many = np.concatenate([shape(rng, 60, 200)[-1] for _ in range(300)])
    truths = 0.0 if whole else float(np.log(np.exp(many).mean())), 0.0 if whole else many.mean()
    for interval_of, truth in zip((mean_interval, geometric_interval), truths, strict=True):
        for runs in (3, 5, 10):
            held = 0
            for _ in range(studies):
                true = rng.uniform(8, 40) if whole else 1000.0
                logs = 0.03 * rng.standard_normal(runs) if whole else shape(rng, 12, runs)[-1]
                told = np.round(true * np.exp(logs)) if whole else true * np.exp(logs)
                interval = interval_of(told.tolist())
                assert interval.half_width is not None
                held += abs(interval.mean - true * np.exp(truth)) <= interval.half_width
            rates.append(held / studies)
    return rates


def coverage(studies: int) -> None:
    """Eight cells over a factor of two, 5 runs and 10."""
    print("Share of intervals that hold the true ratio (bar: 93-97 %)")
    print(f"{'scatter':14}{'n':>4}{'blocks':>8}{'one pair':>10}{'all to the best':>17}")
    truth = np.log(2) * np.linspace(1, 0, 8)
    for number, (name, shape) in enumerate(SHAPES.items()):
        for blocks in (5, 10):
            for blocked in (True, False):
                if name == "drifting" and not blocked:
                    continue
                rng = np.random.default_rng([number, blocks, blocked])
                single, every = coverage_of(rng, shape, truth, blocks, blocked, studies)
                kind = "yes" if blocked else "no"
                print(f"{name:14}{blocks:4}{kind:>8}{single:10.1%}{every:17.1%}", flush=True)


def coverage_of(
    rng: np.random.Generator,
    shape: Callable[[np.random.Generator, int, int], Array],
    truth: Array,
    blocks: int,
    blocked: bool,
    studies: int,
) -> tuple[float, float]:
    """Of ``ratio_interval`` for the middle two cells; of all ratios to the best at once."""
    single = every = 0
    # What a shape's mean is counts as the cell's: it is the same for all cells.
    for _ in range(studies):
        logs = truth[:, None] + shape(rng, len(truth), blocks)
        samples = to_samples(logs, blocked=blocked)
        pair = ratio_interval(samples[3], samples[4])
        assert pair.low is not None and pair.high is not None
        single += pair.low <= np.exp(truth[3] - truth[4]) <= pair.high
        compared = compare_all(samples, higher_is_better=True)
        best = int(compared.fit.centres.argmax())
        misses = compared.differences[:, best] - (truth - truth[best])
        halves = compared.half_widths
        every += bool(((misses <= halves[:, best]) & (-misses <= halves[best])).all())
    return single / studies, every / studies


def skewed(studies: int) -> None:
    """How often a workload's runs are called skewed; only *skewed* and *slow tenth* are."""
    sizes = ((8, 3), (8, 10), (24, 3), (24, 5), (24, 10))
    print(f"\nShare of {studies} studies that are called skewed (cells x blocks)\n")
    head("scatter", (f"{cells} x {blocks}" for cells, blocks in sizes))
    for name, shape in EVERY.items():
        rates = []
        for cells, blocks in sizes:
            rng = np.random.default_rng([*name.encode(), cells, blocks])
            told = (
                are_skewed(to_samples(shape(rng, cells, blocks), blocked=True))
                for _ in range(studies)
            )
            rates.append(sum(told) / studies)
        row(name, (f"{rate:.0%}" for rate in rates))


def main() -> None:
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    parts = sys.argv[2:] or ["coverage", "means", "skewed"]
    if "coverage" in parts:
        coverage(studies)
    if "means" in parts:
        means(studies * 2)
    if "skewed" in parts:
        skewed(studies)


if __name__ == "__main__":
    main()
