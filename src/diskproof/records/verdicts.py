"""Verdicts of crash runs: what a fault leaves of what a writer was promised."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, Self, get_args

from diskproof.records import Artefact, Cell, Check, Failure

Fault = Literal[
    "power",
    "qemu-kill",
    "guest-kill",
    "lying-device",
    "old-content",
    "power-ext4",
    "power-ext4-journal",
    "power-ext4-writeback",
    "power-xfs",
    "power-btrfs",
    "power-f2fs",
    "power-f2fs-unwaited",
]
FAULTS: tuple[Fault, ...] = get_args(Fault)
PROFILES: Mapping[str, Fault] = {
    "ext4": "power-ext4",
    "ext4-journal": "power-ext4-journal",
    "ext4-writeback": "power-ext4-writeback",
    "xfs": "power-xfs",
    "btrfs": "power-btrfs",
    "f2fs": "power-f2fs",
    "f2fs-unwaited": "power-f2fs-unwaited",
}
"""A power cut under what a file system promises beyond POSIX, by the file system: ext4 in each of
its data modes; f2fs as it is meant, and as Linux has it."""
Durability = Literal["keeps", "undecided", "loses", "corrupts"]
"""From good to bad: of what is undecided nobody knows that it keeps."""
DURABILITIES: tuple[Durability, ...] = get_args(Durability)


COVERED = "covered"
"""The key of a verdict's details for what a search covered by its meaning."""
EQUAL = "states_equal"
"""The key of a verdict's details for how many states were judged without a run of the check."""
_NOT_NOTED = "the search ended early, and what it had covered was not noted then"


@dataclass(frozen=True)
class TraceEvent:
    """One thing that happened to the disk, for the picture of a loss.

    ``seconds`` counts from the first event shown. ``kind`` is ``write``, ``name`` (of names and
    attributes), ``flush``, ``acknowledge`` or ``cut``; ``state`` says what became of a change or an
    acknowledgement: ``kept``, ``missing``, ``torn``, ``lost`` or empty.
    """

    seconds: float
    kind: str
    state: str = ""
    text: str = ""


@dataclass(frozen=True)
class Verdict:
    """What one fault leaves of what a writer was promised, over all states that were checked.

    ``lost`` counts acknowledged writes missing in the worst state, ``age_seconds`` is how long
    before the cut the oldest of them had been acknowledged. ``states_total`` is None where it is
    not known how many different states there are, and ``estimated`` says that it was not counted.
    ``cut`` and ``missing`` are log sequence numbers: the smallest loss that was found is the
    state at ``cut`` without those writes. ``reason`` says why it is undecided or what is corrupt.
    """

    fault: Fault
    verdict: Durability
    lost: int = 0
    age_seconds: float = 0.0
    states_checked: int = 0
    states_total: int | None = None
    estimated: bool = False
    cuts: int = 0
    seed: int = 0
    cut: int | None = None
    missing: tuple[int, ...] = ()
    reason: str = ""
    reproduce: str = ""
    seconds: float = 0.0
    timeline: tuple[TraceEvent, ...] = ()
    details: Mapping[str, object] = field(default_factory=dict)

    @property
    def badness(self) -> tuple[int, int, float]:
        """Larger is worse: the word, then how much is lost, then how old it is."""
        return DURABILITIES.index(self.verdict), self.lost, self.age_seconds

    @property
    def is_broken(self) -> bool:
        """Whether a promise was broken."""
        return self.verdict in ("loses", "corrupts")

    @property
    def kept_so_far(self) -> bool:
        """Whether it is undecided for nothing but what the search left out."""
        return self.verdict == "undecided" and COVERED in self.details

    @property
    def states_equal(self) -> int:
        """How many of the checked states were judged by another, which equals them in all that the
        check read of it."""
        equal = self.details.get(EQUAL, 0)
        return equal if isinstance(equal, int) else 0

    @property
    def as_far_as_covered(self) -> Self:
        """The verdict; ``undecided`` where a search ended early that did not note what it had
        covered, as those of earlier versions in a store."""
        if self.verdict != "keeps" or not self.estimated or COVERED in self.details:
            return self
        details = {**self.details, COVERED: None}
        return replace(self, verdict="undecided", reason=_NOT_NOTED, details=details)

    @property
    def counts(self) -> bool:
        """Whether a setting answers for it: none can make up for a disk that lies, or that gives
        new files what others left."""
        return self.fault not in ("lying-device", "old-content")


@dataclass(frozen=True)
class VerdictRow:
    """A verdict that counts. ``cell.workload`` is the writer; ``counts`` are of its recording,
    ``ended`` is the Unix time at which it was made, in seconds."""

    study_id: str
    host_id: str
    run_id: str
    cell: Cell
    verdict: Verdict
    counts: Mapping[str, int] = field(default_factory=dict)
    ended: float = 0.0


@dataclass(frozen=True)
class CrashRun:
    """One recorded writer in one stack and its verdicts; stored in one transaction.

    ``cell.workload`` is the writer with everything that shaped recording and exploring.
    ``counts`` are of the recording: writes, flushes, acknowledgements, bytes. A ``failure`` is
    why there is nothing to judge; every verdict is then ``undecided``.
    """

    id: str
    study_id: str
    cell: Cell
    host_id: str
    started: float
    ended: float
    verdicts: tuple[Verdict, ...]
    failure: Failure | None = None
    checks: tuple[Check, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    artefacts: tuple[Artefact, ...] = ()
    phases: tuple[tuple[str, float], ...] = ()

    @property
    def writer(self) -> str:
        return self.cell.workload.name

    @property
    def rows(self) -> Iterator[VerdictRow]:
        """Its verdicts, each with what it is of."""
        of_run = (self.study_id, self.host_id, self.id, self.cell)
        told = (each.as_far_as_covered for each in self.verdicts)
        return (VerdictRow(*of_run, each, self.counts, self.ended) for each in told)
