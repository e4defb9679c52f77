"""Whether the ranking errs as seldom as it says, and what it finds (docs/statistics.md).

    PYTHONPATH=src:tests python benchmarks/calibration.py [STUDIES [PART...]]

Parts: ``errors`` false differences among equal cells; ``coverage`` of the intervals; ``power``
against paired t tests corrected by Holm and against taking the best mean; ``choices`` what the
model would claim if it were simpler. 1000 studies take about a quarter of an hour of one core.
"""

import sys
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.stats import studentized_range, ttest_rel

from diskproof.stats import model
from diskproof.stats.comparisons import compare_all
from diskproof.stats.intervals import Sample, ratio_interval
from support.noise_shapes import SHAPES, Array, few_noisy, to_samples

CELLS = 24
Design = Callable[[np.random.Generator, Array], list[Sample]]


def complete(_rng: np.random.Generator, logs: Array) -> list[Sample]:
    return to_samples(logs, blocked=True)


def unblocked(_rng: np.random.Generator, logs: Array) -> list[Sample]:
    return to_samples(logs, blocked=False)


def failed_runs(rng: np.random.Generator, logs: Array) -> list[Sample]:
    """One run in six failed."""
    return to_samples(logs, rng.random(logs.shape) > 1 / 6, blocked=True)


def three_and_all(_rng: np.random.Generator, logs: Array) -> list[Sample]:
    """Every second cell has its first three runs only, and nothing is known of blocks."""
    present = np.ones(logs.shape, dtype=bool)
    present[::2, 3:] = False
    return to_samples(logs, present, blocked=False)


DESIGNS: dict[str, tuple[Design, int]] = {
    "2 blocks": (complete, 2),
    "3 blocks": (complete, 3),
    "5 blocks": (complete, 5),
    "10 blocks": (complete, 10),
    "5, 1/6 fail": (failed_runs, 5),
    "no blocks: 3": (unblocked, 3),
    "5": (unblocked, 5),
    "3 and 10": (three_and_all, 10),
}


def claims_any(samples: list[Sample]) -> bool:
    return bool(samples) and bool(compare_all(samples).proved.any())


def false_differences(studies: int, cells: int = CELLS) -> None:
    print(f"Share of studies of {cells} equal cells that claim any difference (bar: 5 %)")
    print(f"{'scatter':14}" + "".join(f"{name:>14}" for name in DESIGNS))
    for number, (name, shape) in enumerate(SHAPES.items()):
        line = f"{name:14}"
        for place, (design, blocks) in enumerate(DESIGNS.values()):
            rng = np.random.default_rng([number, place, cells])
            if name == "drifting" and design in (unblocked, three_and_all):
                line += f"{'-':>14}"
                continue
            wrong = 0
            for _ in range(studies):
                samples = [s for s in design(rng, shape(rng, cells, blocks)) if s.values]
                wrong += claims_any(samples)
            line += f"{wrong / studies:14.1%}"
        print(line, flush=True)


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
        compared = compare_all(samples)
        best = int(compared.fit.centres.argmax())
        misses = np.abs(compared.differences[:, best] - (truth - truth[best]))
        every += bool((misses <= compared.half_widths[:, best]).all())
    return single / studies, every / studies


def holm_pairs(logs: Array) -> np.ndarray:
    """The peer: paired t of all pairs, corrected by Holm; True where a pair differs."""
    rows, columns = np.triu_indices(len(logs), 1)
    p_values = ttest_rel(logs[rows], logs[columns], axis=1).pvalue
    order = np.argsort(p_values)
    falls = p_values[order] <= 0.05 / np.arange(len(order), 0, -1)
    differ = np.zeros((len(logs), len(logs)), dtype=bool)
    fallen = order[np.logical_and.accumulate(falls)]
    differ[rows[fallen], columns[fallen]] = True
    return differ | differ.T


