"""The races of a study, one per workload, from its stored runs alone.

Whoever holds the runs can replay them: the lab, to know what to run next; the page, to tell who was
dropped when and why.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diskproof.records import Cell, StudyRecord
from diskproof.study.protocol import RaceRules, find_rules

if TYPE_CHECKING:
    from diskproof.stats.race_course import RaceCourse
    from diskproof.stats.racing import RaceVerdict

Scores = Mapping[tuple[int, str], float]
"""(block, cell id) -> logarithm of a finished run's primary figure, larger is better; nan when the
run failed."""


def run_score(value: float | None, higher_is_better: bool) -> float:
    """What a run counts in a race; nan without a value that has a logarithm."""
    if value is None or not 0 < value < math.inf:
        return math.nan
    return math.log(value) if higher_is_better else -math.log(value)


@dataclass(frozen=True)
class RaceState:
    """Where the race of one workload stands; numbers of cells in ``course`` are places in
    ``cells``."""

    workload: str
    cells: tuple[Cell, ...]
    rules: RaceRules
    course: "RaceCourse"

    @property
    def verdict(self) -> "RaceVerdict | None":
        """What the complete blocks tell; None before the first."""
        return self.course.verdicts[-1] if self.course.verdicts else None

    @property
    def leaders(self) -> tuple[Cell, ...]:
        return self._named(self.verdict.leaders) if self.verdict else ()

    @property
    def tied(self) -> tuple[Cell, ...]:
        """Cells that are surely no more than delta better than a leader, nor surely worse."""
        return self._named(self.verdict.tied) if self.verdict else ()

    @property
    def open(self) -> tuple[Cell, ...]:
        """Cells that may still be better than a leader by more than delta."""
        return self._named(self.verdict.open) if self.verdict else self.cells

    def are_apart(self, one: Cell, other: Cell) -> bool | None:
        """Whether the race told two cells apart. One for the likely best: at its confidence one is
        faster. Else those that still run or rest are not, one that left because of the other is.
        None where it says nothing of the two."""
        if self.verdict is None:
            return None
        pair, known = {one.id, other.id}, self.course.likely
        if known:
            place = {cell.id: number for number, cell in enumerate(self.cells)}
            chance = known.chance_ahead(place[one.id], place[other.id])
            return max(chance, 1 - chance) >= self.rules.confidence
        if not pair & {cell.id for cell in self.leaders}:
            return None
        if pair <= {cell.id for cell in (*self.leaders, *self.tied, *self.open)}:
            return False
        left = ({self.cells[d.cell].id, self.cells[d.rival].id} for d in self.course.drops)
        return True if pair in left else None

    @property
    def racing(self) -> int:
        """Cells that run in the next block, or would: leaders and open ones."""
        return len(self.verdict.entry) if self.verdict else len(self.cells)

    @property
    def resting(self) -> int:
        """Cells that do not run unless the lead changes."""
        return len(self.verdict.tied) if self.verdict else 0

    def _named(self, places: Iterable[int]) -> tuple[Cell, ...]:
        return tuple(self.cells[place] for place in places)


class WorkloadRace:
    """One workload's race; ``advance`` takes in what has been finished. The order of the cells
    given does not matter."""

    def __init__(self, workload: str, cells: Sequence[Cell], rules: RaceRules) -> None:
        from diskproof.stats.race_course import Race

        self.workload = workload
        self.cells = tuple(sorted(cells, key=lambda cell: cell.id))
        self.rules = rules
        self._race = Race(len(cells), rules, [cell.levels_dict() for cell in self.cells])
        self.entrants = frozenset(cell.id for cell in cells)
        self.block = 0

    def advance(self, scores: Scores) -> "list[RaceVerdict]":
        """Judge every block that is complete by now, and say what that told."""
        verdicts = []
        while self.entrants and all((self.block, cell) in scores for cell in self.entrants):
            row = [
                scores[self.block, cell.id] if cell.id in self.entrants else math.nan
                for cell in self.cells
            ]
            verdict = self._race.add_block(row)
            self.block += 1
            self.entrants = frozenset(self.cells[place].id for place in self._race.racing)
            verdicts.append(verdict)
        return verdicts

    def runs_in(self, block: int) -> frozenset[str]:
        """Ids of the cells that run in this block; all blocks before must be complete."""
        return self.entrants if block == self.block else frozenset()

    def left(self, scores: Scores) -> list[Cell]:
        """The runs that remain at most, by cell: if no other cell leaves and all that rest come
        back."""
        if not self.entrants:
            return []
        now = [cell for cell in self.cells if cell.id in self.entrants]
        pending = [cell for cell in now if (self.block, cell.id) not in scores]
        later = self.rules.max_blocks - self.block - 1
        most = self.rules.most_runs(len(self.cells)) - self._race.runs - len(now)
        rest = later * [self.cells[place] for place in self._race.not_out]
        return pending + rest[: max(0, most)]

    def state(self) -> RaceState:
        return RaceState(self.workload, self.cells, self.rules, self._race.course())


def race_rules(study: StudyRecord) -> RaceRules | None:
    """When cells stop before the last block, as the study's text says; None where they do not."""
    return find_rules(study.text) if study.origin == "run" else None


def fixed_blocks(study: StudyRecord) -> int | None:
    """The blocks that every cell of a race runs whatever was seen: their runs are a fixed sample.
    None of a study that is no race."""
    rules = race_rules(study)
    return None if rules is None else rules.min_blocks


def start_races(study: StudyRecord, cells: Sequence[Cell]) -> tuple[WorkloadRace, ...]:
    """The races of a study before any run; none when it is no race."""
    rules = race_rules(study)
    if rules is None:
        return ()
    names = dict.fromkeys(cell.workload.name for cell in cells)
    return tuple(
        WorkloadRace(name, [cell for cell in cells if cell.workload.name == name], rules)
        for name in names
    )


def replay_races(study: StudyRecord, scores: Scores) -> tuple[RaceState, ...]:
    """How the races of a stored study went, as far as its complete blocks tell.

    A stored study keeps cells that a later plan lacks: cells without a run are left out once
    their workload has runs in a second block.
    """
    begun = {cell for _, cell in scores}
    later = {cell for block, cell in scores if block}
    going = {c.workload.name for c in study.cells if c.id in later}
    cells = [c for c in study.cells if c.id in begun or c.workload.name not in going]
    races = start_races(study, cells)
    for race in races:
        race.advance(scores)
    return tuple(race.state() for race in races)
