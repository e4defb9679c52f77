"""What the races of a study are decided by, out of its store."""

import math

from diskproof.stats.study_race import run_score
from diskproof.store.database import Store


def race_scores(store: Store, study_id: str) -> dict[tuple[int, str], float]:
    """(block, cell id) -> score of every counted run; nan for one that failed."""
    scores = dict.fromkeys(store.finished_runs(study_id), math.nan)
    for row in store.results(study_id):
        for block, value in zip(row.blocks, row.values, strict=True) if row.primary else ():
            scores[block, row.cell.id] = run_score(value, row.higher_is_better)
    return scores