def power(studies: int) -> None:
    """One winner, ten others close together: the share of studies that prove it the winner."""
    print("24 cells, one faster by the given factor than the next, the others within 20 %;")
    print("winner: proved better than every other; pairs: share of all pairs proved;")
    print("best mean: share of studies where the best mean is the winner's; wrong: another proved")
    head = f"{'scatter':14}{'blocks':>7}{'ahead':>7}"
    print(
        head + f"{'winner':>9}{'by Holm':>9}{'pairs':>8}{'by Holm':>9}{'best mean':>11}{'wrong':>7}"
    )
    for number, name in enumerate(("equal", "few noisy", "spread", "slow tenth", "drifting")):
        for blocks in (3, 5, 10):
            for ahead in (1.1, 1.3, 2.0):
                rng = np.random.default_rng([number, blocks, int(ahead * 10)])
                found = power_of(rng, name, blocks, ahead, studies)
                won, held, pairs, peers, best, wrong = found / studies
                print(
                    f"{name:14}{blocks:7}{ahead:7.1f}{won:9.1%}{held:9.1%}{pairs:8.1%}{peers:9.1%}"
                    f"{best:11.1%}{wrong:7.1%}",
                    flush=True,
                )


def power_of(rng: np.random.Generator, name: str, blocks: int, ahead: float, studies: int) -> Array:
    """Sums over studies. The winner is the last cell, a quiet one."""
    total = np.zeros(6)
    truth = np.append(np.linspace(-np.log(1.2), 0, CELLS - 1), np.log(ahead))
    for _ in range(studies):
        logs = truth[:, None] + SHAPES[name](rng, CELLS, blocks)
        compared = compare_all(to_samples(logs, blocked=True))
        better = compared.proved & (compared.differences > 0)
        peer = holm_pairs(logs)
        total += (
            better[-1].sum() == CELLS - 1,
            peer[-1].sum() == CELLS - 1 and logs.mean(axis=1).argmax() == CELLS - 1,
            better.sum() / (CELLS * (CELLS - 1) / 2),
            peer.sum() / (CELLS * (CELLS - 1)),
            np.exp(logs).mean(axis=1).argmax() == CELLS - 1,
            bool((better & (np.subtract.outer(truth, truth) < 0)).any()),
        )
    return total


def choices(studies: int) -> None:
    """What the model's choices are worth: false differences without them."""
    print("Share of studies of equal cells that claim any difference, by other means")
    print("one pooled variance (Tukey), 24 cells in 5 blocks:")
    for name in ("equal", "few noisy", "spread"):
        rng = np.random.default_rng(5)
        wrong = sum(pooled_claims(SHAPES[name](rng, CELLS, 5)) for _ in range(studies))
        print(f"{name:14}{wrong / studies:14.1%}", flush=True)
    print("without added caution, few noisy, 8 cells in 3 blocks:")
    cautious = model.CAUTIOUS_BELOW
    for below in (0, cautious):
        model.CAUTIOUS_BELOW = below
        rng = np.random.default_rng(8)
        wrong = sum(claims_any(complete(rng, few_noisy(rng, 8, 3))) for _ in range(studies))
        print(f"CAUTIOUS_BELOW {below:3}{wrong / studies:10.1%}", flush=True)


def pooled_claims(logs: Array) -> bool:
    """Tukey's test of the textbook in complete blocks."""
    cells, blocks = logs.shape
    centred = logs - logs.mean(axis=1)[:, None]
    residuals = centred - centred.mean(axis=0)
    freedom = (cells - 1) * (blocks - 1)
    error = np.sqrt((residuals**2).sum() / freedom / blocks)
    means = logs.mean(axis=1)
    return bool(np.ptp(means) / error > textbook_quantile(cells, freedom))


@cache
def textbook_quantile(cells: int, freedom: int) -> float:
    return float(studentized_range.ppf(0.95, cells, freedom))


def main() -> None:
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    parts = sys.argv[2:] or ["errors", "coverage", "power", "choices"]
    if "errors" in parts:
        for cells in (CELLS, 8, 3):
            false_differences(studies, cells)
    if "coverage" in parts:
        coverage(studies)
    if "power" in parts:
        power(studies // 5)
    if "choices" in parts:
        choices(studies)


if __name__ == "__main__":
    main()
