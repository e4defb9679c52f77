"""Study and host facts to cells: what means nothing collapses, what cannot work is dropped."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from diskproof.errors import HostError, StudyError
from diskproof.plan.crash import keep_filters, make_crash_plan
from diskproof.plan.estimate import Estimate, estimate, estimate_seconds
from diskproof.plan.select import MAX_COMBINATIONS, Selection, select
from diskproof.plan.sizes import (
    choose_size,
    find_misfit,
    find_obstacle,
    needed_bytes,
    resolve_workloads,
    tell_of_backings,
    tell_of_size,
    tell_what_fits,
    warn_of_caches,
    warn_of_discard,
    warn_of_emulation,
    warn_of_processors,
    warn_of_reclaim,
)
from diskproof.plan.tiles import TilePlan, make_tile_plan
from diskproof.records import Cell, Dropped, HostFacts
from diskproof.study.load import Study

__all__ = [
    "MAX_COMBINATIONS",
    "Estimate",
    "Plan",
    "TilePlan",
    "estimate",
    "estimate_seconds",
    "make_crash_plan",
    "make_plan",
    "make_tile_plan",
]


@dataclass(frozen=True)
class Plan:
    """What will be measured. ``warnings`` are for people, among them the defaults of managers that
    cells are named after; ``needed_bytes`` is what a backing must have free at the peak: one image,
    and the data it is filled from; ``obstacle`` is why that cannot be had."""

    cells: tuple[Cell, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]
    needed_bytes: int
    obstacle: HostError | None = None


def make_plan(study: Study, facts: HostFacts) -> Plan:
    """Cells of a study on a host. Pure; cells carry every factor that means something to them.

    Raises StudyError when nothing is left to measure, an ``[[only]]`` matches nothing or the
    matrix is too large.
    """
    study = _for_loads(study)
    selection = select(study, facts)
    _require_something(study, selection)
    chosen = choose_size(study.workloads, selection.kept, facts)
    workloads = resolve_workloads(study.workloads, chosen)
    selection = selection.without(lambda _, name: find_misfit(workloads[name]))
    _require_something(study, selection)
    cells = selection.as_cells(workloads)
    needed = needed_bytes(workloads.values())
    warnings = (
        *(each.sentence for each in selection.defaults),
        *_warn_of_filters(study, selection),
        *warn_of_emulation(cells, facts),
        *warn_of_processors(cells, facts),
        *tell_of_size(chosen, cells, facts),
        *warn_of_caches(cells, facts),
        *warn_of_reclaim(cells, facts),
        *tell_of_backings(cells, facts),
        *warn_of_discard(cells, facts),
    )
    fits = partial(tell_what_fits, cells, facts)
    obstacle = find_obstacle(needed, cells, facts, fits)
    return Plan(cells, selection.dropped, warnings, needed, obstacle)


def _for_loads(study: Study) -> Study:
    """The study without filters that are only about the writers of its ``[crash]``."""
    names = [workload.name for workload in study.workloads]
    only, exclude = keep_filters(study.only, names), keep_filters(study.exclude, names)
    return replace(study, only=only, exclude=exclude)


def _require_something(study: Study, selection: Selection) -> None:
    for number, each in enumerate(study.only, 1):
        if each not in selection.matched:
            raise StudyError(
                f"study {study.name!r}: [[only]] number {number} matches no combination",
                f"it asks for {each}",
                "a level that means nothing to a frontend or format is not part of its cells",
            )
    selection.require_some(study.name, "nothing to measure", "change the factors or the filters")


def _warn_of_filters(study: Study, selection: Selection) -> Iterable[str]:
    for number, each in enumerate(study.exclude, 1):
        if each not in selection.matched:
            yield f"[[exclude]] number {number} ({each}) matches no combination"
