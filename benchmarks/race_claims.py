"""Claims after races of equal cells: by what is said now, and as if the runs were a fixed sample.

    PYTHONPATH=src:tests python benchmarks/race_claims.py [STUDIES]

12 cells of 2 x 2 x 3 levels, two races each time. *compare*: any cell of one race claimed to be
faster or slower than in the other; *within*: one level against another in one race; *together*: all
cells as one line; *effects* and *terms*: those of ``factors``. Bar: 5 % of studies each.
"""

import itertools
import random
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from diskproof.stats.factor_analysis import analyse_factors
from diskproof.stats.intervals import Sample
from diskproof.stats.speed_verdict import judge, overall_samples
from diskproof.study.protocol import LikelyRules, RaceRules
from racing import Study, Truth, normal, run_race, to_samples

FACTORS = {
    "format": ("raw", "qcow2"),
    "cache": ("none", "writeback"),
    "aio": ("threads", "native", "io_uring"),
}
LEVELS = [dict(zip(FACTORS, each, strict=True)) for each in itertools.product(*FACTORS.values())]
HALF = len(LEVELS) // 2
MOST_BLOCKS = 20
Pairs = Sequence[tuple[Sample, Sample]]


def first_blocks(samples: Sequence[Sample], blocks: int) -> list[Sample]:
    counts = [sum(block < blocks for block in each.blocks) for each in samples]
    return [
        Sample(each.values[:count], each.blocks[:count])
        for each, count in zip(samples, counts, strict=True)
    ]


def claims(pairs: Pairs) -> bool:
    verdicts = judge(pairs, [True] * len(pairs))
    return any(each.outcome in ("faster", "slower") for each in verdicts)


def of_two_studies(a: Sequence[Sample], b: Sequence[Sample]) -> Pairs:
    """Their blocks have nothing in common."""
    moved = (replace(each, blocks=tuple(block + 1000 for block in each.blocks)) for each in b)
    return list(zip(a, moved, strict=True))


def claims_of(one: list[Truth], other: list[Truth], looked: bool, fixed: int) -> dict[str, bool]:
    """What is claimed of two races: as it is now where ``looked``, else as of fixed samples."""
    a, b = to_samples(one, looked), to_samples(other, looked)
    first = fixed if looked else MOST_BLOCKS
    cut_a, cut_b = first_blocks(a, first), first_blocks(b, first)
    together = overall_samples(of_two_studies(cut_a, cut_b))
    found = analyse_factors(list(zip(LEVELS, cut_a, strict=True)), FACTORS)
    assert found is not None
    return {
        "compare": claims(of_two_studies(a, b)),
        "within": claims(list(zip(a[:HALF], a[HALF:], strict=True))),
        "together": together is not None and claims([together]),
        "effects": any((each.p_corrected or 1) <= 0.05 for each in found.effects),
        "terms": any((each.p_value or 1) <= 0.05 for each in found.terms),
    }


def main() -> None:
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    names = ("compare", "within", "together", "effects", "terms")
    print(f"{studies} times two races of 12 equal cells: share with a false claim\n")
    print("| race, scatter, runs taken for | " + " | ".join(names) + " |")
    print("|---" * (1 + len(names)) + "|")
    for cv, kind in itertools.product((0.03, 0.08), (RaceRules, LikelyRules)):
        rules = kind(max_blocks=MOST_BLOCKS)
        counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
        study = Study([0.0] * len(LEVELS), normal(cv), levels=LEVELS)
        for turn in range(studies):
            rng = random.Random(f"{cv} {kind.__name__} {turn}")
            races = [run_race(study, rules, rng)[0] for _ in range(2)]
            for looked, count in counts.items():
                count.update(claims_of(*races, looked, rules.min_blocks))
        for looked, count in counts.items():
            stop = "likely" if rules.likely else "decided"
            told = f"{stop}, {cv:.0%}, {'what they are' if looked else 'a fixed sample'}"
            print(f"| {told} | " + " | ".join(f"{count[n] / studies:.1%}" for n in names) + " |")


if __name__ == "__main__":
    main()
