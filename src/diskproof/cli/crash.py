"""``diskproof crash``: the cells that a study crashes on this host, and its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from types import MappingProxyType
from typing import NamedTuple, Never

from diskproof.backings import Consent
from diskproof.cli.conduct import ensure_guest, make_setup, probe_host, study_record
from diskproof.cli.terminal import console, note, print_json
from diskproof.cli.watch import Words, failure_lines
from diskproof.crash.explore import Explorer, explore
from diskproof.crash.flush_audit import FlushesJson, audit_flushes
from diskproof.crash.next import CrashCampaign, CrashJob, crash_jobs, expect_first
from diskproof.crash.run import CrashLab
from diskproof.crash.verdict import fall_short
from diskproof.errors import DiskproofError, UsageError
from diskproof.guest.ours.build import find_guest
from diskproof.lab.course import Outcome, Standing, start_telling
from diskproof.plan import make_crash_plan
from diskproof.plan.estimate import foretell_verdicts
from diskproof.plan.history import History
from diskproof.plan.like import tell_of_names
from diskproof.plan.sizes import tell_of_backings
from diskproof.recording.folder import require_fuse
from diskproof.records import HostFacts
from diskproof.records.verdicts import CrashRun, VerdictRow
from diskproof.report.crash.cause_table import causes_of, render_causes
from diskproof.report.crash.cell_names import telling_factors
from diskproof.report.crash.table import render_verdicts
from diskproof.report.durability import crash_cells_json, run_text
from diskproof.report.labels import cell_label, count, varying_factors
from diskproof.store import Store
from diskproof.study.crash import BESIDE, extra_of
from diskproof.study.guest_root import describe_root
from diskproof.study.load import Study
from diskproof.units import render_seconds


@contextmanager
def start_crashing(
    study: Study, consent: Consent, cluster: str | None, store: Store
) -> Iterator[CrashWords]:
    """A study ready to be crashed."""
    with start_explorer(cluster) as explorer:
        facts = probe_host(study, consent)
        cells, dropped = make_crash_plan(study, facts)
        for each in dropped:
            note(f"left out, {each.count} of the cells: {each.reason}")
        guests = [cell for cell in cells if cell.level("frontend") == "guest"]
        for extra in {extra_of(cell.workload) for cell in guests} - {""}:
            ensure_guest(extra)
        lab = CrashLab(make_setup(study, facts, consent, store), explorer)
        told = (*tell_of_names(study, cells, facts), *tell_of_backings(cells, facts))
        record = study_record(study, told=told)
        yield CrashWords(CrashCampaign(record, cells, study.crash.faults, lab.execute, store))


@contextmanager
def start_explorer(cluster: str | None) -> Iterator[Explorer]:
    """Who looks for losses: this host, or a cluster."""
    if cluster is None:
        yield explore
        return
    from diskproof.crash.fleet import start_fleet  # its packages are an extra

    with start_fleet(cluster) as explorer:
        yield explorer


WRITEBACK = (
    "beside=writeback: the program once more, while its file system commits and writes back "
    "between its operations, as it does by itself in longer runs and for other programs"
)


def beside_words(rows: Iterable[VerdictRow]) -> Iterator[str]:
    """What a level says that no study names."""
    if any(row.cell.level(BESIDE) for row in rows):
        yield WRITEBACK


class CrashWords(Words[CrashJob, CrashRun, Never]):
    """A job is a cell with several verdicts, and those are counted."""

    one = "cell"

    def __init__(self, campaign: CrashCampaign) -> None:
        self.campaign: CrashCampaign = campaign
        self.factors = telling_factors(campaign.cells)

    def label(self, job: CrashJob) -> str:
        return f"{cell_label(job.cell, self.factors)} {job.cell.workload.name}"

    def line(self, run: CrashRun) -> str:
        head = f"{cell_label(run.cell, self.factors)}  {run.writer}"
        if (failure := run.failure) is not None:
            return failure_lines(head, failure)
        return f"{head}  {run_text(run)}"

    def left(self, standing: Standing) -> str:
        return f"{standing.total - standing.done} verdicts"

    def verdicts(self) -> list[VerdictRow]:
        """Those of the cells that were asked about."""
        wanted = {cell.id for cell in self.campaign.cells}
        rows = self.campaign.store.verdicts(self.campaign.study.id)
        return [row for row in rows if row.cell.id in wanted]

    def print_results(self, as_json: bool) -> None:
        rows = self.verdicts()
        if as_json:
            print_json(crash_cells_json(rows))
        elif rows:
            console().print(render_verdicts(rows))
            for row, causes in causes_of(rows):
                console().print(
                    render_causes(causes, f"{row.cell.workload.name}, {row.verdict.fault}")
                )

    def closing(self, outcome: Outcome, resume: str) -> Sequence[str]:
        return [*beside_words(self.verdicts())]

    def falls_short(self, outcome: Outcome) -> bool:
        """Where a promise was broken that a setting can keep, or nothing could be said."""
        return fall_short([row.verdict for row in self.verdicts()])


class PlannedVerdicts(NamedTuple):
    """What judging the cells of a study takes, about and at most, in seconds and by phase, by what
    ``estimated_from_runs`` took here; or what forbids it."""

    cells: int
    verdicts: int
    at_most_seconds: float
    estimated_seconds: float = 0.0
    estimated_phases: Mapping[str, float] = MappingProxyType({})
    estimated_from_runs: int = 0
    obstacle: str = ""

    @property
    def text(self) -> str:
        if self.obstacle:
            return f"which keep the data is not judged: {self.obstacle}"
        most = f"at most {render_seconds(self.at_most_seconds)} more"
        about = f"About {render_seconds(self.estimated_seconds)}"
        return (
            f"then {count(self.verdicts, 'verdict')} on {count(self.cells, 'cell')}: which keep "
            f"the data? {about}, {most}"
        )


def plan_verdicts(
    study: Study, facts: HostFacts, history: History | None = None
) -> PlannedVerdicts:
    """A study can be measured where none of its cells can be judged."""
    try:
        require_fuse()
        cells, _ = make_crash_plan(study, facts)
    except DiskproofError as error:
        why = "; ".join(filter(None, (error.what, error.why)))
        return PlannedVerdicts(0, 0, 0.0, obstacle=why)
    guests = [cell for cell in cells if cell.level("frontend") == "guest"]
    for extra in sorted({extra_of(cell.workload) for cell in guests} - {""}):
        if find_guest(extra) is None:
            note(f"the guest with {describe_root(extra)} is not built: `crash` and `run` build it")
    jobs, phases = crash_jobs(cells, study.crash.faults), Counter[str]()
    history = history or History()
    for job in jobs:
        phases.update(foretell_verdicts(job.cell, job.faults, history))
    return PlannedVerdicts(
        len(jobs),
        sum(len(job.faults) for job in jobs),
        round(sum(map(expect_first, jobs)), 1),
        round(sum(phases.values()), 1),
        {name: round(part, 1) for name, part in phases.most_common()},
        history.runs,
    )


class JudgeWords(CrashWords):
    """Verdicts beside what was measured: a loss is an answer, and only what nobody could say falls
    short."""

    def opening(self) -> Sequence[str]:
        return ()  # what was measured began with it

    def falls_short(self, outcome: Outcome) -> bool:
        return any(row.verdict.verdict == "undecided" for row in self.verdicts())


@contextmanager
def start_judging(study: Study, consent: Consent, store: Store) -> Iterator[JudgeWords]:
    """The cells of a study ready to be judged, after they were measured."""
    require_fuse()
    with start_crashing(study, consent, None, store) as words:
        yield JudgeWords(words.campaign)


def audit_guests(study: Study, consent: Consent, store: Store) -> list[FlushesJson]:
    """The flushes of each guest of a study, told of as they are counted."""
    facts = probe_host(study, consent)
    planned, _ = make_crash_plan(study, facts)
    guests = [cell for cell in planned if cell.level("frontend") == "guest"]
    cells = {cell.levels: cell for cell in guests if not cell.level(BESIDE)}
    if not cells:
        raise UsageError(f"study {study.name!r} has no guests to ask", hint='frontend = "guest"')
    backings = {backing.name: backing for backing in study.backings}
    factors = varying_factors(cells.values())
    found: list[FlushesJson] = []
    if store.find_study(study.id) is None:  # until the end: progress is that of a study
        store.add_study(study_record(study))
    try:
        with start_telling(store, study.id) as tell:
            for done, cell in enumerate(cells.values()):
                label = cell_label(cell, factors)
                tell(f"flushes of {label}", Standing(done, 0, len(cells), float("nan")))
                note(f"[{done + 1}/{len(cells)}] {label}")
                accel = cell.level("accel", "auto")
                accel = facts.accel if accel == "auto" else accel
                counts = audit_flushes(cell, backings[cell.level("backing")], consent, accel)
                rows = [{**asdict(row), "finding": row.finding} for row in counts]
                found.append({"cell": cell.levels_dict(), "label": label, "counts": rows})
    finally:
        store.remove_unused_study(study.id)
    return found
