"""What a study means on a host, before anything is measured."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from diskproof.records import Dropped, PhaseCosts, StudyRecord
from diskproof.report import layout
from diskproof.report.barred import Bars, dropping_text, marked
from diskproof.report.labels import cell_label, count, varying_factors
from diskproof.report.outputs import DefaultJson, DroppedJson, PlanJson, SecondsJson
from diskproof.stats.study_race import race_rules
from diskproof.study.ground import find_grounds
from diskproof.study.like import find_defaults, keep_warnings
from diskproof.units import render_bytes, render_seconds

MAX_CELLS = 40
"""Rows of the table; JSON has them all."""


Owners = Mapping[tuple[str, str], tuple[str, ...]]
"""Managers that give a new disk a level, by factor and level."""


NOTHING_KNOWN = PhaseCosts()


def plan_json(
    study: StudyRecord,
    seconds: float,
    disk_bytes: int,
    owners: Owners | None = None,
    phases: PhaseCosts = NOTHING_KNOWN,
) -> PlanJson:
    """The plan with everything in it. ``seconds`` are for all runs, ``disk_bytes`` the peak."""
    bars = Bars(study)
    return {
        "study": study.name,
        "id": study.id,
        "blocks": study.blocks,
        "seed": study.seed,
        "runs": _blocks(study) * len(study.cells),
        "race": asdict(race) | {"likely": race.likely} if (race := race_rules(study)) else None,
        **seconds_json(seconds, phases),
        "disk_bytes": disk_bytes,
        "cells": [
            {
                "id": cell.id,
                "cell": cell.levels_dict(),
                "workload": cell.workload.name,
                "options": dict(cell.workload.options),
                "default_of": list(cell.names),
                "barred": [bar.what for bar in bars.find(cell)],
            }
            for cell in study.cells
        ],
        "dropped": dropped_json(study.dropped),
        "defaults": defaults_json(study.warnings),
        "default_levels": [
            {"factor": factor, "level": level, "managers": list(managers)}
            for (factor, level), managers in (owners or {}).items()
        ],
        "backings": {each.backing: each.text for each in find_grounds(study.warnings)},
        "warnings": keep_warnings(study.warnings),
    }


def seconds_json(seconds: float, phases: PhaseCosts) -> SecondsJson:
    """What a plan says of its time."""
    return {
        "estimated_seconds": round(seconds, 1),
        "estimated_phases": {name: round(part, 1) for name, part in phases.parts},
        "estimated_from_runs": phases.runs,
    }


def render_plan(
    study: StudyRecord,
    seconds: float,
    disk_bytes: int,
    owners: Owners | None = None,
    phases: PhaseCosts = NOTHING_KNOWN,
) -> layout.Shown:
    """The plan for people; whose defaults levels are, where no whole disk is told to be one."""
    blocks = _blocks(study)
    runs = count(blocks * len(study.cells), "run")
    head = (
        f"study {study.name}: {count(len(study.cells), 'cell')} x "
        f"{count(blocks, 'block')} = {runs}{' at most' if race_rules(study) else ''}, "
        f"about {render_seconds(seconds)}, {render_bytes(disk_bytes)} on disk at the peak"
    )
    if told := tell_of_time(seconds, phases):
        head = f"{head}; {told}"
    shown = show_plan(head, study.warnings, _render_cells(study), study.dropped)
    if not owners or find_defaults(study.warnings):
        return shown
    return layout.paragraphs([[shown], [_render_owners(owners)]])


def _blocks(study: StudyRecord) -> int:
    """Complete blocks that a study costs at most."""
    rules = race_rules(study)
    return rules.most_runs(1) if rules else study.blocks


def tell_of_time(seconds: float, phases: PhaseCosts) -> str:
    """What takes the time, by phases that take a twentieth of it or more."""
    long = [
        f"{name.replace('_', ' ')} {render_seconds(part)}"
        for name, part in phases.parts
        if part >= seconds / 20
    ]
    took = f"by what {count(phases.runs, 'run')} took here"
    by = took if phases.runs else "a guess, for the store has no run of this host"
    return f"of that time {', '.join(long)}: {by}" if long else ""


def _render_owners(owners: Owners) -> layout.Shown:
    table = layout.start_table("levels that managers give a new disk", "-level", "*of")
    for (factor, level), managers in owners.items():
        table.add_row(f"{factor}={level}", ", ".join(managers))
    table.caption = 'like = "MANAGER" in the study measures all that one gives'
    return table


def show_plan(
    head: str, warnings: Sequence[str], cells: layout.Shown, dropped: Sequence[Dropped]
) -> layout.Shown:
    """A plan of any kind, with what was left out of it."""
    found = keep_warnings(warnings)
    told = [layout.line(f"warning: {text}", style="yellow") for text in found]
    defaults = [_render_defaults(warnings)] if find_defaults(warnings) else []
    left_out = [render_dropped(dropped)] if dropped else []
    grounds = [layout.line(each.sentence) for each in find_grounds(warnings)]
    head_lines = [layout.line(head, style="bold"), *grounds, *told]
    return layout.paragraphs([head_lines, [cells], defaults, left_out])


def _render_defaults(told: Sequence[str]) -> layout.Shown:
    """What managers give a new disk, and (once for each) where that is written."""
    table = layout.start_table("what a new disk gets", "-of", "-on", "*settings", "*source")
    before = ""
    for each in find_defaults(told):
        named = ("", "") if each.name == before else (each.name, each.source)
        table.add_row(named[0], each.backing, each.levels_text, named[1])
        before = each.name
    return table


def defaults_json(told: Sequence[str]) -> list[DefaultJson]:
    """Defaults of managers, as a plan told of them."""
    return [{**asdict(each), "levels": dict(each.levels)} for each in find_defaults(told)]


def _render_cells(study: StudyRecord) -> layout.Shown:
    """Disks in rows with the workloads that each is measured under; ``!`` drops flushes by rule."""
    factors, bars = varying_factors(study.cells), Bars(study)
    loads: dict[str, list[str]] = {}
    for cell in study.cells:
        label = marked(cell_label(cell, factors), cell, bars)
        loads.setdefault(label, []).append(cell.workload.name)
    table = layout.start_table("cells", "*disk", "*workloads")
    for label, names in list(loads.items())[:MAX_CELLS]:
        table.add_row(label, ", ".join(names))
    more, why = len(loads) - MAX_CELLS, dropping_text(study.cells, bars)
    hidden = f"{more} more disks are not shown; --json lists all" if more > 0 else ""
    table.caption = layout.plain("; ".join(filter(None, (why, hidden)))) or None
    return table


def render_dropped(dropped: Sequence[Dropped]) -> layout.Shown:
    """Combinations that were never run, and why."""
    table = layout.start_table("combinations left out", ">cells", "*reason")
    for each in dropped:
        table.add_row(str(each.count), each.reason)
    return table


def dropped_json(dropped: Sequence[Dropped]) -> list[DroppedJson]:
    return [
        {"reason": each.reason, "cells": each.count, "example": dict(each.example)}
        for each in dropped
    ]
