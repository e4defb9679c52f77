"""The whole race, replayed block by block from values: the same values give the same course."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.likely import Kernels, Levels, Likely, draw_cells, judge_likely
from diskproof.stats.racing import Drop, RaceVerdict, judge
from diskproof.study.protocol import RaceRules

Array = NDArray[np.float64]


PATIENCE = 5
"""Blocks before a race may be given up as futile: earlier, nobody knows what it would take."""


@dataclass(frozen=True)
class RaceCourse:
    """``entries[b]`` are the cells that ran, or are to run, in block b; the last entry belongs to
    the block that is not complete yet (empty when the race is over). ``verdicts[b]`` is what was
    known after block b; ``likely`` what a race for the likely best knows after the last."""

    cells: int
    entries: tuple[tuple[int, ...], ...]
    verdicts: tuple[RaceVerdict, ...]
    likely: Likely | None = field(default=None, compare=False)

    @property
    def drops(self) -> tuple[Drop, ...]:
        return tuple(drop for verdict in self.verdicts for drop in verdict.dropped)

    @property
    def settled(self) -> bool:
        return bool(self.verdicts) and self.verdicts[-1].settled

    @property
    def over(self) -> bool:
        """No further block is to be run."""
        return not self.entries[-1]


class Race:
    """A race as it goes: blocks are added when they are complete. ``levels`` of the cells, by
    factor, are what a likely one knows of them beforehand."""

    def __init__(self, cells: int, rules: RaceRules, levels: Levels = ()) -> None:
        self.rules = rules
        self.cells = cells
        self.runs = 0
        self._draws: Array | None = None
        self._kernels = Kernels.of(levels or [{}] * cells) if rules.likely else None
        self._racing = tuple(range(cells))
        self._rows: list[Sequence[float]] = []
        self._entries: list[tuple[int, ...]] = [tuple(range(cells))]
        self._verdicts: list[RaceVerdict] = []

    @property
    def racing(self) -> tuple[int, ...]:
        """The cells that run in the next block; none when the race is over."""
        return self._entries[-1]

    @property
    def not_out(self) -> tuple[int, ...]:
        """The cells that run in the next block and those that rest."""
        return self._racing

    def add_block(self, values: Sequence[float]) -> RaceVerdict:
        """Take a complete block: a logarithm for each cell of the study, larger is better; nan for
        a failed run and for cells that are out. Judges, and says who goes on."""
        self._rows.append(values)
        self.runs += len(self.racing)
        verdict = self._judge(np.array(self._rows, dtype=float))
        self._racing = verdict.racing
        self._verdicts.append(verdict)
        spent = len(self._rows) >= self.rules.max_blocks
        spent |= self.runs + len(verdict.entry) > self.rules.most_runs(self.cells)
        over = verdict.settled or spent or self._is_futile(verdict)
        self._entries.append(() if over else verdict.entry)
        return verdict

    def _judge(self, table: Array) -> RaceVerdict:
        if self._kernels is None:
            return judge(table, self._racing, self.rules)
        self._draws = draw_cells(table, self._kernels)
        return judge_likely(table, self._draws, self._racing, self.rules)

    def _is_futile(self, verdict: RaceVerdict) -> bool:
        """Whether max_blocks cannot be expected to settle it, and the answer is probable enough to
        leave it there. Nothing is claimed by that: the race ends undecided."""
        probable = verdict.probability >= (1 + self.rules.confidence) / 2
        hopeless = verdict.blocks_needed > self.rules.max_blocks
        return len(self._rows) >= max(PATIENCE, self.rules.min_blocks) and probable and hopeless

    def course(self) -> RaceCourse:
        known = (
            None if self._draws is None else Likely.of(self._draws, self._racing, self.rules.margin)
        )
        return RaceCourse(self.cells, tuple(self._entries), tuple(self._verdicts), known)
