"""What the tiles of a study mean on a host, before any was started."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diskproof.records import Cell, Dropped
from diskproof.report.labels import cell_label, varying_factors
from diskproof.report.ranking.table import render_dropped
from diskproof.report.table_style import plain, start_table
from diskproof.tile_rules import TileRules
from diskproof.units import render_bytes, render_seconds

if TYPE_CHECKING:
    from rich.console import Group, RenderableType


@dataclass(frozen=True)
class TilePlanView:
    """``runs`` and ``seconds`` are for all cells at most, ``disk_bytes`` what the disks of the
    most tiles can grow to, ``memory_bytes`` what one tile takes."""

    study: str
    rules: TileRules
    cells: tuple[Cell, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]
    runs: int
    seconds: float
    disk_bytes: int
    memory_bytes: int


def tile_plan_json(view: TilePlanView) -> dict[str, object]:
    """The plan with everything in it."""
    rules = view.rules
    return {
        "tile": rules.tile.name,
        "guests": [guest.name for guest in rules.tile.guests],
        "workloads": [work.name for work in rules.tile.works],
        "scale": str(rules.scale),
        "most": rules.most,
        "counts": list(rules.counts),
        "runs_of_each": rules.runs,
        "runs": view.runs,
        "estimated_seconds": round(view.seconds, 1),
        "disk_bytes": view.disk_bytes,
        "memory_bytes": view.memory_bytes,
        "cells": [{"id": cell.id, "cell": cell.levels_dict()} for cell in view.cells],
        "dropped": [
            {"reason": each.reason, "cells": each.count, "example": dict(each.example)}
            for each in view.dropped
        ],
        "warnings": list(view.warnings),
    }


def render_tile_plan(view: TilePlanView) -> Group:
    """The plan for people."""
    from rich.console import Group
    from rich.text import Text

    tile = view.rules.tile
    counts = ", ".join(map(str, view.rules.counts))
    numbers = f"{counts} tiles" if counts else f"up to {view.rules.most} tiles"
    head = (
        f"tiles of study {view.study}: {_count(len(view.cells), 'cell')}, {numbers} of "
        f"{_count(len(tile.guests), 'guest')}, {_count(view.runs, 'run')} at most, "
        f"about {render_seconds(view.seconds)}, {render_bytes(view.memory_bytes)} of memory for "
        f"each tile"
    )
    parts: list[RenderableType] = [Text(head, style="bold")]
    parts += [Text(f"warning: {text}", style="yellow") for text in view.warnings]
    factors = varying_factors(view.cells)
    table = start_table("cells")
    table.add_column("disk", overflow="fold")
    table.add_column("tile", overflow="fold")
    table.add_column("workloads", ratio=1, overflow="fold")
    works = ", ".join(work.name for work in tile.works)
    for cell in view.cells:
        table.add_row(plain(cell_label(cell, factors)), plain(tile.name), plain(works))
    parts += [Text(), table]
    parts += [Text(), render_dropped(view.dropped)] if view.dropped else []
    return Group(*parts)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
