"""Whether the ranking errs as seldom as it says, and what it finds (docs/statistics.md).

    PYTHONPATH=src:tests python benchmarks/calibration.py [STUDIES [PART...]]

Parts: ``errors`` false differences among equal cells (``errors8``, ``further8``, ``loose8``: a
third of them, of 8 cells), ``many`` those among 5, 40, 80 and 300; ``family``
those of a study of several workloads; ``coverage`` of the intervals of ratios, ``means`` of those
of means; ``power`` against paired t tests corrected by Holm and against taking the best mean;
``tukey`` against Tukey's test in blocks; ``choices`` what the model would claim if it were simpler;
``outliers`` runs that are labelled. Tables are printed as docs/statistics.md has them.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import studentized_range, ttest_rel

from diskproof.stats import scatter
from diskproof.stats.comparisons import ALPHA, compare_all
from diskproof.stats.intervals import Sample, geometric_interval, mean_interval, ratio_interval
from diskproof.stats.outliers import find_outliers
from support.noise_shapes import FURTHER, SHAPES, Array, Shape, to_samples

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


def lost_where_slow(rng: np.random.Generator, logs: Array) -> list[Sample]:
    """Blocks wander by 10 %; in the slowest third of them one run in three failed."""
    host = 0.1 * rng.standard_normal(logs.shape[1])
    chance = np.where(host <= np.quantile(host, 1 / 3), 1 / 3, 0.02)
    return to_samples(logs + host, rng.random(logs.shape) > chance, blocked=True)


DESIGNS: dict[str, tuple[Design, int]] = {
    "2 blocks": (complete, 2),
    "3 blocks": (complete, 3),
    "5 blocks": (complete, 5),
    "10 blocks": (complete, 10),
    "3, 1/6 fail": (failed_runs, 3),
    "5, 1/6 fail": (failed_runs, 5),
    "3, slow fail": (lost_where_slow, 3),
}
LOOSE: dict[str, tuple[Design, int]] = {
    "no blocks: 3": (unblocked, 3),
    "no blocks: 5": (unblocked, 5),
    "3 and 10": (three_and_all, 10),
}


def claims_any(samples: list[Sample]) -> bool:
    return bool(samples) and bool(compare_all(samples).proved.any())


EVERY = {**SHAPES, **FURTHER}
OF_SESSIONS = ("drifting", "step", "AR(1)", "warm-up")
"""They mean something in blocks only."""


def head(first: str, columns: Iterable[str]) -> None:
    names = [first, *columns]
    print("| " + " | ".join(names) + " |", "|---" * len(names) + "|", sep="\n")


def row(name: str, cells: Iterable[str]) -> None:
    print("| " + " | ".join([name, *cells]) + " |", flush=True)


def error_rate(shape: str, design: Design, blocks: int, cells: int, studies: int) -> float:
    rng = np.random.default_rng([*shape.encode(), *design.__name__.encode(), cells, blocks])
    wrong = 0
    for _ in range(studies):
        samples = [s for s in design(rng, EVERY[shape](rng, cells, blocks)) if s.values]
        wrong += claims_any(samples)
    return wrong / studies


def false_differences(
    studies: int,
    cells: int,
    shapes: Mapping[str, Shape],
    designs: Mapping[str, tuple[Design, int]] = DESIGNS,
) -> None:
    print(f"\nShare of {studies} studies of {cells} equal cells that claim any difference\n")
    head("scatter", designs)
    for shape in shapes:
        if designs is DESIGNS or shape not in OF_SESSIONS:
            rates = (error_rate(shape, *each, cells, studies) for each in designs.values())
            row(shape, (f"{rate:.1%}" for rate in rates))


def many_cells(studies: int) -> None:
    print(f"\nThe same of many cells in complete blocks ({studies} studies; 300 cells: a fifth)\n")
    sizes = [(cells, blocks) for cells in (5, 40, 80, 300) for blocks in (2, 3, 5)]
    head("scatter", (f"{cells} x {blocks}" for cells, blocks in sizes))
    for shape in ("equal", "few noisy", "heavy tails", *list(FURTHER)[:5]):
        rates = (
            error_rate(shape, complete, blocks, cells, studies if cells < 300 else studies // 5)
            for cells, blocks in sizes
        )
        row(shape, (f"{rate:.1%}" for rate in rates))


def family(studies: int) -> None:
    """Several workloads of 8 equal cells: each corrected by itself, and all together."""
    print(f"\nShare of {studies} studies with any false difference in any workload\n")
    head("workloads, blocks", ("each by itself", "all together"))
    for loads in (1, 4, 8):
        for blocks in (3, 5):
            rng = np.random.default_rng([loads, blocks])
            wrong = np.zeros(2)
            for _ in range(studies):
                told = [complete(rng, EVERY["spread"](rng, 8, blocks)) for _ in range(loads)]
                wrong += [
                    any(bool(compare_all(each, alpha).proved.any()) for each in told)
                    for alpha in (ALPHA, ALPHA / loads)
                ]
            row(f"{loads}, {blocks}", (f"{each:.1%}" for each in wrong / studies))


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
    print(
        f"{'scatter':14}{'blocks':>7}{'ahead':>7}"
        f"{'winner':>9}{'by Holm':>9}{'pairs':>8}{'by Holm':>9}{'best mean':>11}{'wrong':>7}"
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


def against_tukey(studies: int) -> None:
    """Equal scatter, one cell ahead of equal ones: where the textbook's test is at its best."""
    print(f"\nOne cell ahead of equal ones: share of its pairs proved, and of {studies} studies")
    print("that prove it ahead of all; beside it Tukey's test in blocks\n")
    head("cells, blocks, scatter, ahead", ("pairs", "Tukey", "ahead of all", "Tukey"))
    for cells, blocks in ((8, 2), (8, 3), (24, 3), (80, 3), (24, 5)):
        for sd, ahead in ((0.03, 1.2), (0.04, 1.2), (0.05, 1.2), (0.05, 1.3)):
            rng = np.random.default_rng([cells, blocks, int(1000 * sd), int(10 * ahead)])
            total = np.zeros(4)
            for _ in range(studies):
                logs = sd * rng.standard_normal((cells, blocks))
                logs[0] += np.log(ahead)
                ours = compare_all(complete(rng, logs)).proved[0, 1:]
                theirs = tukey_pairs(logs)[1:]
                total += (ours.mean(), theirs.mean(), ours.all(), theirs.all())
            told = f"{cells}, {blocks}, {sd:.0%}, {ahead}"
            row(told, (f"{each:.0%}" for each in total / studies))


