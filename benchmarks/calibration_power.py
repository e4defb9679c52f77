"""What the ranking finds, and which runs are labelled as outliers (docs/statistics.md).

    PYTHONPATH=src:tests python benchmarks/calibration_power.py [STUDIES [PART...]]

Parts: ``power`` against paired t tests corrected by Holm and against taking the best mean;
``tukey`` against Tukey's test in blocks; ``outliers`` runs that are labelled.
"""

import sys
from collections.abc import Callable, Iterable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import studentized_range, ttest_rel

from diskproof.stats.comparisons import compare_all
from diskproof.stats.outliers import find_outliers
from support.noise_shapes import SHAPES, Array, to_samples

CELLS = 24
OUTLIER_STUDIES = ((3, 5), (8, 3), (8, 5), (8, 10), (24, 3), (24, 5), (24, 10))


def head(first: str, columns: Iterable[str]) -> None:
    names = [first, *columns]
    print("| " + " | ".join(names) + " |", "|---" * len(names) + "|", sep="\n")


def row(name: str, cells: Iterable[str]) -> None:
    told = (each.replace("%", " %") for each in cells)
    print("| " + " | ".join([name, *told]) + " |", flush=True)


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
        compared = compare_all(to_samples(logs, blocked=True), higher_is_better=True)
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
                ours = compare_all(to_samples(logs, blocked=True), higher_is_better=True).proved[
                    0, 1:
                ]
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


@cache
def textbook_quantile(cells: int, freedom: int) -> float:
    return float(studentized_range.ppf(0.95, cells, freedom))


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
    parts = sys.argv[2:] or ["power", "tukey"]
    if "power" in parts:
        power(studies // 5)
    if "tukey" in parts:
        against_tukey(studies // 2)
    if "outliers" in parts:
        outliers(studies)


if __name__ == "__main__":
    main()
