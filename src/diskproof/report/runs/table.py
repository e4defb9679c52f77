"""Failed runs for the terminal: each reason once, with the cells that it met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from diskproof.records import StudyRecord
from diskproof.report.labels import cell_label, varying_factors
from diskproof.report.table_style import plain, start_table

if TYPE_CHECKING:
    from rich.table import Table

    from diskproof.report.runs.page import FailedRun

MAX_CELLS = 12
"""Cells named for each reason; JSON and the page have them all."""


def render_failures(study: StudyRecord, failures: Sequence[FailedRun]) -> Table:
    """A reason with the number of its runs, and below it a line a cell."""
    factors = varying_factors(study.cells)
    met: dict[str, Counter[str]] = {}
    for failed in failures:
        cell = f"{failed.cell.workload.name}  {cell_label(failed.cell, factors)}"
        met.setdefault(_reason(failed), Counter())[cell] += 1
    table = start_table("failed runs")
    table.add_column("runs", justify="right", no_wrap=True)
    table.add_column("reason, and the cells that met it", ratio=1, overflow="fold")
    for reason, cells in sorted(met.items(), key=lambda item: -item[1].total()):
        table.add_row(str(cells.total()), plain(reason), style="bold")
        for cell, count in list(cells.items())[:MAX_CELLS]:
            table.add_row(str(count), plain(f"  {cell}"))
        if len(cells) > MAX_CELLS:
            table.add_row("", f"  and {len(cells) - MAX_CELLS} more cells")
    return table


def _reason(failed: FailedRun) -> str:
    failure = failed.failure
    return f"{failure.kind}: " + ": ".join(filter(None, (failure.what, failure.why)))
