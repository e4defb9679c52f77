"""Which cell to use: the best of those that keep, and of what is not told apart the simplest.

Pure: from the lines of a view with their verdicts. Every comparison is the ranking's own, of all
pairs of cells at once; nothing here picks a best cell and then tests it (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal

from diskproof.advice.dialect import Unsayable
from diskproof.records import Cell
from diskproof.records.virtual_machines import Levels
from diskproof.report.advice.judging import judging_seconds
from diskproof.report.advice.keeping import Keep, Keeping, find_keeping
from diskproof.report.advice.times import Times, times_of
from diskproof.report.barred import Bars
from diskproof.report.view import Line, StudyView, WorkloadView
from diskproof.stats.ranking import ratios_over
from diskproof.stats.study_race import RaceState
from diskproof.study.factors import DIRECT, FACTOR_BY_NAME, FACTORS
from diskproof.study.like import OF_DEVICES
from diskproof.units import parse_bytes

MAX_TRIES = 8
"""Disks that are tried as one for all workloads, the likeliest first."""
VM_FRONTENDS = ("guest", "own-guest", "daemon")
"""Cells that a manager's machine can be; a daemon's are the same nodes without a guest."""
NOT_SAID = frozenset({"frontend", "backing", "accel", "vcpus", "memory"})
"""Factors of a cell that are no setting of a disk: conditions."""
QEMU_DEFAULTS: Mapping[str, str] = {
    **{factor.name: factor.default for factor in FACTORS if factor.name not in NOT_SAID},
    "format": "raw",  # of qemu-img create; a study's default is the one with more to choose
}
Why = Literal["rule", "loses", "not judged", "slower", "migration", "cannot be said"]


def _says_all(levels: Levels) -> tuple[Unsayable, ...]:
    return ()


@dataclass(frozen=True)
class Wish:
    """What is asked for. ``stack`` names who runs the machines, ``defaults`` are what a new disk
    gets there, ``find_obstacles`` what cannot be said there. ``file`` is the study's, for commands.
    """

    keep: Keep = "power"
    migrates: bool = False
    disposable: bool = False
    stack: str = "QEMU"
    defaults: Mapping[str, str] = field(default_factory=lambda: QEMU_DEFAULTS)
    find_obstacles: Callable[[Levels], Sequence[Unsayable]] = _says_all
    file: str = ""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A cell that a machine could have. ``against`` are reasons against it; ``times`` is its speed
    over that of the chosen cell, ``is_apart`` whether the two are told apart."""

    line: Line
    keeping: Keeping
    against: tuple[tuple[Why, str], ...]
    unsayable: tuple[Unsayable, ...] = ()
    times: Times = Times(1.0, None, None)
    is_apart: bool = False

    @property
    def cell(self) -> Cell:
        return self.line.ranked.cell

    @property
    def why_not(self) -> str:
        return "; ".join(text for _, text in self.against)


