"""What a race will cost beside measuring everything, by races that are simulated."""

import math
import random
from functools import cache

from diskproof.stats.race_course import Race
from diskproof.study.protocol import EXHAUSTIVE, RaceRules

APART = 0.2
"""Standard deviation of the cells' speeds where they are far apart, on the log scale."""

MOST_CELLS = 60
"""More cells cost the same share."""

_STUDIES = 3


@cache
def expect_share(rules: RaceRules, cells: int, scatter: float, apart: float) -> float:
    """Runs of a race over those of EXHAUSTIVE complete blocks: ``cells`` that scatter alike and
    whose speeds differ by ``apart`` (a standard deviation; 0: all equal). A mean of few races with
    fixed seeds, for races of one kind differ less than their truths do."""
    count = min(cells, MOST_CELLS)
    runs = 0
    for seed in range(_STUDIES):
        rng = random.Random(f"{seed} {count}")
        truth = [rng.gauss(0.0, apart) for _ in range(count)]
        race = Race(count, rules)
        while race.racing:
            row = [math.nan] * count
            for cell in race.racing:
                row[cell] = truth[cell] + rng.gauss(0.0, scatter)
            race.add_block(row)
        runs += race.runs
    return runs / (_STUDIES * EXHAUSTIVE * count)
