"""How long runs take and what room they need, before and while they are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from diskproof.errors import HostError
from diskproof.plan.history import (
    DISK,
    EXPLORE,
    LOAD,
    MACHINE,
    WORK,
    History,
    made_once,
    reads_states_itself,
)
from diskproof.records import Cell, PhaseCosts
from diskproof.records.verdicts import Fault
from diskproof.study.boots import count_boots
from diskproof.study.crash import RECORDING_SECONDS, faults_of, longest_seconds
from diskproof.study.programs import has_own_system

if TYPE_CHECKING:
    from diskproof.plan import Plan

PREPARE_SECONDS = 2.0
"""From the start of a call to its first run, where nobody has seen what it takes here: imports,
and the host is probed."""
REPORT_SHARE = 0.25
"""What the tables at the end take of what the beginning took; 0.12 to 0.36 were seen."""
FILL_BYTES_PER_SECOND = 400e6
MAKE_BYTES_PER_SECOND = 200e6
START_SECONDS = {"host": 0.1, "container": 0.4, "daemon": 0.2, "guest": 1.0, "own-guest": 30.0}
FIO_SECONDS = 0.3
"""What fio takes beside its load: it starts, and sums up."""
TCG_BOOT_SECONDS = 2.0

FEW_STATES_SECONDS: dict[Fault, float] = {"qemu-kill": 0.5, "guest-kill": 0.3}
"""Faults that leave few states; of others there are as many as there is time for."""
OWN_STATES_SECONDS, OWN_FEW_STATES_SECONDS = 0.2, 0.02
"""The same for states of a ledger on a raw disk, which no other program has to open: all there are,
and faults that leave few."""


@dataclass(frozen=True)
class Estimate:
    """Time for a study in seconds and peak room on a backing in bytes; ``obstacle`` is why that
    room cannot be had. ``phases`` are the parts of that time, all of it."""

    seconds: float
    disk_bytes: int
    obstacle: HostError | None = None
    phases: PhaseCosts = PhaseCosts()


def guess_phases(cell: Cell) -> dict[str, dict[str, float]]:
    """Seconds of one run by family and phase before any was made: what is asked for, and what is
    usual."""
    spec = cell.workload
    boot = TCG_BOOT_SECONDS if cell.level("accel") == "tcg" else 0.0
    if has_own_system(spec.kind):
        load = (1 + count_boots(spec)) * (START_SECONDS["guest"] + boot)
        return {DISK: {}, MACHINE: {}, WORK: {LOAD: load}}
    filled = int(spec.option("size", "0")) if spec.option("fill") == "on" else 0
    load = float(spec.option("runtime", "0")) + float(spec.option("ramp", "0"))
    work = {LOAD: load + FIO_SECONDS}
    if spec.option("rw", "write") not in ("read", "randread"):
        written = int(spec.option("size", "0")) / FILL_BYTES_PER_SECOND
        work["drain"] = min(load, written)
    return {
        DISK: {"fill": filled / FILL_BYTES_PER_SECOND},
        MACHINE: {"start": START_SECONDS.get(cell.level("frontend"), 0.0) + boot},
        WORK: work,
    }


def estimate_seconds(cell: Cell) -> float:
    """Expected length of one run before any was measured."""
    return sum(sum(family.values()) for family in guess_phases(cell).values())


def foretell_phases(cell: Cell, history: History) -> dict[str, float]:
    """Expected seconds of one run by phase: as such runs were, else as is usual."""
    families = guess_phases(cell) | history.expect(cell)
    return {name: part for phases in families.values() for name, part in phases.items()}


def foretell(cell: Cell, history: History) -> float:
    """Expected length of one run, without what is made once."""
    return sum(foretell_phases(cell, history).values())


def foretell_once(cell: Cell, history: History) -> float:
    """Seconds for what the first run makes for this cell and all like it."""
    known = history.expect_once(cell)
    if known is None and cell.workload.option("fill") == "on":
        return int(cell.workload.option("size")) / MAKE_BYTES_PER_SECOND
    return known or 0.0  # a system of boots is most often there


def estimate(
    plan: Plan,
    blocks: int,
    history: History | None = None,
    prepare: float = PREPARE_SECONDS,
) -> Estimate:
    """For ``diskproof plan``; ``prepare`` is what it takes on this host, now, until the first run
    can begin."""
    history = history or History()
    phases: dict[str, float] = {"prepare": prepare, "report": REPORT_SHARE * prepare}
    for cell in plan.cells:
        for name, seconds in foretell_phases(cell, history).items():
            phases[name] = phases.get(name, 0.0) + blocks * seconds
    for once, cell in {made_once(cell): cell for cell in plan.cells}.items():
        if once is not None:
            phases[once[0]] = phases.get(once[0], 0.0) + foretell_once(cell, history)
    parts = sorted(phases.items(), key=lambda each: -each[1])
    seconds = sum(phases.values())
    told = PhaseCosts(tuple(parts), history.runs)
    return Estimate(seconds, plan.needed_bytes, plan.obstacle, told)


def longest_verdicts(cell: Cell, faults: tuple[Fault, ...]) -> float:
    """Seconds that a crash cell takes at most under those of ``faults`` that mean something to it,
    before any like it was made."""
    frontend, spec = cell.level("frontend"), cell.workload
    search, writing = (float(spec.option(key, "0")) for key in ("explore_seconds", "seconds"))
    return longest_seconds(frontend, writing, search, len(faults_of(frontend, faults)))


def foretell_verdicts(cell: Cell, faults: tuple[Fault, ...], history: History) -> dict[str, float]:
    """Seconds of a crash cell by phase, under those of ``faults`` that mean something to it: as
    such were, else as is usual."""
    asked = {f"{EXPLORE}{fault}": fault for fault in faults_of(cell.level("frontend"), faults)}
    search = float(cell.workload.option("explore_seconds", "0"))
    own = reads_states_itself(cell)
    many = OWN_STATES_SECONDS if own else search
    few = dict.fromkeys(FEW_STATES_SECONDS, OWN_FEW_STATES_SECONDS) if own else FEW_STATES_SECONDS
    guess = {name: min(search, few.get(f, many)) for name, f in asked.items()}
    if cell.level("frontend") == "guest":
        guess["record"] = RECORDING_SECONDS["guest"]
    known = history.expect(cell).get(WORK, {})
    wanted = {n: part for n, part in known.items() if n in asked or not n.startswith(EXPLORE)}
    return guess | wanted
