"""How often the capacity search is right, and in how many trials (docs/statistics.md).

    PYTHONPATH=src:tests python benchmarks/capacity.py [STUDIES]

Hosts are simulated: ``clear``, each number holds or misses by a factor of 1.65; ``knee``, free of
charge up to a number of tiles, then slower as their number to the power of 1, 1.5 or 3, so that
numbers may lie anywhere near the limit. ``spoilt``: one run in twenty fails or takes three times as
long. The limit is measured by three one-tile runs, which are not counted as trials. Exit 1 when
intervals hold the truth in less than 95 % of studies, or a search takes more trials than promised.
"""

import random
import sys

from diskproof.stats.capacity import trial_limit
from support.tile_hosts import Curve, carried, knee, search, step

RUNS = 3
MOST = (3, 8, 16, 64)
SCATTER = (0.05, 0.10, 0.15)


def draw(kind: str, most: int, rng: random.Random) -> Curve:
    if kind == "clear":
        return step(rng.randint(1, most))
    return knee(rng.uniform(1, 0.8 * most), rng.choice([1.0, 1.5, 3.0]))


def measure(kind: str, spoilt: float, most: int, cv: float, studies: int) -> tuple[str, bool]:
    """A line of the table, and whether it is as promised."""
    rng = random.Random(f"{kind} {spoilt} {most} {cv}")
    covered = decided = wrong = right = width = trials = longest = 0
    for _ in range(studies):
        curve = draw(kind, most, rng)
        found, made = search(curve, most, RUNS, cv, rng, spoilt)
        truth, count = carried(curve, most), sum(trial.tiles > 1 for trial in made)
        covered += found.low <= truth <= found.high
        decided += found.decided
        wrong += found.decided and found.tiles != truth
        right += found.tiles == truth
        width += found.high - found.low + 1
        trials, longest = trials + count, max(longest, count)
    line = (
        f"{kind + (', spoilt' if spoilt else ''):13} | {most:4} | {cv:4.0%} | "
        f"{trials / studies:4.1f}, {longest} of {trial_limit(most)} | {covered / studies:6.1%} | "
        f"{right / studies:6.1%} | {decided / studies:6.1%} | {wrong / max(1, decided):5.1%} | "
        f"{width / studies:4.1f}"
    )
    # Three standard errors below, so that chance alone does not fail it.
    allowed = 0.95 - 3 * (0.95 * 0.05 / studies) ** 0.5
    return line, covered / studies >= allowed and longest <= trial_limit(most)


def main() -> int:
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    kept = True
    print("host | most | scatter | trials | covered | right | decided | of these wrong | width")
    for kind, spoilt in (("clear", 0.0), ("clear", 0.05), ("knee", 0.0), ("knee", 0.05)):
        for most in MOST:
            for cv in SCATTER:
                line, good = measure(kind, spoilt, most, cv, studies)
                kept &= good
                print(line, flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