@dataclass(frozen=True)
class Recommendation:
    """The answer on one workload. ``chosen`` is None where no cell may be advised.

    ``proved``: some cell that could have been chosen is proved slower, else there is no winner and
    ``chosen`` is what is nearest to the stack's default. ``ties`` could have been chosen as well
    and are not told apart from the best of them, ``leader``; ``faster`` may not be chosen and have
    a better mean, the fastest first. ``beside`` is what the gain is told against: the stack's
    default where it was measured, else the best of those that the chosen one is proved to beat.
    ``default`` is the fastest cell that has what the stack gives a new disk; ``is_default`` says
    that the chosen one has it.
    """

    load: WorkloadView
    wish: Wish
    frontend: str
    chosen: Candidate | None
    leader: Candidate | None
    ties: tuple[Candidate, ...]
    faster: tuple[Candidate, ...]
    refused: tuple[Candidate, ...]
    beside: Candidate | None
    default: Candidate | None
    is_default: bool
    proved: bool
    judge_seconds: float
    race: RaceState | None = None

    @property
    def keeps(self) -> bool:
        """Whether what was asked for is proved of the cell chosen; who asks for nothing has it."""
        return self.chosen is not None and (
            self.wish.keep == "none" or self.chosen.keeping.is_proved
        )

    @property
    def is_likely(self) -> bool:
        """Whether cells are told apart by a race for the likely best: that is no proof."""
        return self.race is not None and self.race.rules.likely

    @property
    def next_faster(self) -> Candidate | None:
        """Of those that are proved faster one of which nobody knows what it keeps, else one that
        loses nothing; of these the one that differs least from the chosen one: what that setting
        alone would bring. Where none is proved, the fastest by its mean."""
        chosen = self.chosen
        apart = [each for each in self.faster if each.is_apart]
        if chosen is None or not apart:
            return self.faster[0] if self.faster else None
        own = set(chosen.cell.levels)

        def reach(each: Candidate) -> tuple[bool, bool, int]:
            loses = any(why in ("rule", "loses") for why, _ in each.against)
            return bool(each.against), loses, len(own - set(each.cell.levels))

        return min(apart, key=reach)


def disk_levels(cell: Cell) -> dict[str, str]:
    """A cell's levels that a dialect writes. What the storage daemon calls an iothread is none of
    a guest's device."""
    unsaid = NOT_SAID | {*(OF_DEVICES if cell.level("frontend") == "daemon" else ())}
    return {name: level for name, level in cell.levels if name not in unsaid}


def recommend_all(
    view: StudyView, wish: Wish | None = None, among: frozenset[str] = frozenset()
) -> tuple[Recommendation, ...]:
    """An answer on each workload that has cells of a machine's disk."""
    races = view.parts.get("race", {})
    found = (recommend(view, load, wish, races.get(load.name), among) for load in view.workloads)
    return tuple(each for each in found if each.frontend)


def settle(view: StudyView, wish: Wish | None = None) -> tuple[Recommendation, ...]:
    """The same, and one disk for all workloads where some disk would do for each: a machine has one
    line, whatever it does. Else each has its own."""
    found = recommend_all(view, wish)
    could = [{levels_id(c.cell) for c in (r.chosen, *r.ties) if c} for r in found if r.chosen]
    if len(found) < 2 or len(could) < len(found) or len({_chosen_id(r) for r in found}) == 1:
        return found
    first = [levels_id(each.cell) for each in (found[0].chosen, *found[0].ties) if each]
    wanted = [_chosen_id(each) for each in found]
    shared = sorted(set.intersection(*could), key=lambda n: (n not in wanted, first.index(n)))
    for name in shared[:MAX_TRIES]:
        again = recommend_all(view, wish, frozenset({name}))
        if {_chosen_id(each) for each in again} == {name}:
            return again
    return found


def _chosen_id(found: Recommendation) -> str:
    return levels_id(found.chosen.cell) if found.chosen else ""


def recommend(
    view: StudyView,
    load: WorkloadView,
    wish: Wish | None = None,
    race: RaceState | None = None,
    among: frozenset[str] = frozenset(),
) -> Recommendation:
    """The answer on one workload. With ``among`` only cells of these levels' ids (``levels_id``)
    are chosen where one of them would do as well."""
    wish = wish or Wish()
    bars = Bars(view.study)
    choice = _Choice.best(load, wish, bars, view, race) or _Choice(load, wish, "", (), race)
    return choice.decide(among, judging_seconds(view, load))


def levels_id(cell: Cell) -> str:
    """The same for one disk under all workloads, in a guest or in none."""
    levels = {name: level for name, level in disk_levels(cell).items() if name != "bus"}
    return repr((sorted(levels.items()), cell.level("backing")))


