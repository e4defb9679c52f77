"""Make one crash run for real: record, explore each fault, judge, keep what is needed to repeat."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from diskproof.crash import program
from diskproof.crash.cause_search import look_for_causes
from diskproof.crash.end_state import check_end_state
from diskproof.crash.explore import SLACK_SECONDS, Explorer, StateSearch, explore
from diskproof.crash.listing import list_operations
from diskproof.crash.real_fs import find_real_fs, find_threads
from diskproof.crash.record import Recorded, start_recorded
from diskproof.crash.timeline import make_timeline
from diskproof.crash.verdict import Explored, as_bad_as, judge, undecided
from diskproof.crash.writers import load_writer
from diskproof.lab.course import Activity, Tell
from diskproof.lab.deadline import Deadline
from diskproof.lab.notes import RunNotes
from diskproof.lab.setup import LabSetup
from diskproof.process.start import run
from diskproof.recording.log import writes_mapped
from diskproof.records import Artefact, Cell
from diskproof.records.causes import CAUSES, read_causes
from diskproof.records.verdicts import PROFILES, CrashRun, Fault, Verdict
from diskproof.study.crash import writer_of
from diskproof.units import render_seconds

LOG_ARTEFACT, BASE_ARTEFACT = "crash.log", "base.tar"
END_SECONDS = 600.0
"""For what comes with a search: evidence that is packed and sent, the check of one end state."""
MAX_KEPT = 48 << 20
"""Bytes of a log or base that are kept in the store; what is larger cannot be shown again."""


class CrashLab:
    """The real maker of crash runs."""

    def __init__(self, setup: LabSetup, explorer: Explorer = explore) -> None:
        self.setup, self.explorer = setup, explorer

    def execute(self, cell: Cell, faults: Sequence[Fault], tell: Tell) -> CrashRun:
        """One crash run; what goes wrong is its result. Raises only for Ctrl-C and defects."""
        notes, counts = RunNotes(), {}
        verdicts: tuple[Verdict, ...] = ()
        with (
            notes.whole_run(self.setup.run_timeout) as deadline,
            self._start(cell, deadline, notes) as recorded,
        ):
            counts = dict(recorded.summary.counts)
            with deadline.apart(judging_seconds(cell, len(faults))):
                verdicts = judge_all(recorded, cell, faults, self.explorer, notes, tell)
            with notes.phase("keep"):
                notes.keep(keep_evidence(recorded))
        if failure := notes.failure:
            seed = int(cell.workload.option("seed"))
            reason = ": ".join(filter(None, (failure.kind, failure.what, failure.why)))
            verdicts = tuple(undecided(fault, reason, seed) for fault in faults)
        return CrashRun(
            notes.id,
            self.setup.study_id,
            cell,
            self.setup.host_id,
            notes.started,
            notes.ended,
            verdicts,
            failure,
            tuple(notes.checks),
            counts,
            tuple(notes.artefacts.values()),
            tuple(notes.phases),
        )

    def _start(
        self, cell: Cell, deadline: Deadline, notes: RunNotes
    ) -> AbstractContextManager[Recorded]:
        setup, backing = self.setup, self.setup.backings[cell.level("backing")]
        if program.is_program(cell):
            return program.start_recorded_program(cell, backing, setup.consent, deadline, notes)
        return start_recorded(cell, backing, setup.consent, setup.accel, deadline, notes)


MAPPED_KILL = (
    "the program writes through mapped files: what it had stored there outlives it, and is seen "
    "only when the kernel writes it; the loss that was found may be none"
)


def judging_seconds(cell: Cell, faults: int) -> float:
    """What all searches for losses may take at most: each bounds itself, a fleet that begins a part
    anew by twice its time."""
    search = float(cell.workload.option("explore_seconds"))
    causes = float(cell.workload.option("causes_seconds", "0")) + SLACK_SECONDS
    return faults * (2 * (search + SLACK_SECONDS) + END_SECONDS + causes)


def find_check(cell: Cell) -> Mapping[str, object]:
    """The check of a crash cell's states, as the explorer's request takes it."""
    if program.is_program(cell):
        return program.program_check(cell)
    return load_writer(writer_of(cell.workload)).check(cell)


def judge_all(
    recorded: Recorded,
    cell: Cell,
    faults: Sequence[Fault],
    explorer: Explorer,
    notes: RunNotes,
    tell: Tell,
) -> tuple[Verdict, ...]:
    """A verdict for each fault on one recording, at least as bad as the worst of its causes."""
    check = find_check(cell)
    search = partial(search_fault, recorded, cell, check, explorer)
    verdicts: list[Verdict] = []
    for fault in faults:
        with notes.phase(f"explore_{fault}"):
            found = search(fault, lambda so_far: tell(Activity(_describe_search(so_far))))
        causes: dict[str, object] = {}
        if seconds := seconds_for_causes(found, cell, verdicts):
            tell(Activity("looking for causes"))
            with notes.phase("causes"):
                wanted = make_search(recorded, cell, check, fault, seconds)
                causes = look_for_causes(wanted, recorded.room)
            found = as_bad_as(found, read_causes(causes).found)
        verdict = judge(found)
        if fault == "qemu-kill" and verdict.is_broken and writes_mapped(recorded.log):
            verdict = undecided(fault, MAPPED_KILL, verdict.seed)
        if causes:
            verdict = replace(verdict, details={**verdict.details, CAUSES: causes})
        verdicts.append(_finish(verdict, recorded, notes.id))
    return tuple(verdicts)


def seconds_for_causes(found: Explored, cell: Cell, before: Sequence[Verdict]) -> float:
    """How long to look for causes of what power takes, and for flushes that nobody needs; 0 where
    nobody asks for them. By a file system's rules only where those of POSIX, which come ``before``,
    lose nothing."""
    if found.fault == "power":
        wanted = found.worst is not None or cell.workload.option("causes_of") == "all"
    else:
        lost_by = [each.fault for each in before if each.is_broken]
        wanted = bool(found.worst and found.fault in PROFILES.values() and "power" not in lost_by)
    return float(cell.workload.option("causes_seconds", "0")) if wanted and found.promises else 0.0


def _describe_search(found: Explored) -> str:
    """A search that goes on, with the worst so far."""
    worst = found.worst
    lost = f"{worst.verdict} {worst.lost or ''}".rstrip() if worst else "nothing lost so far"
    states = f"{found.states_checked:,} states in {render_seconds(found.seconds)}"
    return f"{found.fault}: {states}, {lost}"


def leaves_one_state(cell: Cell, fault: Fault) -> bool:
    """Whether there is nothing to search: the state at the end is what the fault leaves. The file
    system of a program on its own outlives the program, and writes back what it holds."""
    return fault == "guest-kill" or (fault == "qemu-kill" and bool(cell.level("on")))


def search_fault(
    recorded: Recorded,
    cell: Cell,
    check: Mapping[str, object],
    explorer: Explorer,
    fault: Fault,
    tell: Callable[[Explored], None],
) -> Explored:
    """Everything that is known of what one fault leaves of a recording."""
    spec = cell.workload
    seed, seconds = int(spec.option("seed")), float(spec.option("explore_seconds"))
    promises = recorded.promises
    if leaves_one_state(cell, fault):
        found = Explored(fault, promises, 0, 1, False, 1, seed, 0.0)
        files = recorded.files
        within = program.CHECK_SECONDS if cell.level("on") else max(seconds, 120.0)
        return check_end_state(found, files, recorded.room, recorded.killed, check, within)
    return explorer(make_search(recorded, cell, check, fault, seconds), recorded.room, tell)


def make_search(
    recorded: Recorded, cell: Cell, check: Mapping[str, object], fault: Fault, seconds: float
) -> StateSearch:
    spec, on = cell.workload, find_real_fs(cell)
    return StateSearch(
        log=recorded.killed,
        base=recorded.base,
        fault=fault,
        check=check,
        promises=recorded.promises,
        sector=int(spec.option("sector")),
        discard_granularity=int(spec.option("discard_granularity") or 0),
        seed=int(spec.option("seed")),
        states=int(spec.option("states")),
        seconds=seconds,
        threads=find_threads(on) if on else None,
    )


def _finish(verdict: Verdict, recorded: Recorded, run_id: str) -> Verdict:
    """The verdict with the course of its loss and the way to see it again."""
    if not verdict.is_broken:
        return verdict
    cut = verdict.cut or 0
    lost = verdict.details.get("smallest_lost")
    sequences = lost if isinstance(lost, list) else ()
    state = str(verdict.details.get("smallest_state") or "")
    operations = list_operations(recorded.killed, recorded.base, state, recorded.room)
    timeline = make_timeline(operations, cut, sequences)
    shown = f"diskproof crash reproduce {run_id} --fault {verdict.fault}"
    return replace(verdict, timeline=timeline, reproduce=shown)


def keep_evidence(recorded: Recorded) -> tuple[Artefact, ...]:
    """Log and base, as far as a store should hold them."""
    kept = []
    if recorded.log.stat().st_size <= MAX_KEPT:
        media = "application/octet-stream"
        kept.append(Artefact(LOG_ARTEFACT, media, recorded.log.read_bytes()))
    archive = pack_folder(recorded.base)
    if archive is not None:
        kept.append(Artefact(BASE_ARTEFACT, "application/x-tar", archive))
    return tuple(kept)


def pack_folder(folder: Path) -> bytes | None:
    """A folder as tar with its holes left out; None when it is too large to keep."""
    argv = ["tar", "--create", "--sparse", "--directory", str(folder), "--file=-", "."]
    archive = run(argv, timeout=120).stdout
    return archive if len(archive) <= MAX_KEPT else None
