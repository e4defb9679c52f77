"""From what was typed to an exit code: the one way of every experiment."""

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from diskproof.backings import Consent
from diskproof.cli.sweeping import sweep_and_tell
from diskproof.cli.terminal import note
from diskproof.cli.typed import command_again
from diskproof.cli.watch import Words, start_watching
from diskproof.errors import DiskproofError, Exit, HostError
from diskproof.guest.ours.build import build_guest, find_guest
from diskproof.host.facts import host_record, probe_facts
from diskproof.lab.course import Job, News, Outcome, Run, is_running, run_course
from diskproof.lab.setup import LabSetup
from diskproof.plan import Plan
from diskproof.process.host_lock import start_alone
from diskproof.records import BackingSpec, HostFacts, HostRecord, StudyRecord
from diskproof.report.labels import count
from diskproof.store import Store, open_store
from diskproof.store.spool import spool_folder
from diskproof.study.backings import chain
from diskproof.study.load import Study
from diskproof.units import render_seconds


@dataclass(frozen=True)
class Order:
    """What can be asked of every experiment; ``budget`` in seconds, ``wait`` for the end of
    another measurement on this host. With ``until``, a moment of time.monotonic, all of it ends by
    then, and ``reserve`` seconds before are kept for judging what was measured so far. ``resume``
    is the command that goes on, else what was typed."""

    context: typer.Context
    store: str
    budget: float | None
    retry: bool
    quiet: bool
    as_json: bool
    wait: bool = False
    until: float | None = None
    reserve: float = 0.0
    resume: str = ""

    def left(self, spent: float = 0.0, reserve: float = 0.0) -> float | None:
        """Seconds for what begins now, after ``spent``; None without a limit."""
        if self.until is not None:
            return max(0.0, self.until - reserve - time.monotonic())
        return None if self.budget is None else max(0.0, self.budget - spent)


Start = Callable[[Store], AbstractContextManager[Words[Job, Run, News]]]
"""It makes an experiment ready."""


def conduct(
    order: Order, start: Start[Job, Run, News], judge: Start[Any, Any, Any] | None = None
) -> int:
    """Run an experiment, print what it tells, give the exit code. ``judge`` is a second one, which
    begins when the first is done, in what is left of the budget; the first then tells of both.

    Nothing else measures on this host meanwhile. Raises HostError where something does already."""
    with start_alone(order.wait, note):
        return conduct_alone(order, start, judge)


def conduct_alone(
    order: Order, start: Start[Job, Run, News], judge: Start[Any, Any, Any] | None = None
) -> int:
    """As ``conduct``, for a caller that sees to it that nothing else measures."""
    resume = order.resume or command_again(order.context)
    with open_store(order.store, create=True) as store:
        require_quiet_store(store)
        words, outcome = _run_stage(order, start, store, reserve=order.reserve)
        codes = []
        if judge and (outcome.reason == "done" or order.reserve and outcome.reason == "budget"):
            codes.append(_judge(order, judge, store, outcome.seconds, resume))
        words.print_results(order.as_json)
        if outcome.standing.failed and outcome.reason != "interrupted":
            failed = count(outcome.standing.failed, "run")
            again = command_again(order.context, "--retry")
            note(f"diskproof: {failed} failed. To try again: {again}")
        if outcome.reason == "budget" and not outcome.executed:
            return _tell_of_nothing(outcome)
        return max(_conclude(words, outcome, resume), *codes, Exit.OK)


def _tell_of_nothing(outcome: Outcome) -> int:
    """A budget in which nothing fits: the same command would never go on."""
    needed = render_seconds(outcome.seconds + outcome.next_seconds)
    note("diskproof: nothing was made, the budget is too small")
    note(f"  what comes next takes about {needed}: give --budget more than that")
    return Exit.FELL_SHORT


def _run_stage(
    order: Order,
    start: Start[Job, Run, News],
    store: Store,
    *,
    spent: float = 0.0,
    reserve: float = 0.0,
) -> tuple[Words[Job, Run, News], Outcome]:
    with start(store) as words:
        for line in () if order.quiet else words.opening():
            note(line)
        with start_watching(words, order.quiet) as watcher:
            outcome = run_course(
                words.campaign,
                describe=words.label,
                on_event=watcher,
                budget_seconds=order.left(spent, reserve),
                retry=order.retry,
            )
    return words, outcome