class _Choice:
    """The candidates of one frontend: speeds are compared within it alone."""

    def __init__(
        self,
        load: WorkloadView,
        wish: Wish,
        frontend: str,
        candidates: Sequence[Candidate],
        race: RaceState | None,
    ) -> None:
        self.load, self.wish, self.frontend, self.race = load, wish, frontend, race
        self.all = list(candidates)
        free = [each for each in candidates if not each.against]
        sure = [each for each in free if each.keeping.is_proved]
        self.fitting = free if wish.keep == "none" else sure or free

    @classmethod
    def best(
        cls,
        load: WorkloadView,
        wish: Wish,
        bars: Bars,
        view: StudyView,
        race: RaceState | None,
    ) -> _Choice | None:
        """Of the frontends with cells: one that has cells which are proved to keep, then one with
        a choice at all, then a guest, unless it ran under emulation."""
        found = {}
        for frontend in VM_FRONTENDS:
            lines = [line for line in load.lines if line.ranked.cell.level("frontend") == frontend]
            made = [_candidate(line, wish, bars) for line in lines]
            if made:
                found[frontend] = cls(load, wish, frontend, made, race)

        def merit(choice: _Choice) -> tuple[bool, bool, bool]:
            some = choice.fitting
            sure = bool(some) and (wish.keep == "none" or some[0].keeping.is_proved)
            return sure, len(some) > 1, not is_emulated(choice.all[0].cell, view)

        return max(found.values(), key=merit, default=None)

    def decide(self, among: frozenset[str], seconds: float) -> Recommendation:
        leader = self._leader()
        tied = [each for each in self.fitting if leader and not self._apart(leader, each)]
        default = next((each for each in self.all if not self.distance(each)[0]), None)
        would_do = self._with_its_gain(leader, tied, default)
        named = [each for each in would_do if levels_id(each.cell) in among]
        chosen = min(named or would_do, key=self._order, default=None)
        beside = self._beside(chosen, default)
        told = self._compared(chosen)
        faster = self.all[: self.all.index(chosen)] if chosen else []
        return Recommendation(
            load=self.load,
            wish=self.wish,
            frontend=self.frontend,
            chosen=told(chosen) if chosen else None,
            leader=told(leader) if leader else None,
            ties=tuple(told(each) for each in tied if each is not chosen),
            faster=tuple(told(each) for each in faster if each not in self.fitting),
            refused=tuple(told(each) for each in self.all if each.against),
            beside=told(beside) if beside else None,
            default=told(default) if default else None,
            is_default=chosen is not None and not self.distance(chosen)[0],
            proved=len(tied) < len(self.fitting),
            judge_seconds=seconds,
            race=self.race,
        )

    def _leader(self) -> Candidate | None:
        """The best mean; in a race that is decided by more than means, who leads it."""
        leaders = {cell.id for cell in self.race.leaders} if self.race else set()
        ahead = [each for each in self.fitting if each.cell.id in leaders]
        return next(iter([*ahead, *self.fitting]), None)

    def _with_its_gain(
        self, leader: Candidate | None, tied: list[Candidate], default: Candidate | None
    ) -> list[Candidate]:
        """Of a tie those that share the leader's claim, to be better than the default or than the
        slowest; else what is chosen for being simple might gain nothing."""
        worse = [each for each in self.fitting if leader and self._apart(leader, each)]
        if leader is None or not worse:
            return tied
        against = default if default and self._beats(leader, default) else worse[-1]
        return [each for each in tied if self._beats(each, against)]

    def _beside(self, chosen: Candidate | None, default: Candidate | None) -> Candidate | None:
        if chosen is None:
            return None
        if default and self._beats(chosen, default):
            return default
        return next((each for each in self.fitting if self._beats(chosen, each)), None)

    def _beats(self, one: Candidate, other: Candidate) -> bool:
        return self._apart(one, other) and self.all.index(one) < self.all.index(other)

    def _apart(self, one: Candidate, other: Candidate) -> bool:
        """Whether two cells are told apart: by the race where one of them leads it, else by the
        ranking. Of a single run nothing is known."""
        if one is other:
            return False
        told = self.race.are_apart(one.cell, other.cell) if self.race else None
        if told is not None:
            return told
        return one.line.ranked.is_apart(other.line.ranked)

    def _compared(self, chosen: Candidate | None) -> Callable[[Candidate], Candidate]:
        """It puts a candidate beside the chosen one. All lines of the workload are compared, those
        of other frontends too: that is what the ranking's intervals hold for."""
        if chosen is None:
            return lambda each: each
        ids = [line.ranked.cell.id for line in self.load.lines]
        ratios = ratios_over(
            [line.sample for line in self.load.lines],
            ids.index(chosen.cell.id),
            self.load.higher_is_better,
            self.load.alpha,
        )

        @cache  # the same candidate is the same object wherever it is told of
        def told(place: int) -> Candidate:
            each = self.all[place]
            ratio = ratios[ids.index(each.cell.id)]
            times = times_of(ratio, self.load.higher_is_better)
            return replace(each, times=times, is_apart=self._apart(chosen, each))

        return lambda each: told(self.all.index(each))

    def _order(self, each: Candidate) -> tuple[int, tuple[int, int], int]:
        """The safest first, then the nearest to the stack's default, then the best mean."""
        return _danger(each), self.distance(each), self.all.index(each)

    def distance(self, each: Candidate) -> tuple[int, int]:
        """Levels that differ from the stack's default, and those that differ from QEMU's where the
        stack says nothing."""
        levels = disk_levels(each.cell)
        known = self.wish.defaults
        own = sum(not _same(name, levels[name], known[name]) for name in levels if name in known)
        rest = [name for name in levels if name not in known and name in QEMU_DEFAULTS]
        return own, sum(not _same(name, levels[name], QEMU_DEFAULTS[name]) for name in rest)


