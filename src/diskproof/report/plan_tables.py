"""What a study means on a host, before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from diskproof.records import Cell, StudyRecord
from diskproof.report.labels import cell_label, varying_factors
from diskproof.report.ranking.table import render_dropped
from diskproof.report.table_style import plain, start_table
from diskproof.units import render_bytes, render_seconds

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

MAX_CELLS = 40
"""Rows of the table; JSON has them all."""


def plan_json(study: StudyRecord, seconds: float, disk_bytes: int) -> dict[str, object]:
    """The plan with everything in it. ``seconds`` are for all runs, ``disk_bytes`` the peak."""
    return {
        "study": study.name,
        "id": study.id,
        "blocks": study.blocks,
        "seed": study.seed,
        "runs": study.blocks * len(study.cells),
        "race": asdict(study.race) if study.race else None,
        "estimated_seconds": round(seconds, 1),
        "disk_bytes": disk_bytes,
        "cells": [
            {
                "id": cell.id,
                "cell": cell.levels_dict(),
                "workload": cell.workload.name,
                "options": dict(cell.workload.options),
            }
            for cell in study.cells
        ],
        "dropped": [
            {"reason": each.reason, "cells": each.count, "example": dict(each.example)}
            for each in study.dropped
        ],
        "warnings": list(study.warnings),
    }


def render_plan(study: StudyRecord, seconds: float, disk_bytes: int) -> Group:
    """The plan for people."""
    from rich.console import Group
    from rich.text import Text

    runs = _count(study.blocks * len(study.cells), "run")
    head = (
        f"study {study.name}: {_count(len(study.cells), 'cell')} x "
        f"{_count(study.blocks, 'block')} = {runs}{' at most' if study.race else ''}, "
        f"about {render_seconds(seconds)}, {render_bytes(disk_bytes)} on disk at the peak"
    )
    parts: list[RenderableType] = [Text(head, style="bold")]
    parts += [Text(f"warning: {text}", style="yellow") for text in study.warnings]
    parts += [Text(), _render_cells(study.cells)]
    parts += [Text(), render_dropped(study.dropped)] if study.dropped else []
    return Group(*parts)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _render_cells(cells: Sequence[Cell]) -> Table:
    """Disks in rows with the workloads that each is measured under."""
    factors = varying_factors(cells)
    loads: dict[str, list[str]] = {}
    for cell in cells:
        loads.setdefault(cell_label(cell, factors), []).append(cell.workload.name)
    table = start_table("cells")
    table.add_column("disk", ratio=1, overflow="fold")
    table.add_column("workloads", ratio=1, overflow="fold")
    for label, names in list(loads.items())[:MAX_CELLS]:
        table.add_row(plain(label), plain(", ".join(names)))
    if len(loads) > MAX_CELLS:
        table.caption = f"{len(loads) - MAX_CELLS} more disks are not shown; --json lists all"
    return table
