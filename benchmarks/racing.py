"""Races against exhaustive studies: share of the runs, share of right answers.

    python benchmarks/racing.py [--studies N] [--seed S] [--cells 24 96 288] [--likely]
                                [--truths | --assumptions]

Exhaustive is every cell in ten complete blocks, the best mean wins. An answer is right when the
true speed of the cell named is within delta (2 %) of the true best. Races use the rules a study
gets by default. All cases take turns, one study each, with new truths and new noise every time;
the exhaustive study of a turn has the same truth.

``settled`` counts races that ended decided (with ``--likely``, stop = "likely": likely enough),
``but wrong`` those of them with a wrong answer, ``false out`` races that told some cell to be
surely worse than one that it is not, ``false rank`` those after which a ranking says so, ``says``
is the mean probability that the race itself gives for its answer, ``dearest`` the largest share.

Bar: right in at least 95 %, with at most 34 % of the runs at CV 3 % and 50 % at CV 8 % (stretch 25
and 40 %); with ``--likely`` 25 and 45 % where speeds are additive in factors with interactions of
10 %, and never more than 110 %. ``--truths`` are easy and hard ones, ``--assumptions`` shows what
happens when the noise is not what the method assumes.
"""

import argparse
import itertools
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from diskproof.stats.comparisons import compare_all
from diskproof.stats.intervals import Sample
from diskproof.stats.race_course import Race
from diskproof.study.protocol import EXHAUSTIVE as EXHAUSTIVE_BLOCKS
from diskproof.study.protocol import LikelyRules, RaceRules
from support.simulate import EFFECTS

WALK = 0.05
"""Standard deviation of the host's speed after as many runs as an exhaustive study has."""
SAMPLE = Path(__file__).parent.parent / "tests" / "golden" / "kvm-perf-sample.txt"

SMALL = {
    "format": ("raw", "qcow2"),
    "cache": ("none", "writeback", "unsafe", "directsync"),
    "aio": ("threads", "native", "io_uring"),
}
MEDIUM = SMALL | {"bus": ("virtio", "ide"), "preallocation": ("off", "full")}
LARGE = MEDIUM | {"bus": ("virtio", "ide", "ahci"), "discard": ("ignore", "unmap")}
FACTORS: Mapping[int, Mapping[str, Sequence[str]]] = {24: SMALL, 96: MEDIUM, 288: LARGE}

Truth = list[float]
"""True speeds on the log scale, by cell."""
Noise = Callable[[random.Random, int], float]
"""Draws the error of one run of a cell, on the log scale."""


@dataclass(frozen=True)
class Study:
    """One simulated study. ``walk``: how far the host's speed wanders."""

    truth: Truth
    noise: Noise
    walk: float = 0.0
    levels: Sequence[Mapping[str, str]] = ()


@dataclass
class Tally:
    """What came of one case."""

    shares: list[float] = field(default_factory=list)
    right: list[bool] = field(default_factory=list)
    settled: list[bool] = field(default_factory=list)
    false_out: list[bool] = field(default_factory=list)
    false_rank: list[bool] = field(default_factory=list)
    sure: list[float] = field(default_factory=list)
    exhaustive: list[bool] = field(default_factory=list)


def factorial(rng: random.Random, cells: int) -> Truth:
    """The effects of ``simulate.EFFECTS``, two-way interactions of 5 %, 2 % of each cell's own."""
    pairs: dict[tuple[str, ...], float] = {}
    truth = []
    for levels in levels_of(cells):
        named = tuple(levels.items())
        speed = math.fsum(math.log(EFFECTS.get(level, 1.0)) for level in named)
        for one, other in itertools.combinations(named, 2):
            speed += pairs.setdefault((*one, *other), rng.gauss(0, 0.05))
        truth.append(speed + rng.gauss(0, 0.02))
    return truth


def additive(rng: random.Random, cells: int) -> Truth:
    """Levels 20 % apart, two-way interactions of 10 %, and nothing else."""
    effects: dict[tuple[str, ...], float] = {}
    truth = []
    for levels in levels_of(cells):
        named = tuple(levels.items())
        speed = math.fsum(effects.setdefault(level, rng.gauss(0, 0.2)) for level in named)
        for one, other in itertools.combinations(named, 2):
            speed += effects.setdefault((*one, *other), rng.gauss(0, 0.1))
        truth.append(speed)
    return truth


def uniform(rng: random.Random, cells: int) -> Truth:
    """All within 50 %, evenly."""
    return [math.log(rng.uniform(0.5, 1.0)) for _ in range(cells)]


def clustered(rng: random.Random, cells: int) -> Truth:
    """Three clusters 20 % apart, 1 % wide: a third of the cells are about the best."""
    return [rng.choice((0.0, -0.2, -0.4)) + rng.gauss(0, 0.01) for _ in range(cells)]


def equal(rng: random.Random, cells: int) -> Truth:
    return [0.0] * cells