def is_emulated(cell: Cell, view: StudyView) -> bool:
    """Whether a cell's guest ran under QEMU's emulation, whose speeds carry over to no KVM."""
    if cell.level("frontend") == "daemon":
        return False
    asked = cell.level("accel", "auto")
    return (str(view.host.facts.get("accel", "")) if asked == "auto" else asked) == "tcg"


def _candidate(line: Line, wish: Wish, bars: Bars) -> Candidate:
    cell = line.ranked.cell
    keeping = find_keeping(line.durability, wish.keep, bars.find(cell))
    obstacles = tuple(wish.find_obstacles(disk_levels(cell)))
    against: list[tuple[Why, str]] = []
    for bar in keeping.bars:
        allowed = wish.keep == "none" if not bar.drops_flushes else wish.disposable
        if bar.useless or not allowed:
            against.append(("rule", bar.what))
    if wish.keep != "none" and keeping.word in ("loses", "corrupts"):
        against.append(("loses", keeping.word))
    if wish.migrates and cell.level("cache", "none") not in DIRECT:
        against.append(
            ("migration", "a machine that migrates needs a cache mode that bypasses the page cache")
        )
    for each in obstacles:
        against.append(("cannot be said", f"{each.factor}={each.level}: {each.reason}"))
    return Candidate(line, keeping, tuple(against), obstacles)


def _danger(each: Candidate) -> int:
    """Whatever was asked for: 0 is proved to keep in a power cut, 1 unknown, 2 broken, 3 barred."""
    keeping = find_keeping(each.line.durability, "power", each.keeping.bars)
    if keeping.bars:
        return 3
    return 0 if keeping.is_proved else 1 if keeping.is_open else 2


def _same(factor: str, level: str, other: str) -> bool:
    """Levels are equal as text, or as bytes (``32M``, ``32MiB``)."""
    known = FACTOR_BY_NAME.get(factor)
    if level == other or known is None or known.kind != "bytes":
        return level == other
    try:
        return parse_bytes(level) == parse_bytes(other)
    except ValueError:
        return False
