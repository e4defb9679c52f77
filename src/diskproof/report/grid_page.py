"""The page's part on iozone's figures: a heat map for each test, tables for each cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from diskproof.report import charts
from diskproof.report.view import CellGrids, WorkloadView
from diskproof.store.grids import read_grids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diskproof.report.page import Figure
    from diskproof.store import ResultRow

MakeFigure = Callable[[charts.Spec, str, int], "Figure"]


def load_grids(load: WorkloadView, rows: Sequence[ResultRow]) -> tuple[CellGrids, ...]:
    """The grids of a workload's cells, the best first, from its rows on one host."""
    of_cell: dict[str, list[ResultRow]] = {}
    for row in rows:
        of_cell.setdefault(row.cell.id, []).append(row)
    found = (
        CellGrids(line.label, read_grids(of_cell.get(line.ranked.cell.id, ())))
        for line in load.lines
    )
    return tuple(cell for cell in found if cell.grids)


def grid_figures(cells: Sequence[CellGrids], figure: MakeFigure) -> list[Figure]:
    """One heat map for each test, of the cell that is chosen in it."""
    tests = dict.fromkeys(grid.test for cell in cells for grid in cell.grids)
    figures = []
    for test in tests:
        grids = [(cell.label, grid) for cell in cells for grid in cell.grids if grid.test == test]
        figures.append(figure(charts.grid_chart(grids), _caption(test, grids[0][0], cells), 2))
    return figures


def _caption(test: str, shown: str, cells: Sequence[CellGrids]) -> str:
    unit = cells[0].grids[0].unit
    text = f"{test}: {unit} by record size and file size, {shown}."
    if len(cells) > 1:
        text = f"{text} With scripts on, other cells can be chosen; the colours keep their scale."
    if len(cells) > charts.MAX_GRID_CELLS:
        text = f"{text} The best {charts.MAX_GRID_CELLS} of {len(cells)}; all are in the tables."
    return text
