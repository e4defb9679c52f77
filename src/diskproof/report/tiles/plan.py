"""What the tiles of a study mean on a host, before any was started."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from diskproof.records import Cell, Dropped, PhaseCosts
from diskproof.report import layout, outputs
from diskproof.report.labels import cell_label, count, varying_factors
from diskproof.report.plan_tables import (
    NOTHING_KNOWN,
    defaults_json,
    dropped_json,
    seconds_json,
    show_plan,
    tell_of_time,
)
from diskproof.study.ground import find_grounds
from diskproof.study.like import keep_warnings
from diskproof.study.tiles import TileRules
from diskproof.units import render_bytes, render_seconds


@dataclass(frozen=True)
class TilePlanView:
    """``runs`` and ``seconds`` are for all cells at most, ``phases`` their parts by what runs of
    this tile took here, ``disk_bytes`` what the disks of the
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
    phases: PhaseCosts = NOTHING_KNOWN


def tile_plan_json(view: TilePlanView) -> outputs.TilePlanJson:
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
        **seconds_json(view.seconds, view.phases),
        "disk_bytes": view.disk_bytes,
        "memory_bytes": view.memory_bytes,
        "cells": [
            {"id": cell.id, "cell": cell.levels_dict(), "default_of": list(cell.names)}
            for cell in view.cells
        ],
        "dropped": dropped_json(view.dropped),
        "defaults": defaults_json(view.warnings),
        "backings": {each.backing: each.text for each in find_grounds(view.warnings)},
        "warnings": keep_warnings(view.warnings),
    }


def whole_plan_json(
    plan: outputs.PlanJson,
    obstacle: str | None,
    proves: Sequence[str],
    verdicts: dict[str, Any] | None,
    tiles: TilePlanView | None,
) -> outputs.WholePlanJson:
    """All that ``plan --json`` prints: of what is measured, judged and run as tiles."""
    more: outputs.FurtherPlansJson = {}
    if verdicts is not None:
        more["verdicts"] = verdicts
    if tiles is not None:
        more["tiles"] = tile_plan_json(tiles)
    return {**plan, "obstacle": obstacle, "proves": list(proves), **more}


def render_tile_plan(view: TilePlanView) -> layout.Shown:
    """The plan for people."""
    tile = view.rules.tile
    counts = ", ".join(map(str, view.rules.counts))
    numbers = f"{counts} tiles" if counts else f"up to {view.rules.most} tiles"
    head = (
        f"tiles of study {view.study}: {count(len(view.cells), 'cell')}, {numbers} of "
        f"{count(len(tile.guests), 'guest')}, {count(view.runs, 'run')} at most, "
        f"about {render_seconds(view.seconds)}, {render_bytes(view.memory_bytes)} of memory for "
        f"each tile"
    )
    if told := tell_of_time(view.seconds, view.phases):
        head = f"{head}; {told}"
    factors = varying_factors(view.cells)
    table = layout.start_table("cells", "-disk", "-tile", "*workloads")
    works = ", ".join(work.name for work in tile.works)
    for cell in view.cells:
        table.add_row(cell_label(cell, factors), tile.name, works)
    return show_plan(head, view.warnings, table, view.dropped)
