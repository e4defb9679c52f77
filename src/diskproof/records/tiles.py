"""What is known of a run of tiles."""

from dataclasses import dataclass
from typing import Literal

from diskproof.records import Artefact, Cell, Check, Failure, Metric, Series

Phase = Literal["setup", "load", "check"]


@dataclass(frozen=True)
class StepRun:
    """One step of one guest. Times in seconds from the begin of the load (set-up is before it);
    ``status`` None: it did not end."""

    tile: int
    guest: str
    step: str
    phase: Phase
    work: str
    started: float
    ended: float
    status: int | None


@dataclass(frozen=True)
class WorkRun:
    """What one workload of one tile reached; ``guest`` drove it."""

    tile: int
    work: str
    guest: str
    metrics: tuple[Metric, ...]

    def value(self, name: str) -> float | None:
        return next((metric.value for metric in self.metrics if metric.name == name), None)


@dataclass(frozen=True)
class GuestUse:
    """What one guest's QEMU took of the host from the begin of the load to its end.

    ``memory_bytes`` is the largest resident set, ``ksm_bytes`` what of it KSM shared at the end.
    """

    tile: int
    guest: str
    cpu_seconds: float
    read_bytes: int
    written_bytes: int
    memory_bytes: int
    ksm_bytes: int


@dataclass(frozen=True)
class TileRun:
    """One run of ``tiles`` tiles in one cell; stored in one transaction.

    ``started`` and ``ended`` are Unix times, ``seconds`` is the wall time of the load. ``repeat``
    counts the runs of a number of tiles in a cell from 1.
    """

    id: str
    study_id: str
    cell: Cell
    host_id: str
    tiles: int
    repeat: int
    started: float
    ended: float
    seconds: float
    steps: tuple[StepRun, ...] = ()
    works: tuple[WorkRun, ...] = ()
    uses: tuple[GuestUse, ...] = ()
    series: tuple[Series, ...] = ()
    checks: tuple[Check, ...] = ()
    failure: Failure | None = None
    artefacts: tuple[Artefact, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()