def levels_of(cells: int) -> list[dict[str, str]]:
    factors = FACTORS[cells]
    return [dict(zip(factors, each, strict=True)) for each in itertools.product(*factors.values())]


def unstructured(rng: random.Random, cells: int) -> Truth:
    """Cells that have nothing in common: 20 % apart."""
    return [rng.gauss(0, 0.2) for _ in range(cells)]


TRUTHS = {
    "additive, 10 % interactions": additive,
    "cells 20 % apart": unstructured,
    "uniform within 50 %": uniform,
    "clustered": clustered,
    "all equal": equal,
}


def normal(cv: float) -> Noise:
    sigma = math.sqrt(math.log1p(cv * cv))
    return lambda rng, cell: rng.gauss(0, sigma)


def run_race(study: Study, rules: RaceRules, rng: random.Random) -> tuple[list[Truth], Race]:
    """Race through simulated runs in randomised blocks; the runs by block, and the race."""
    race = Race(len(study.truth), rules, study.levels)
    rows: list[Truth] = []
    step = study.walk / math.sqrt(EXHAUSTIVE_BLOCKS * len(study.truth))
    host = 0.0
    while race.racing:
        row = [math.nan] * len(study.truth)
        for cell in rng.sample(race.racing, len(race.racing)):
            host += rng.gauss(0, step) if step else 0.0
            row[cell] = study.truth[cell] + host + study.noise(rng, cell)
        race.add_block(row)
        rows.append(row)
    return rows, race


def to_samples(rows: Sequence[Truth], looked: bool) -> list[Sample]:
    """The runs of each cell of a race."""
    columns = [[(block, v) for block, v in enumerate(c) if v == v] for c in zip(*rows, strict=True)]
    return [
        Sample(tuple(math.exp(v) for _, v in each), tuple(block for block, _ in each), looked)
        for each in columns
    ]


def ranks_wrongly(rows: Sequence[Truth], truth: Truth) -> bool:
    """Whether the ranking after a race tells a cell to be faster than one that is not slower."""
    compared = compare_all(to_samples(rows, looked=True), higher_is_better=True)
    faster = compared.proved & (compared.differences > 0)
    return bool((faster & (np.subtract.outer(truth, truth) <= 0)).any())


def exhaustive_winner(study: Study, rng: random.Random) -> int:
    cells = range(len(study.truth))
    step = study.walk / math.sqrt(EXHAUSTIVE_BLOCKS * len(study.truth))
    sums, host = [0.0] * len(study.truth), 0.0
    for _ in range(EXHAUSTIVE_BLOCKS):
        for cell in rng.sample(cells, len(cells)):
            host += rng.gauss(0, step) if step else 0.0
            sums[cell] += study.truth[cell] + host + study.noise(rng, cell)
    return max(cells, key=lambda cell: sums[cell])


def take_turn(study: Study, rules: RaceRules, rng: random.Random, tally: Tally) -> None:
    rows, race = run_race(study, rules, rng)
    tally.false_rank.append(ranks_wrongly(rows, study.truth))
    good_enough = max(study.truth) - rules.margin
    course = race.course()
    verdict = course.verdicts[-1]
    truth = study.truth
    tally.false_out.append(any(truth[d.cell] >= truth[d.rival] for d in course.drops))
    tally.shares.append(race.runs / (EXHAUSTIVE_BLOCKS * len(study.truth)))
    tally.right.append(study.truth[verdict.leaders[0]] >= good_enough)
    tally.settled.append(verdict.settled)
    tally.sure.append(verdict.probability)
    tally.exhaustive.append(study.truth[exhaustive_winner(study, rng)] >= good_enough)


Case = Callable[[random.Random], Study]


def simulated_cases(sizes: Sequence[int]) -> dict[str, Case]:
    found: dict[str, Case] = {}
    structures = (("factorial", factorial), ("unstructured", unstructured))
    for cells, (name, structure), cv, walk in itertools.product(
        sizes, structures, (0.03, 0.08), (0.0, WALK)
    ):
        drift = "drift" if walk else "     "
        label = f"{cells:4} cells  {name:12}  CV {cv:3.0%}  {drift}"
        found[label] = lambda rng, n=cells, make=structure, cv=cv, walk=walk: Study(  # type: ignore[misc]
            make(rng, n), normal(cv), walk, levels_of(n)
        )
    return found


def truth_cases(sizes: Sequence[int]) -> dict[str, Case]:
    """Easy and hard truths."""
    found: dict[str, Case] = {}
    for cells, (name, truth), cv in itertools.product(sizes, TRUTHS.items(), (0.03, 0.08)):
        label = f"{cells:4} cells  {name:27}  CV {cv:3.0%}"
        found[label] = lambda rng, n=cells, make=truth, cv=cv: Study(  # type: ignore[misc]
            make(rng, n), normal(cv), levels=levels_of(n)
        )
    return found


