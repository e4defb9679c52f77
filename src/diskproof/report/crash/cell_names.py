"""What crash cells are called in tables."""

from collections.abc import Sequence

from diskproof.records import Cell
from diskproof.records.verdicts import VerdictRow
from diskproof.report.labels import cell_label, varying_factors
from diskproof.study.crash import BESIDE

ONE_CELL = ("frontend", "on")
"""What a crash cell is called by that nothing tells from others."""


def crash_labels(rows: Sequence[VerdictRow]) -> list[str]:
    """The cells of verdicts by what tells them apart; where nothing does, by their frontend."""
    factors = telling_factors([row.cell for row in rows])
    return [cell_label(row.cell, factors) for row in rows]


def telling_factors(cells: Sequence[Cell]) -> tuple[str, ...]:
    """What crash cells are called by: what tells them apart, and which are a second run."""
    varying = tuple(name for name in varying_factors(cells) if name != BESIDE)
    return (*(varying or ONE_CELL), BESIDE)
