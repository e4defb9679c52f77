"""What the factors of a study gain, computed from the results of its workloads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from diskproof.records import Cell, StudyRecord
from diskproof.report.labels import order_levels
from diskproof.stats.factor_analysis import FactorAnalysis, analyse_factors
from diskproof.stats.intervals import Sample
from diskproof.stats.study_race import fixed_blocks
from diskproof.store import ResultRow


@dataclass(frozen=True)
class WorkloadFactors:
    """One workload on one host by its primary metric. ``means`` are geometric, by cell; without
    two cells of different levels there is no ``analysis``. Of a race only its ``first_blocks`` are
    in it, those that every cell runs: who runs in the others is chosen by what was seen."""

    name: str
    metric: str
    unit: str
    higher_is_better: bool
    means: tuple[tuple[Cell, float], ...]
    analysis: FactorAnalysis | None
    first_blocks: int | None = None


def find_factors(
    study: StudyRecord, rows: Sequence[ResultRow], bases: Mapping[str, str] | None = None
) -> WorkloadFactors:
    """From the primary ``rows`` of one workload on one host; ``bases`` are the levels to compare
    with, by factor."""
    first, measured, fixed = rows[0], study.origin == "run", fixed_blocks(study)
    if fixed is not None:
        own = (row.only(lambda block, _: block < fixed) for row in rows)
        rows = [row for row in own if row.values]
    samples = [
        (row.cell.levels_dict(), Sample(row.values, row.blocks if measured else ())) for row in rows
    ]
    return WorkloadFactors(
        first.cell.workload.name,
        first.metric,
        first.unit,
        first.higher_is_better,
        tuple((row.cell, geometric_mean(row.values)) for row in rows if min(row.values) > 0),
        analyse_factors(samples, order_levels([row.cell for row in rows], bases)),
        fixed,
    )
