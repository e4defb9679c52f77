"""A study of one folder that fits a budget, and what it leaves out for that.

Pure. Cells are what is given up last; before them the search for losses, the size of the disk and
the run time; blocks go first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

from diskproof.errors import HostError, UsageError
from diskproof.plan import Plan, make_crash_plan, make_plan, quick_study
from diskproof.plan.estimate import estimate, longest_verdicts
from diskproof.plan.like import disk_default
from diskproof.plan.quick_study import BACKING, Effort, Scope
from diskproof.plan.sizes import needed_bytes
from diskproof.records import BackingSpec, Cell, HostFacts
from diskproof.study.load import Study, parse_study
from diskproof.units import MIB, render_bytes, render_seconds

OVERHEAD_SECONDS = 12.0
"""Looking at the host, and the answer."""
SHARE = 0.9
"""The part of a budget that is planned: hosts are busy, and estimates are estimates."""
MAX_BLOCKS = 30
MORE_BLOCKS = 2
"""Larger disks and longer runs only where so many more blocks fit, for each step of them."""

SIZES = tuple(size * MIB for size in (256, 512, 1024, 2048, 4096))
TIMES = ((1.0, 0.3), (2.0, 0.5), (3.0, 0.5), (5.0, 1.0), (10.0, 2.0))
"""Run time and ramp in seconds."""
DEPTHS = ((16, 2.0), (32, 6.0), (64, 20.0))
"""Records that a writer writes, and the seconds in which losses of them are looked for."""
RUN_SHARE, MIN_RUN_SECONDS, MAX_RUN_SECONDS = 1 / 6, 20.0, 1800.0
"""A run that hangs does not spend a budget."""


@dataclass(frozen=True)
class Asked:
    """A ``folder`` for disks of a ``manager`` (as ``like`` names it), the study's ``name``, and
    what was typed."""

    folder: str
    manager: str
    name: str
    words: str


@dataclass(frozen=True)
class QuickPlan:
    """A study that fits, the seconds that all of it and its verdicts take at most, what the budget
    left out, and what this host cannot do whatever the budget."""

    study: Study
    seconds: float
    verdict_seconds: float
    gave_up: tuple[str, ...]
    missing: tuple[str, ...]


def folder_spec(folder: str) -> BackingSpec:
    """The folder as the backing of such a study."""
    return BackingSpec(BACKING, "directory", (("path", folder),))


def fit(asked: Asked, facts: HostFacts, budget: float) -> QuickPlan:
    """The study for so many seconds; ``facts`` know the folder as ``folder_spec`` has it.

    Raises UsageError with the smallest budget that does where it is less, HostError where no
    virtual disk can be measured there.
    """
    if "daemon" not in facts.frontends:
        why = facts.reasons.get("frontend=daemon", "")
        hint = "`diskproof doctor` names the packages that are missing"
        raise HostError("no virtual disk can be measured here", why, hint)
    default = disk_default(asked.manager, folder_spec(asked.folder), facts.backings[BACKING])
    assert default is not None, "a folder is on no network"
    offers = [Offer(asked, facts, scope) for scope in quick_study.find_scopes(default, facts)]
    for place in reversed(range(len(offers))):
        if chosen := offers[place].choose(budget):
            missing = tuple(quick_study.find_missing(default, facts))
            return _conclude(offers[place], *chosen, budget, offers[place + 1 :], missing)
    raise UsageError(
        f"a budget of {render_seconds(budget)} is too small for an answer here",
        "the fewest cells that say anything take longer, measured and judged",
        f"--budget {math.ceil(offers[0].least_budget)}s is the smallest that does",
    )


def _conclude(
    offer: Offer,
    effort: Effort,
    blocks: int,
    budget: float,
    wider: Sequence[Offer],
    missing: tuple[str, ...],
) -> QuickPlan:
    gave_up = (*_narrowed(effort, blocks), *_left_out(wider))
    told = [f"Written by `{offer.asked.words}` for {render_seconds(budget)}."]
    if gave_up:
        told += ["It gave up:", *(f"  {each}" for each in gave_up)]
    return QuickPlan(
        offer.study(effort, blocks, budget, told),
        offer.seconds(effort, blocks),
        offer.verdict_seconds(effort),
        gave_up,
        missing,
    )


def _narrowed(effort: Effort, blocks: int) -> Iterator[str]:
    """In the order in which they were given up."""
    if blocks < MAX_BLOCKS:
        yield f"more than {blocks} blocks"
    if effort.runtime < MOST.runtime:
        yield f"runs of more than {effort.runtime:g} s, up to {MOST.runtime:g} s"
    if effort.size < MOST.size:
        sizes = f"{render_bytes(effort.size)}, up to {render_bytes(MOST.size)}"
        yield f"disks of more than {sizes}"
    if effort.records < MOST.records:
        yield f"losses of more than {effort.records} writes, up to {MOST.records}"


def _left_out(wider: Sequence[Offer]) -> Iterator[str]:
    """The cells that did not fit, in one piece, each with the budget from which on they do."""
    if wider:
        budgets = [f"{math.ceil(offer.least_budget / 60)}m" for offer in wider]
        named = [f"{o.scope.what} ({b})" for o, b in zip(wider, budgets, strict=True)]
        yield f"cells that need a --budget of: {', '.join(named)}"


# -- what fits ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Offer:
    """A scope with what it costs here."""

    asked: Asked
    facts: HostFacts
    scope: Scope

    def study(self, effort: Effort, blocks: int, budget: float, told: Sequence[str]) -> Study:
        asked = self.asked
        timeout = min(max(MIN_RUN_SECONDS, RUN_SHARE * budget), MAX_RUN_SECONDS)
        text = quick_study.render_quick(
            asked.name, asked.folder, self.scope, effort, blocks, timeout, told
        )
        return parse_study(text, f"{asked.name}.toml")

    @cached_property
    def planned(self) -> tuple[Plan, tuple[Cell, ...]]:
        """What to measure and the cells to judge, with the least effort."""
        study = self.study(LEAST, 1, 0.0, ())
        return make_plan(study, self.facts), make_crash_plan(study, self.facts)[0]

    def measure_seconds(self, effort: Effort, blocks: int) -> float:
        """So many blocks, or none, with what comes before and after them."""
        plan, _ = self.planned
        cells = tuple(with_effort(cell, effort) for cell in plan.cells)
        return estimate(replace(plan, cells=cells), blocks).seconds

    def verdict_seconds(self, effort: Effort) -> float:
        _, judged = self.planned
        return sum(
            longest_verdicts(with_effort(cell, effort), quick_study.FAULTS) for cell in judged
        )

    def seconds(self, effort: Effort, blocks: int) -> float:
        """All of it."""
        spent = self.measure_seconds(effort, blocks) + self.verdict_seconds(effort)
        return OVERHEAD_SECONDS + spent

    @cached_property
    def least_budget(self) -> float:
        return self.seconds(LEAST, self.scope.least_blocks) / SHARE

    def choose(self, budget: float) -> tuple[Effort, int] | None:
        """The most effort that the budget allows, and blocks; None where the scope is too wide."""
        if self.least_budget > budget:
            return None
        for effort in self._efforts():
            fixed = self.seconds(effort, 0)
            block = self.seconds(effort, 1) - fixed
            blocks = int((SHARE * budget - fixed) / block)
            if blocks >= self.scope.least_blocks + MORE_BLOCKS * effort.steps:
                return effort, min(blocks, MAX_BLOCKS)
        return LEAST, self.scope.least_blocks

    def _efforts(self) -> Iterator[Effort]:
        """The largest first; of sizes those that leave half of the room that there is."""
        plan, _ = self.planned
        free = self.facts.backings[BACKING].free_bytes
        for effort in EFFORTS:
            loads = (with_effort(cell, effort).workload for cell in plan.cells)
            if effort.size == SIZES[0] or 2 * needed_bytes(loads) <= free:
                yield effort


def with_effort(cell: Cell, effort: Effort) -> Cell:
    """The same cell, looked at that thoroughly."""
    of_load = {"size": effort.size, "runtime": effort.runtime, "ramp": effort.ramp}
    of_writer = {"records": effort.records, "explore_seconds": effort.explore_seconds}
    options = dict(cell.workload.options)
    changes = of_writer if "records" in options else of_load
    options |= {name: f"{value:g}" if name != "size" else str(value)
                for name, value in changes.items()}  # fmt: skip
    return replace(cell, workload=replace(cell.workload, options=tuple(sorted(options.items()))))


EFFORTS = tuple(
    Effort(SIZES[size], *TIMES[time], *DEPTHS[depth], steps=max(size, time))
    for depth, size, time in product(
        *(range(len(each) - 1, -1, -1) for each in (DEPTHS, SIZES, TIMES))
    )
)
MOST, LEAST = EFFORTS[0], EFFORTS[-1]