def _judge(
    order: Order, judge: Start[Any, Any, Any], store: Store, spent: float, resume: str
) -> int:
    """The exit code of the second experiment; what was measured is shown, whatever it gives. Where
    nothing can be judged, an answer is missing."""
    try:
        words, outcome = _run_stage(order, judge, store, spent=spent)
    except DiskproofError as error:
        note(f"diskproof: the cells are not judged: {error.what}")
        for line in filter(None, (error.why, error.hint)):
            note(f"  {line}")
        return Exit.FELL_SHORT
    return _conclude(words, outcome, resume)


def _conclude(words: Words[Job, Run, News], outcome: Outcome, resume: str) -> int:
    if outcome.reason == "interrupted":
        told = f"interrupted; every finished {words.one} is stored"
        note(f"diskproof: {told}. To go on: {resume}")
        return Exit.INTERRUPTED
    if outcome.reason == "budget":
        left = words.left(outcome.standing)
        note(f"diskproof: the budget is spent, {left} are left. To go on: {resume}")
    for line in words.closing(outcome, resume):
        note(line)
    return Exit.FELL_SHORT if words.falls_short(outcome) else Exit.OK


def require_quiet_store(store: Store) -> None:
    """A store is written by one measurement at a time: of those on other hosts only it knows."""
    progress = store.progress()
    if progress is not None and is_running(progress):
        raise HostError(
            f"process {progress.pid} on {progress.host} is measuring into {store.place} already",
            "two measurements at a time would spoil each other",
            "`diskproof status --follow` shows how far it is",
        )


# -- what a study needs of this host --------------------------------------------------------


def study_record(study: Study, plan: Plan | None = None, told: tuple[str, ...] = ()) -> StudyRecord:
    """The study as it is stored. Cells are those of ``run``; those of crashes and tiles stand
    with their runs, and what their plans ``told`` of their names is added to what is stored."""
    return StudyRecord(
        id=study.id,
        name=study.name,
        origin="run",
        text=study.text,
        seed=study.seed,
        blocks=study.blocks,
        cells=plan.cells if plan else (),
        dropped=plan.dropped if plan else (),
        warnings=plan.warnings if plan else told,
        created=time.time(),
    )


def probe_host(study: Study, consent: Consent) -> HostFacts:
    """What this host can do of what a study asks; builds the guest where it is missing. What
    nobody has consented to lose is looked at only."""
    wants_guest = ensure_guest_for(study)
    return probe_facts(
        study.backings, consent, guest=wants_guest, progress=note, own_guest=study.guest
    )


def ensure_guest_for(study: Study) -> bool:
    """Whether a study has guests; builds one of ours then, which tells whether KVM works, too."""
    frontends = dict(study.factors).get("frontend", ())
    wants_guest = not {"guest", "own-guest"}.isdisjoint(frontends)
    if wants_guest:
        ensure_guest()
    return wants_guest


def ensure_guest(extra: str = "") -> None:
    """Build the guest where it is missing; a host that cannot build it drops its cells.

    ``extra`` names further packages that it is to have.
    """
    if find_guest(extra) is None:
        try:
            build_guest(note, extra)
        except HostError as error:
            note(f"the guest cannot be built: {error}")


def make_setup(study: Study, facts: HostFacts, consent: Consent, store: Store) -> LabSetup:
    """What all runs share, after what dead runs left behind is gone and the host is stored."""
    host = prepare_host(study.backings, facts.accel, facts.accel_reason, store)
    return LabSetup(
        study_id=study.id,
        host_id=host.id,
        backings={backing.name: backing for backing in study.backings},
        consent=consent,
        accel=facts.accel,
        run_timeout=study.run_timeout,
        own_guest=study.guest,
    )


def prepare_host(
    backings: Iterable[BackingSpec], accel: str, accel_reason: str, store: Store
) -> HostRecord:
    """Sweep the folders of backings, and store this host."""
    folders = (chain(backing)[-1].option("path") for backing in backings)
    sweep_and_tell([spool_folder(), *map(Path, filter(None, folders))])
    host = host_record(accel, accel_reason)
    store.add_host(host)
    return host
