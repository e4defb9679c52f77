"""How often the capacity search is right, and in how many trials (docs/statistics.md).

    PYTHONPATH=src:tests python benchmarks/capacity.py [STUDIES]

Hosts are simulated: ``clear``, each number holds or misses by a factor of 1.65; ``knee``, free of
charge up to a number of tiles, then slower as their number to the power of 1, 1.5 or 3, so that
numbers may lie anywhere near the limit. ``spoilt``: one run in twenty fails or takes three times as
long. The limit is measured by three one-tile runs, which are not counted as trials. ``crowd``:
slower as their number, so that several lie near the limit, on hosts that scatter by 30 %, have two
states, lose runs, drift or wander. Exit 1 when intervals hold the truth in less than 95 % of
studies (94 % of a crowd), or a search takes more trials than promised.
"""

import random
import sys

from diskproof.stats.capacity import Capacity, Trial, trial_limit
from support.tile_hosts import RESTLESS, Curve, carried, knee, search, search_restless, step

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
    tally = Tally(most)
    for _ in range(studies):
        curve = draw(kind, most, rng)
        tally.add(curve, *search(curve, most, RUNS, cv, rng, spoilt))
    return tally.line(kind + (", spoilt" if spoilt else ""), f"{cv:4.0%}"), tally.kept(0.95)


def measure_crowd(host: str, most: int, studies: int) -> tuple[str, bool]:
    """The same of a restless host, each number slower than the one before it."""
    rng = random.Random(f"crowd {host} {most}")
    tally = Tally(most)
    for _ in range(studies):
        curve = knee(rng.uniform(1, 0.45 * most), 1.0)
        tally.add(curve, *search_restless(curve, most, RUNS, RESTLESS[host](rng)))
    return tally.line(f"crowd, {host}", "   -"), tally.kept(0.94)


class Tally:
    """Sums over searches up to ``most`` tiles."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.studies = self.covered = self.decided = self.wrong = self.right = 0
        self.width = self.trials = self.longest = 0

    def add(self, curve: Curve, found: Capacity, made: list[Trial]) -> None:
        truth, count = carried(curve, self.most), sum(trial.tiles > 1 for trial in made)
        self.studies += 1
        self.covered += found.low <= truth <= found.high
        self.decided += found.decided
        self.wrong += found.decided and found.tiles != truth
        self.right += found.tiles == truth
        self.width += found.high - found.low + 1
        self.trials, self.longest = self.trials + count, max(self.longest, count)

    def line(self, name: str, scatter: str) -> str:
        shares = (self.covered, self.right, self.decided, self.wrong)
        covered, right, decided, wrong = (f"{each / self.studies:6.1%}" for each in shares)
        return (
            f"{name:17} | {self.most:4} | {scatter} | {self.trials / self.studies:4.1f}, "
            f"{self.longest} of {trial_limit(self.most)} | {covered} | {right} | {decided} | "
            f"{wrong} | {self.wrong / max(1, self.decided):5.1%} | {self.width / self.studies:4.1f}"
        )

    def kept(self, least: float) -> bool:
        """Three standard errors below, so that chance alone does not fail it."""
        allowed = least - 3 * (least * (1 - least) / self.studies) ** 0.5
        kept = self.covered / self.studies >= allowed and self.wrong <= 0.05 * self.studies
        return kept and self.longest <= trial_limit(self.most)


def main() -> int:
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    kept = True
    print("host | most | scatter | trials | covered | right | decided | wrong | of these | width")
    for kind, spoilt in (("clear", 0.0), ("clear", 0.05), ("knee", 0.0), ("knee", 0.05)):
        for most in MOST:
            for cv in SCATTER:
                line, good = measure(kind, spoilt, most, cv, studies)
                kept &= good
                print(line, flush=True)
    for host in RESTLESS:
        for most in MOST[1:]:
            line, good = measure_crowd(host, most, studies)
            kept &= good
            print(line, flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