def imported_cases() -> dict[str, Case]:
    """The published times, drawn with replacement from each cell's own; the truth is the mean of
    what is drawn from. Shorter is better."""
    found: dict[str, Case] = {}
    for name in ("reads", "writes"):
        cells = [
            [-math.log(float(value)) for value in line.split("[")[1].rstrip("] ").split(",")]
            for line in SAMPLE.read_text().splitlines()
            if line.startswith(f"{name}:")
        ]
        truth = [statistics.fmean(values) for values in cells]
        drawn = [[value - mean for value in v] for v, mean in zip(cells, truth, strict=True)]

        def study(rng: random.Random, truth: Truth = truth, drawn: list[Truth] = drawn) -> Study:
            return Study(truth, lambda rng, cell: rng.choice(drawn[cell]))

        found[f"{len(cells):4} cells  kvm-perf {name}"] = study
    return found


def assumption_cases() -> dict[str, Case]:
    """Where the noise, or the truth, is not what the method or its user would like."""

    def study(truth: Truth, noise: Noise) -> Case:
        return lambda rng: Study(truth, noise, levels=levels_of(24))

    ahead = [0.0] * 23 + [0.04]
    spread = [0.01 if cell % 3 else 0.15 for cell in range(24)]

    def uneven(rng: random.Random, cell: int) -> float:
        return rng.gauss(0, spread[cell])

    def noisy_best(rng: random.Random, cell: int) -> float:
        return rng.gauss(0, 0.15 if cell == 23 else 0.02)

    def two_humps(rng: random.Random, cell: int) -> float:
        return rng.gauss(0, 0.03) - (0.2 if rng.random() < 0.5 else 0.0)

    def stalls(rng: random.Random, cell: int) -> float:
        return rng.gauss(0, 0.03) - (0.5 if rng.random() < 0.1 else 0.0)

    return {
        "24 equal cells, CV 3 %": study([0.0] * 24, normal(0.03)),
        "one is 4 % ahead of 23 equal, CV 3 %": study(ahead, normal(0.03)),
        "one is 4 % ahead of 23 equal, CV 8 %": study(ahead, normal(0.08)),
        "one ahead, every third scatters by 15 %, others by 1 %": study(ahead, uneven),
        "the one ahead scatters by 15 %, the others by 2 %": study(ahead, noisy_best),
        "one ahead, half the runs 18 % slower at random": study(ahead, two_humps),
        "one ahead, a tenth of the runs 40 % slower": study(ahead, stalls),
        "one ahead, CV 3 %, host wanders by 20 %": lambda rng: Study(
            ahead, normal(0.03), 0.2, levels_of(24)
        ),
    }


def print_table(tallies: Mapping[str, Tally], turns: int) -> None:
    width = max(map(len, tallies))
    head = "  runs dearest   right settled but wrong false out false rank   says"
    head = f"{head} | exhaustive right"
    print(f"{'':{width}}  {head}")
    for label, tally in tallies.items():
        wrong = [s and not r for s, r in zip(tally.settled, tally.right, strict=True)]
        print(
            f"{label:{width}}  {_percent(tally.shares):>6} {max(tally.shares):>7.0%}"
            f" {_percent(tally.right):>7} {_percent(tally.settled):>7} {_percent(wrong):>9}"
            f" {_percent(tally.false_out):>9} {_percent(tally.false_rank):>10}"
            f" {_percent(tally.sure):>6} | {_percent(tally.exhaustive)}"
        )
    print(f"{turns} studies a case")


def _percent(values: Sequence[float]) -> str:
    return f"{100 * statistics.fmean(values):.1f}%"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--studies", type=int, default=20, help="studies a case")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cells", type=int, nargs="+", default=[24, 96, 288], choices=FACTORS)
    parser.add_argument("--max-blocks", type=int, default=RaceRules().max_blocks)
    parser.add_argument("--min-blocks", type=int, default=None)
    parser.add_argument("--likely", action="store_true", help='stop = "likely"')
    parser.add_argument("--truths", action="store_true", help="easy and hard truths")
    parser.add_argument("--assumptions", action="store_true", help="noise that breaks them")
    asked = parser.parse_args()
    cases = assumption_cases() if asked.assumptions else None
    cases = cases or (truth_cases(asked.cells) if asked.truths else None)
    cases = cases or simulated_cases(asked.cells) | imported_cases()
    tallies = {label: Tally() for label in cases}
    kind = LikelyRules if asked.likely else RaceRules
    rules = kind(min_blocks=asked.min_blocks or kind().min_blocks, max_blocks=asked.max_blocks)
    began = time.monotonic()
    for turn in range(asked.studies):
        for label, case in cases.items():
            rng = random.Random(f"{asked.seed} {turn} {label}")
            take_turn(case(rng), rules, rng, tallies[label])
    print_table(tallies, asked.studies)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
