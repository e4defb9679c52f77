"""Failed runs for the terminal: each reason once, with the cells that it met."""

import re
from collections import Counter

from diskproof.records import StudyRecord
from diskproof.report import layout
from diskproof.report.labels import cell_label, varying_factors
from diskproof.report.losses import hidden_lines
from diskproof.report.runs.find import FailedRun, StudyRuns

MAX_CELLS = 12
"""Cells named for each reason; JSON and the page have them all."""
_HANDLE = re.compile(r"(/dev/fdset/|/proc/self/fd/)\d+")


def render_failures(study: StudyRecord, runs: StudyRuns) -> layout.Shown:
    """A reason with the number of its runs, and below it a line a cell; then where runs are missing
    because they were slow. The number by which QEMU got a file makes no other reason."""
    factors = varying_factors(study.cells)
    met: dict[str, Counter[str]] = {}
    told: dict[str, str] = {}
    for failed in runs.failures:
        cell = f"{failed.cell.workload.name}  {cell_label(failed.cell, factors)}"
        reason = _reason(failed)
        alike = _HANDLE.sub(r"\1", reason)
        told.setdefault(alike, reason)
        met.setdefault(alike, Counter())[cell] += 1
    table = layout.start_table("failed runs", ">runs", "*reason, and the cells that met it")
    for alike, cells in sorted(met.items(), key=lambda item: -item[1].total()):
        table.add_row(str(cells.total()), told[alike], style="bold")
        for cell, count in list(cells.items())[:MAX_CELLS]:
            table.add_row(str(count), f"  {cell}")
        if len(cells) > MAX_CELLS:
            table.add_row("", f"  and {len(cells) - MAX_CELLS} more cells")
    table.caption = "; ".join(hidden_lines(runs.hidden)) or None
    return table


def _reason(failed: FailedRun) -> str:
    failure = failed.failure
    return f"{failure.kind}: " + ": ".join(filter(None, (failure.what, failure.why)))
