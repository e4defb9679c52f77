"""What the factors of a study gain, computed from the results of its workloads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from diskproof.errors import DiskproofError
from diskproof.records import Cell, StudyRecord
from diskproof.report.labels import varying_factors
from diskproof.stats.factor_analysis import FactorAnalysis, analyse_factors
from diskproof.stats.intervals import Sample
from diskproof.store import ResultRow
from diskproof.study.factors import FACTOR_BY_NAME
from diskproof.units import parse_bytes


@dataclass(frozen=True)
class WorkloadFactors:
    """One workload on one host by its primary metric. ``means`` are geometric, by cell; without
    two cells of different levels there is no ``analysis``."""

    name: str
    metric: str
    unit: str
    higher_is_better: bool
    means: tuple[tuple[Cell, float], ...]
    analysis: FactorAnalysis | None


def find_factors(
    study: StudyRecord, rows: Sequence[ResultRow], bases: Mapping[str, str] | None = None
) -> WorkloadFactors:
    """From the primary ``rows`` of one workload on one host; ``bases`` are the levels to compare
    with, by factor."""
    first, measured = rows[0], study.origin == "run"
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
    )


def order_levels(
    cells: Sequence[Cell], bases: Mapping[str, str] | None = None
) -> dict[str, tuple[str, ...]]:
    """Varying factors with their levels, the base level first: what ``bases`` says, else the
    first one as ``factors.FACTORS`` lists them, the smallest size or count, or the first seen."""
    ordered = {}
    for name in varying_factors(cells):
        seen = list(dict.fromkeys(cell.level(name) for cell in cells if cell.level(name)))
        levels = sorted(seen, key=lambda level: _level_place(name, level, seen))
        base = (bases or {}).get(name)
        if base in levels:
            levels = [base, *(level for level in levels if level != base)]
        ordered[name] = tuple(levels)
    return ordered


def _level_place(factor: str, level: str, seen: Sequence[str]) -> tuple[int, float]:
    known = FACTOR_BY_NAME.get(factor)
    if known is not None and level in known.levels:
        return 0, known.levels.index(level)
    if known is not None and known.kind in ("bytes", "count"):
        try:
            return 0, float(parse_bytes(level))
        except (DiskproofError, ValueError):
            pass
    return 1, seen.index(level)
