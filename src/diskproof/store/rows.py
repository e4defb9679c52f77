"""What a store answers with, beside the records it was given."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from diskproof.records import Cell, Failure, Status


@dataclass(frozen=True)
class ResultRow:
    """One metric of one cell, measured on one host: a value per counted run that went well.

    ``values``, ``blocks`` and ``run_ids`` run in parallel, in the order of the blocks.
    """

    study_id: str
    host_id: str
    cell: Cell
    metric: str
    unit: str
    higher_is_better: bool
    primary: bool
    values: tuple[float, ...]
    blocks: tuple[int, ...]
    run_ids: tuple[str, ...]

    def only(self, wanted: Callable[[int, str], bool]) -> "ResultRow":
        """The row with those of its runs alone of which block and id are wanted; maybe none."""
        runs = zip(self.values, self.blocks, self.run_ids, strict=True)
        kept = [(value, block, run) for value, block, run in runs if wanted(block, run)]
        values, blocks, run_ids = zip(*kept, strict=True) if kept else ((), (), ())
        return replace(self, values=values, blocks=blocks, run_ids=run_ids)


@dataclass(frozen=True)
class RunRow:
    """One run without what it left behind; ``phases`` are (name, seconds).

    ``counted`` is False for a failed attempt that a retry replaced.
    """

    id: str
    study_id: str
    cell: Cell
    host_id: str
    block: int
    position: int
    started: float
    ended: float
    status: Status
    counted: bool
    failure: Failure | None
    phases: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class RunCounts:
    """Runs of a study: ``planned`` is cells x blocks, the others are counted runs."""

    planned: int
    ok: int
    failed: int


@dataclass(frozen=True)
class Progress:
    """How far a study is, for ``status`` in another terminal.

    ``pid`` is meaningful on ``host`` while ``boot_id`` is that of its running kernel. Times are
    Unix times in seconds; ``eta_seconds`` counts from ``updated`` and is None while unknown.
    """

    study_id: str
    pid: int
    boot_id: str
    host: str
    started: float
    total: int
    done: int
    failed: int
    current: str
    eta_seconds: float | None
    updated: float
