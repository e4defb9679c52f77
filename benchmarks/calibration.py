"""Whether the ranking errs as seldom as it says, and what it finds (docs/statistics.md).

    PYTHONPATH=src:tests python benchmarks/calibration.py [STUDIES [PART...]]

Parts: ``errors`` false differences among equal cells; ``coverage`` of the intervals; ``power``
against paired t tests corrected by Holm and against taking the best mean; ``choices`` what the
model would claim if it were simpler; ``outliers`` runs that are labelled. 1000 studies take about
a quarter of an hour of one core, those of the outliers three times as long.
"""

import sys
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.stats import studentized_range, ttest_rel

from diskproof.stats import model
from diskproof.stats.comparisons import compare_all
from diskproof.stats.intervals import Sample, ratio_interval
from diskproof.stats.outliers import find_outliers
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


OUTLIER_STUDIES = ((3, 5), (8, 3), (8, 5), (8, 10), (24, 3), (24, 5), (24, 10))


def outliers(studies: int) -> None:
    """Labels where no run was made slow on purpose, and whether one that was is found."""
    print("Share of studies with a run labelled (bar: 5 %); slow tenth: one that was not slow")
    heads = [f"{cells} x {blocks}" for cells, blocks in OUTLIER_STUDIES]
    print(f"{'scatter':22}" + "".join(f"{head:>9}" for head in heads))
    for number, (name, shape) in enumerate(SHAPES.items()):
        rates = [false_labels(number, name, shape, *of, studies) for of in OUTLIER_STUDIES]
        print(f"{name:22}" + "".join(f"{rate:9.1%}" for rate in rates), flush=True)
    print("Share of studies that label one run which is slower by so much")
    for cv, slower in ((0.01, 1.6), (0.03, 1.6), (0.03, 1.3), (0.05, 1.6)):
        rates = [found_slow(cv, slower, *of, studies) for of in OUTLIER_STUDIES]
        name = f"{slower - 1:.0%} at CV {cv:.0%}"
        print(f"{name:22}" + "".join(f"{rate:9.1%}" for rate in rates), flush=True)


def false_labels(
    number: int,
    name: str,
    shape: Callable[[np.random.Generator, int, int], Array],
    cells: int,
    blocks: int,
    studies: int,
) -> float:
    wrong = 0
    for study in range(studies):
        logs = shape(np.random.default_rng([number, cells, blocks, study]), cells, blocks)
        found = find_outliers(to_samples(logs, blocked=True))
        true = name == "slow tenth"
        wrong += any(not (true and logs[each.cell, each.run] < -0.2) for each in found)
    return wrong / studies


def found_slow(cv: float, slower: float, cells: int, blocks: int, studies: int) -> float:
    hits = 0
    for study in range(studies):
        rng = np.random.default_rng([cells, blocks, study])
        logs = cv * rng.standard_normal((cells, blocks)) + np.linspace(0, 1, cells)[:, None]
        logs[cells // 2, 1] -= np.log(slower)
        found = find_outliers(to_samples(logs, blocked=True))
        hits += any((each.cell, each.run) == (cells // 2, 1) for each in found)
    return hits / studies


def main() -> None:
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    parts = sys.argv[2:] or ["errors", "coverage", "power", "choices", "outliers"]
    if "errors" in parts:
        for cells in (CELLS, 8, 3):
            false_differences(studies, cells)
    if "coverage" in parts:
        coverage(studies)
    if "power" in parts:
        power(studies // 5)
    if "choices" in parts:
        choices(studies)
    if "outliers" in parts:
        outliers(studies)


if __name__ == "__main__":
    main()
