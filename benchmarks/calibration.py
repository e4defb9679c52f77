"""Whether the ranking errs as seldom as it says (docs/statistics.md).

    PYTHONPATH=src:tests python benchmarks/calibration.py [STUDIES [PART...]] [--seed NUMBER]

Another seed draws other studies for ``rivals`` and ``worst``, by which the ranking's constants were
chosen. Parts: ``errors`` false differences among equal cells (``errors8``, ``loose8``: of 8 cells,
in blocks and without), ``many`` those among 5, 40, 80 and 300; ``family`` those of a study of
several workloads; ``rivals`` those where two cells are the best; ``worst`` where most errors were
found, for which many studies are worth their time; ``choices`` what the model would claim if it
were simpler. What it finds: calibration_power.py; what can be found at all:
calibration_frontier.py; whether intervals hold: calibration_intervals.py. Tables are printed as
docs/statistics.md has them.
"""

import argparse
from collections.abc import Callable, Mapping

import numpy as np

from calibration_power import head, row, textbook_quantile
from diskproof.stats import scatter
from diskproof.stats.comparisons import ALPHA, compare_all
from diskproof.stats.intervals import Sample
from support.noise_shapes import FURTHER, SHAPES, Array, Shape, to_samples

CELLS = 24
FURTHER_SEED: list[int] = []
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
    return bool(samples) and bool(compare_all(samples, higher_is_better=True).proved.any())


EVERY = {**SHAPES, **FURTHER}
OF_SESSIONS = ("drifting", "step", "AR(1)", "warm-up")
"""They mean something in blocks only."""


def error_rate(shape: str, design: Design, blocks: int, cells: int, studies: int) -> float:
    own = [*shape.encode(), *design.__name__.encode(), cells, blocks]
    rng = np.random.default_rng(own + FURTHER_SEED)
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
                    any(bool(compare_all(each, alpha, True).proved.any()) for each in told)
                    for alpha in (ALPHA, ALPHA / loads)
                ]
            row(f"{loads}, {blocks}", (f"{each:.1%}" for each in wrong / studies))


def rivals(studies: int) -> None:
    """Two equally good cells far ahead of equal ones: the worst case for who is the best. The wild
    cell is one of the two."""
    print(f"\nShare of {studies} studies of two best cells, others equal, with any false claim\n")
    sizes = [(cells, blocks) for cells in (8, 24) for blocks in (3, 5)]
    head("scatter", (f"{cells} x {blocks}" for cells, blocks in sizes))
    for shape in ("equal", "few noisy", "spread", *list(FURTHER)[:5]):
        told = []
        for cells, blocks in sizes:
            rng = np.random.default_rng([*shape.encode(), cells, blocks, *FURTHER_SEED])
            ahead = np.where(np.arange(cells) < 2, 2.0, 0.0)[:, None]
            wrong = 0
            for _ in range(studies):
                logs = EVERY[shape](rng, cells, blocks) + ahead
                found = compare_all(to_samples(logs, blocked=True), higher_is_better=True)
                wrong += bool(found.proved[0, 1] or found.proved[2:, 2:].any())
            told.append(wrong / studies)
        row(shape, (f"{each:.1%}" for each in told))


def worst(studies: int) -> None:
    """Where one cell scatters more than it showed, or several do."""
    print(f"\nShare of {studies} studies that claim any difference\n")
    sizes = ((24, 3), (24, 5), (40, 3), (80, 2), (80, 3), (80, 5))
    head("scatter", (f"{cells} x {blocks}" for cells, blocks in sizes))
    for shape in ("equal", "few noisy", "spread", "wild x3", "wild x5", "wild x10", "1 to 20 %"):
        rates = (error_rate(shape, complete, *reversed(size), studies) for size in sizes)
        row(shape, (f"{rate:.1%}" for rate in rates))


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("studies", type=int, nargs="?", default=1000)
    parser.add_argument("parts", nargs="*", default=["errors", "many", "family", "rivals", "worst"])
    parser.add_argument("--seed", type=int, nargs=1, default=[])
    given = parser.parse_args()
    studies, parts = given.studies, given.parts
    FURTHER_SEED.extend(given.seed)
    for cells in (CELLS, 8, 3):
        if "errors" in parts or f"errors{cells}" in parts:
            false_differences(studies, cells, EVERY)
        if "errors" in parts or f"loose{cells}" in parts:
            false_differences(studies, cells, EVERY, LOOSE)
    if "many" in parts:
        many_cells(studies)
    if "family" in parts:
        family(studies)
    if "rivals" in parts:
        rivals(studies)
    if "worst" in parts:
        worst(studies)
    if "choices" in parts:
        choices(studies)


if __name__ == "__main__":
    main()
