"""Figures that come by the hundred, as small tables: iozone's sizes, the parts of a thin disk."""

import math
from collections.abc import Mapping, Sequence

from diskproof.report import layout
from diskproof.report.labels import cell_label, render_figure
from diskproof.report.protocols.find import CellCurves
from diskproof.report.protocols.page import chosen_percents, curve_rows
from diskproof.store import ResultRow
from diskproof.store.curves import find_ratio, is_curve_metric, read_curves
from diskproof.store.grids import Grid, is_grid_metric, read_grids

FEW_PARTS = 6
"""Parts of a disk that 80 columns have room for."""


def is_part(row: ResultRow) -> bool:
    """Whether a result is one of many that only together say something."""
    return is_grid_metric(row) or is_curve_metric(row)


def part_tables(
    rows: Sequence[ResultRow], factors: Sequence[str], hosts: Mapping[str, str]
) -> list[layout.Shown]:
    """The tables of a study's parts, those of a workload together; none without parts. ``hosts``
    are their numbers by id, named where there are several."""
    of_load: dict[str, dict[tuple[str, str], list[ResultRow]]] = {}
    for row in rows:
        cells = of_load.setdefault(row.cell.workload.name, {})
        cells.setdefault((row.cell.id, row.host_id), []).append(row)
    found = []
    for name, cells in of_load.items():
        named = [(_label(own[0], factors, hosts), own) for own in cells.values()]
        grids = [(label, read_grids(own)) for label, own in named]
        curves = [CellCurves(label, read_curves(own), find_ratio(own)) for label, own in named]
        found += _grid_tables(name, [(label, each) for label, each in grids if each])
        found += _curve_tables(name, [cell for cell in curves if cell.curves])
    return found


def _label(row: ResultRow, factors: Sequence[str], hosts: Mapping[str, str]) -> str:
    label = cell_label(row.cell, factors)
    return f"{label} (host {hosts[row.host_id]})" if len(hosts) > 1 else label


def _grid_tables(name: str, cells: Sequence[tuple[str, Sequence[Grid]]]) -> list[layout.Shown]:
    """One test: the whole grid of each cell. Several: the best and the worst figure of each."""
    tests = {grid.test for _, grids in cells for grid in grids}
    if len(tests) == 1:
        return [_grid_table(f"{name}, {label}", grids[0]) for label, grids in cells]
    return [_extremes_table(name, cells)] if cells else []


def _grid_table(title: str, grid: Grid) -> layout.Shown:
    table = layout.start_table(
        f"{title}: {grid.test}, {grid.unit}, record size by file size",
        "!",
        *(f">{file}" for file in grid.files),
        "*",  # the title's room
    )
    for record in grid.records:
        means = (grid.means.get((record, file)) for file in grid.files)
        table.add_row(record, *("" if mean is None else short_figure(mean) for mean in means))
    return table


def _extremes_table(name: str, cells: Sequence[tuple[str, Sequence[Grid]]]) -> layout.Shown:
    table = layout.start_table(
        f"{name}: {cells[0][1][0].unit} at record size/file size",
        *("*cell", "!test", ">best", "!at", ">worst", "!at", ">mean"),
    )
    for label, grids in cells:
        for number, grid in enumerate(grids):
            table.add_row("" if number else label, grid.test, *_extremes(grid))
    table.caption = (
        "mean is the geometric one; --metric TEST shows all sizes of a test, --json every figure"
    )
    return table


def _extremes(grid: Grid) -> list[str]:
    if not grid.means:
        return ["-"] * 5
    best, worst = (
        max(grid.means, key=grid.means.__getitem__),
        min(grid.means, key=grid.means.__getitem__),
    )
    told = [text for at in (best, worst) for text in (render_figure(grid.means[at]), "/".join(at))]
    logs = [math.log(mean) for mean in grid.means.values() if mean > 0]
    return [*told, render_figure(math.exp(math.fsum(logs) / len(logs))) if logs else "-"]


def _curve_tables(name: str, cells: Sequence[CellCurves]) -> list[layout.Shown]:
    if not cells:
        return []
    percents = chosen_percents(cells, FEW_PARTS)
    table = layout.start_table(
        f"{name}: {cells[0].curves[0].unit} by % of the disk touched",
        *("*cell", "!pass"),
        *(f">{percent} %" for percent in percents),
    )
    for cell in cells:
        for number, row in enumerate(curve_rows(cell, percents)):
            table.add_row("" if number else cell.label, *row[1:])
    return [table]


def short_figure(value: float) -> str:
    """At most five characters: ``0.457``, ``98.8``, ``1234``, ``12.3k``."""
    for factor, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= factor * 0.9995:
            return f"{_three_digits(value / (1e3 if suffix == 'k' else factor))}{suffix}"
    return _three_digits(value)


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 99.95 else f"{value:#.3g}"
