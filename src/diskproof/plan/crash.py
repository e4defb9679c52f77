"""The cells of a crash study: the same factors and filters, with writers in place of loads."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

from diskproof.plan.like import Levels
from diskproof.plan.select import select
from diskproof.plan.sizes import FREE_MARGIN, find_obstacle
from diskproof.records import Cell, Dropped, HostFacts
from diskproof.study.crash import (
    ON_FILE_SYSTEM,
    WRITERS,
    CrashRules,
    beside_writeback,
    crash_workload,
    least_disk,
    runs_beside,
)
from diskproof.study.load import Filter, Study
from diskproof.units import render_bytes

COPIES = 3
"""A run has the disk, its state before the writer, and the log, which may hold all of it."""


def make_crash_plan(study: Study, facts: HostFacts) -> tuple[tuple[Cell, ...], tuple[Dropped, ...]]:
    """Cells of the study's writers on a host, and what cannot be and why. Pure.

    Raises StudyError when nothing is left, HostError when a recording does not fit on a backing.
    """
    rules = study.crash
    rules = rules if rules.seed else replace(rules, seed=study.seed)
    specs = {name: replace(crash_workload(rules, name, ""), name=name) for name in rules.writers}
    narrowed = replace(
        study,
        workloads=tuple(specs.values()),
        only=keep_conditions(study.only, specs),
        exclude=keep_filters(study.exclude, specs),
    )
    selection = select(narrowed, facts).without(partial(_obstacle, rules, facts))
    hint = "change the factors, the filters or the [crash] writers"
    selection.require_some(study.name, "nothing to crash", hint)
    cells = selection.named(
        cell for levels, name in selection.kept for cell in _cells_of(rules, levels, name)
    )
    needed = COPIES * rules.size + FREE_MARGIN
    cure = "set a smaller [crash] size, or"
    if obstacle := find_obstacle(needed, cells, facts, lambda _, more: f"{cure} {more}"):
        raise obstacle
    return cells, selection.dropped


def _cells_of(rules: CrashRules, levels: Levels, writer: str) -> Iterator[Cell]:
    """One, and what is run once more beside commits and writeback."""
    frontend = dict(levels)["frontend"]
    alone = Cell(levels, crash_workload(rules, writer, frontend))
    yield alone
    if runs_beside(rules, writer, frontend):
        yield beside_writeback(alone)


def keep_conditions(filters: Iterable[Filter], names: Iterable[str]) -> tuple[Filter, ...]:
    """``[[only]]`` for these workloads: a condition that names none of them falls away, since it
    was meant for the others."""
    known = frozenset(names)
    return tuple(
        Filter(tuple((k, v) for k, v in each.levels if k != "workload" or v & known))
        for each in filters
    )


def keep_filters(filters: Iterable[Filter], names: Iterable[str]) -> tuple[Filter, ...]:
    """``[[exclude]]`` for these workloads: one that names only others is not about them."""
    known = frozenset(names)
    return tuple(
        each
        for each in filters
        if "workload" not in (t := dict(each.levels)) or t["workload"] & known
    )


def _obstacle(rules: CrashRules, facts: HostFacts, levels: Levels, writer: str) -> str:
    frontend, backing = dict(levels)["frontend"], dict(levels)["backing"]
    if network := facts.backings[backing].network:
        return f"what is written is recorded in files, and backing {backing} is over {network}"
    if facts.backings[backing].device:
        return f"what is written is recorded in files, and backing {backing} is a block device"
    if frontend not in WRITERS[writer]:
        return f"the writer {writer} needs frontend={' or '.join(WRITERS[writer])}, not {frontend}"
    if frontend == "guest" and facts.minimal_guest is not None and writer in ON_FILE_SYSTEM:
        return f"the writer {writer} needs the whole guest: `diskproof guest build`"
    least = least_disk(rules, writer, frontend)
    if rules.size >= least:
        return ""
    where = f"on {rules.filesystem} in a guest"
    return f"the writer {writer} {where} needs [crash] size = {render_bytes(least)} or more"
