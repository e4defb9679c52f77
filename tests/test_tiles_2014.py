"""The short variant of the published consolidation is the full one with other durations."""

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from diskproof.plan import make_tile_plan
from diskproof.plan.tiles import TilePlan
from diskproof.records.tiles import TileRun
from diskproof.study.load import Study, load_study
from diskproof.tiles.next import Search
from diskproof.tiles.run import all_steps
from diskproof.tiles.steps import TileContext, TileStep
from support.planning import facts_with

STUDIES = Path(__file__).parent.parent / "studies"
FULL, SHORT = (load_study(STUDIES / f"tiles-2014{each}.toml") for each in ("", "-short"))
FACTS = facts_with(memory_bytes=64 << 30)
NUMBER = re.compile(rb"\d+(\.\d+)?")


def plan_of(study: Study) -> TilePlan:
    return make_tile_plan(study, FACTS)


def schedule_of(study: Study) -> list[tuple[object, int, int]]:
    """Every run in its order: the cell's levels, tiles, repeat."""
    plan = plan_of(study)
    search, order = Search(plan.cells, plan.rules, study.seed, 2), []
    while job := search.find_next():
        order.append((job.cell.levels, job.tiles, job.repeat))
        made = TileRun(
            f"{len(order):032x}", study.id, job.cell, "h", job.tiles, job.repeat, 0, 1, 1
        )
        search.add(made, 1.0)
    return order


def steps_of(study: Study) -> tuple[TileStep, ...]:
    rules = plan_of(study).rules
    return all_steps(TileContext(rules.tile, "smb", rules.scale))


def numberless(step: TileStep) -> TileStep:
    argv = tuple(NUMBER.sub(b"N", word.encode()).decode() for word in step.argv)
    files = {path: NUMBER.sub(b"N", content) for path, content in step.files.items()}
    return replace(step, argv=argv, files=files, timeout=0.0, idle=0.0)


def test_the_same_runs_come_in_the_same_order() -> None:
    order = schedule_of(FULL)
    assert len(order) == 2 * 3 * 3 and len(set(order)) == len(order)
    assert schedule_of(SHORT) == order


def test_the_same_steps_wait_for_the_same_others_in_the_same_guests() -> None:
    full, short = steps_of(FULL), steps_of(SHORT)
    assert [numberless(step) for step in short] == [numberless(step) for step in full]
    assert [step.argv for step in short] != [step.argv for step in full]
    rests = [(ours.idle, theirs.idle) for ours, theirs in zip(short, full, strict=True)]
    assert [each for each in rests if any(each)] == [(0.03, 30.0)]


def test_nothing_else_differs_but_the_work() -> None:
    full, short = plan_of(FULL).rules, plan_of(SHORT).rules
    assert (full.scale, short.scale) == (1, Fraction(1, 1000))
    assert replace(short, scale=full.scale) == full