def tukey_pairs(logs: Array) -> NDArray[np.bool_]:
    """Tukey's test of the textbook in complete blocks, of the first cell against all."""
    cells, blocks = logs.shape
    means = logs.mean(axis=1)
    inner = logs - means[:, None]
    freedom = (cells - 1) * (blocks - 1)
    error = np.sqrt(((inner - inner.mean(axis=0)) ** 2).sum() / freedom / blocks)
    apart: NDArray[np.bool_] = np.abs(means[0] - means) / error > textbook_quantile(cells, freedom)
    return apart


def choices(studies: int) -> None:
    """What the model's choices are worth: false differences without them."""
    print("Share of studies of equal cells that claim any difference, by other means")
    print("one pooled variance (Tukey), 24 cells in 5 blocks:")
    for name in ("equal", "few noisy", "spread"):
        rng = np.random.default_rng(5)
        wrong = sum(pooled_claims(SHAPES[name](rng, CELLS, 5)) for _ in range(studies))
        print(f"{name:14}{wrong / studies:14.1%}", flush=True)
    print("if all belief is in cells that scatter alike or by the usual law, none stands alone:")
    with_wild = scatter.ALONE
    for name, cells in (("wild x10", 24), ("few noisy", 24)):
        for alone in ((1e-9, 1e-9), with_wild):
            scatter.ALONE = alone
            rate = error_rate(name, complete, 3, cells, studies)
            print(f"{name:14} ALONE {alone}{rate:10.1%}", flush=True)
    scatter.ALONE = with_wild


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
    parts = sys.argv[2:] or ["errors", "many", "family", "coverage", "means", "power", "tukey"]
    for cells in (CELLS, 8, 3):
        if "errors" in parts or f"errors{cells}" in parts:
            false_differences(studies, cells, SHAPES)
        if "errors" in parts or f"further{cells}" in parts:
            false_differences(studies, cells, FURTHER)
        if "errors" in parts or f"loose{cells}" in parts:
            false_differences(studies, cells, EVERY, LOOSE)
    if "many" in parts:
        many_cells(studies)
    if "family" in parts:
        family(studies)
    if "coverage" in parts:
        coverage(studies)
    if "means" in parts:
        means(studies * 2)
    if "power" in parts:
        power(studies // 5)
    if "tukey" in parts:
        against_tukey(studies // 2)
    if "choices" in parts:
        choices(studies)
    if "outliers" in parts:
        outliers(studies)


if __name__ == "__main__":
    main()
