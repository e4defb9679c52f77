"""What runs have cost, phase by phase, so that those of another study can be foretold.

The plan knows how long a load runs; how long a disk is filled or its image removed, only a host
tells. What a phase takes depends on a part of the cell only, and it is foretold by the runs that
were like it in that part: disks are made and filled whatever the load is, guests boot whatever the
disk. Runs that were made are foretold to the second, summed up, whatever they were.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from diskproof.records import Cell
from diskproof.study.crash import KIND as CRASH
from diskproof.study.factors import FACTORS
from diskproof.study.programs import has_own_system

LOAD, BETWEEN = "workload", "between runs"
"""The load; and what is in no phase of a run: its audit, and that it is stored."""
EXPLORE = "explore_"
ONCE = frozenset({"make_data", "base image"})
"""What the first run makes for all that follow: data to fill disks with, a system to boot."""
SIZED = frozenset({"create", "source", "make_data", "fill", "drop", "drain", "remove"})
"""They grow with the disk."""
FIXED_SECONDS = 0.05
"""Of what grows with the disk, what does not, where only disks of one size are known."""
ALL_OF_IT = 0.9
"""A search that took so much of its time ended because it was over."""

Phases = Sequence[tuple[str, float]]
Kind = tuple[str, ...]
Once = tuple[str, str, str]
"""A phase, the backing that it is for, and the size."""


@dataclass
class _Phase:
    """Sums over runs of one kind: their number, how many took all the time that they were asked to
    take, the sizes of their disks (GiB) and seconds, of those beyond what was asked."""

    runs: int = 0
    asked: int = 0
    size: float = 0.0
    size2: float = 0.0
    seconds: float = 0.0
    product: float = 0.0

    def add(self, size: float, seconds: float, asked: float | None) -> None:
        beyond = seconds - (asked or 0.0)
        self.runs += 1
        self.asked += asked is not None
        self.size += size
        self.size2 += size * size
        self.seconds += beyond
        self.product += size * beyond

    def expect(self, size: float, asked: float, runs: int, grows: bool) -> float:
        """Of one of ``runs`` that are like it, some of them without this phase."""
        fixed, each = self._line() if grows else (self.seconds / self.runs, 0.0)
        share = self.runs / runs
        return max(0.0, share * (fixed + each * size) + self.asked / runs * asked)

    def _line(self) -> tuple[float, float]:
        """Seconds that do not grow, and those for each GiB: least squares, neither below nought.
        Over the sizes that were seen the line has the mean that was seen."""
        size, seconds = self.size / self.runs, self.seconds / self.runs
        if size <= 0.0 or seconds <= 0.0:
            return seconds, 0.0
        spread = self.size2 - self.size * size
        if spread <= 1e-9 * self.size2:  # all of one size
            fixed = min(seconds, FIXED_SECONDS)
            return fixed, (seconds - fixed) / size
        each = (self.product - self.size * seconds) / spread
        each = min(max(0.0, each), seconds / size)
        return seconds - each * size, each


@dataclass
class _Runs:
    """Of the runs of one kind: their number, and their phases."""

    number: int = 0
    phases: dict[str, _Phase] = field(default_factory=dict)

    def add(self, cell: Cell, seconds: Mapping[str, float]) -> None:
        self.number += 1
        for name, part in seconds.items():
            asked = asked_seconds(cell, name)
            if name.startswith(EXPLORE) and part < ALL_OF_IT * (asked or 0.0):
                asked = None
            self.phases.setdefault(name, _Phase()).add(_size(cell), part, asked)

    def expect(self, cell: Cell) -> dict[str, float]:
        return {
            name: each.expect(
                _size(cell),
                asked_seconds(cell, name) or 0.0,
                each.runs if name.startswith(EXPLORE) else self.number,  # one for each fault
                _grows(cell, name),
            )
            for name, each in self.phases.items()
        }


class History:
    """Runs of this host. A cell is foretold by the runs that were most like it."""

    def __init__(self) -> None:
        self.runs = 0
        self._kinds: dict[Kind, _Runs] = {}
        self._once: dict[tuple[Once, str], tuple[float, float]] = {}

    def add(self, study: str, cell: Cell, seconds: float, phases: Phases) -> None:
        """A run that ended well; ``seconds`` are all that it took."""
        self.runs += 1
        told = sum(part for _, part in phases)
        summed: dict[str, dict[str, float]] = {family: {} for family in FAMILIES}
        for name, part in (*phases, (BETWEEN, max(0.0, seconds - told))):
            if name in ONCE and (once := made_once(cell)):
                _, before = self._once.get((once, study), (0.0, 0.0))
                self._once[once, study] = (_size(cell), before + part)
            else:
                of_family = summed[family_of(cell, name)]
                of_family[name] = of_family.get(name, 0.0) + part
        for family, parts in summed.items():
            for kind in _kinds(family, cell):
                self._kinds.setdefault(kind, _Runs()).add(cell, parts)

    def expect(self, cell: Cell) -> dict[str, dict[str, float]]:
        """Seconds of one run by family and phase, of the families of which something is known; what
        is made once is left out."""
        known = {family: self._nearest(family, cell) for family in FAMILIES}
        return {family: runs.expect(cell) for family, runs in known.items() if runs}

    def _nearest(self, family: str, cell: Cell) -> _Runs | None:
        kinds = (kind for kind in _kinds(family, cell) if kind in self._kinds)
        return next((self._kinds[kind] for kind in kinds), None)

    def expect_once(self, cell: Cell) -> float | None:
        """Seconds that a study takes for what the first such cell makes for all."""
        if (once := made_once(cell)) is None:
            return 0.0
        alike = [(key[1], made) for (key, _), made in self._once.items() if key[0] == once[0]]
        here = [made for backing, made in alike if backing == once[1]]
        phase = _Phase()
        for size, seconds in here or [made for _, made in alike]:
            phase.add(size, seconds, None)
        return phase.expect(_size(cell), 0.0, phase.runs, grows=True) if phase.runs else None


# -- which runs are like another --------------------------------------------------------------

DISK, MACHINE, WORK = FAMILIES = ("disk", "machine", "work")
_FAMILY_OF = {
    **dict.fromkeys(("create", "source", "fill", "drop"), DISK),
    **dict.fromkeys(("folder", "start", "read_back", "stop", BETWEEN), MACHINE),
}
_IMAGE = ["preallocation", *(factor.name for factor in FACTORS if factor.formats)]
"""Factors that shape an image."""


def family_of(cell: Cell, phase: str) -> str:
    """What a phase depends on. A writer prepares its disk itself, and starts its own machine."""
    return WORK if cell.workload.kind == CRASH else _FAMILY_OF.get(phase, WORK)


def _kinds(family: str, cell: Cell) -> Iterator[Kind]:
    """From the nearest to the widest; a backing of another name may be another disk."""
    spec, backing = cell.workload, cell.level("backing")
    if spec.kind == CRASH and family != WORK:
        return
    frontend, form = cell.level("frontend"), cell.level("format")
    if family == DISK:
        whole = (family, spec.option("fill"), _own_system(cell))
        image = [cell.level(factor) for factor in _IMAGE]
        yield (*whole, form, *image, backing)
        yield (*whole, form, *image)
        yield (*whole, form)
        yield whole
    elif family == MACHINE:
        machine = (family, frontend, cell.level("accel"), spec.kind if _own_system(cell) else "")
        yield (*machine, backing)
        yield machine
    else:
        levels = [f"{factor}={level}" for factor, level in cell.levels if factor != "backing"]
        yield (family, spec.kind, spec.name, *levels, "on", backing)
        yield (family, spec.kind, spec.name, *levels)
        yield (family, spec.kind, spec.name, "format", frontend, form)
        own = "own states" if reads_states_itself(cell) else ""
        load = (family, spec.kind, "rw", spec.option("rw"), frontend, own)
        yield (*load, "format", form)
        yield load


def reads_states_itself(cell: Cell) -> bool:
    """Whether no other program has to open the states of a crash: they are judged in a blink, all
    others until the time is over."""
    return cell.workload.name == "ledger" and cell.level("format", "raw") == "raw"


def _own_system(cell: Cell) -> str:
    """Marks disks that hold a system of their own."""
    return cell.workload.kind if has_own_system(cell.workload.kind) else ""


def _size(cell: Cell) -> float:
    """GiB of its disk."""
    return int(cell.workload.option("size", "0")) / (1 << 30)


def _grows(cell: Cell, phase: str) -> bool:
    """Whether a phase grows with the disk: what a program does with it, too; fio has its time."""
    fio = cell.workload.kind in ("fio", "fio-job")
    return phase in SIZED or phase == LOAD and not fio


def asked_seconds(cell: Cell, phase: str) -> float | None:
    """What a phase of a cell is asked to take; None where it takes what it takes."""
    spec = cell.workload
    if phase == LOAD and spec.kind == "fio":
        return float(spec.option("runtime", "0")) + float(spec.option("ramp", "0"))
    return float(spec.option("explore_seconds", "0")) if phase.startswith(EXPLORE) else None


def made_once(cell: Cell) -> Once | None:
    """What the first run of a call makes for this cell and all like it."""
    if has_own_system(cell.workload.kind):
        return ("base image", "", cell.workload.option("scale"))
    if cell.workload.option("fill") == "on":
        return ("make_data", cell.level("backing"), cell.workload.option("size"))
    return None
