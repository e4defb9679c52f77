"""Verbs about studies: ``plan``, ``run``, ``status``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diskproof.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from diskproof.cli.typed import DestroyOption, command_again, require_consent
from diskproof.errors import Exit, HostError, UsageError

if TYPE_CHECKING:
    from diskproof.backings import Consent
    from diskproof.lab.course import Outcome
    from diskproof.lab.setup import LabSetup
    from diskproof.records import HostFacts, StudyRecord
    from diskproof.report.progress import StudyStatus
    from diskproof.store import Store
    from diskproof.study.load import Study

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY", help="A study file (TOML).")]
FOLLOW_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    app.command()(plan)
    app.command()(run)
    app.command()(status)


def plan(study_file: StudyFile, as_json: JsonOption = False) -> int:
    """Show what a study means on this host: cells, what is left out and why, time and disk.

    Nothing is written on devices that the study names.
    """
    from diskproof.backings import NO_CONSENT
    from diskproof.cli.terminal import console, print_json
    from diskproof.cli.tile_verbs import plan_here
    from diskproof.report.plan_tables import plan_json, render_plan
    from diskproof.report.tiles.plan import render_tile_plan, tile_plan_json
    from diskproof.study.load import load_study

    study = load_study(study_file)
    tiles = plan_here(study, NO_CONSENT) if study.tiles else None
    if tiles and not study.names_workloads:  # there is nothing else to measure
        planned = study_record(study), 0.0, 0
    else:
        planned = _plan_here(study, NO_CONSENT)[:3]
    if as_json:
        print_json(plan_json(*planned) | ({"tiles": tile_plan_json(tiles)} if tiles else {}))
        return Exit.OK
    if planned[0].cells:
        console().print(render_plan(*planned))
    if tiles:
        console().print(render_tile_plan(tiles))
    return Exit.OK


def run(
    context: typer.Context,
    study_file: StudyFile,
    store: StoreOption = DEFAULT_STORE,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop in time, e.g. 30m; resume later.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Make failed runs again.")] = False,
    destroy_data: DestroyOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Measure a study, or go on where it stopped; ends with the ranked table."""
    from diskproof.cli.live import start_watching
    from diskproof.lab.course import run_study
    from diskproof.measure.run import LabExecutor
    from diskproof.plan.schedule import make_schedule
    from diskproof.store import open_store
    from diskproof.study.load import load_study

    seconds = parse_budget(budget)
    study = load_study(study_file)
    consent = require_consent(context, study, destroy_data)
    with open_store(store, create=True) as opened:
        require_quiet_store(opened)
        record, _, _, facts = _plan_here(study, consent)
        schedule = make_schedule(record.cells, study.blocks, study.seed)
        with (
            LabExecutor(make_setup(study, facts, consent, opened)) as executor,
            start_watching(record, quiet) as watcher,
        ):
            outcome = run_study(
                record,
                schedule,
                executor,
                opened,
                on_event=watcher,
                budget_seconds=seconds,
                retry=retry,
            )
        _print_results(opened, record, as_json)
    return _conclude(outcome, command_again(context))


def parse_budget(budget: str | None) -> float | None:
    from diskproof.units import parse_seconds

    try:
        return None if budget is None else parse_seconds(budget)
    except ValueError as error:
        raise UsageError(f"--budget: {error}") from None


def require_quiet_store(store: Store) -> None:
    """Two measurements at a time would spoil each other."""
    from diskproof.lab.course import is_running

    progress = store.progress()
    if progress is not None and is_running(progress):
        raise HostError(
            f"process {progress.pid} on {progress.host} is measuring into {store.place} already",
            "two measurements at a time would spoil each other",
            "`diskproof status --follow` shows how far it is",
        )


def _plan_here(study: Study, consent: Consent) -> tuple[StudyRecord, float, int, HostFacts]:
    """The study with its plan on this host, the seconds and bytes that it will take, and what was
    probed of the host."""
    from diskproof.plan import estimate, make_plan
    from diskproof.records import StudyRecord

    facts = probe_host(study, consent)
    made = make_plan(study, facts)
    record = StudyRecord(
        id=study.id,
        name=study.name,
        origin="run",
        text=study.text,
        seed=study.seed,
        blocks=study.blocks,
        cells=made.cells,
        dropped=made.dropped,
        warnings=made.warnings,
        created=time.time(),
    )
    cost = estimate(made, study.blocks)
    return record, cost.seconds, cost.disk_bytes, facts


def study_record(study: Study) -> StudyRecord:
    """The study without cells of ``run``: those of crashes and tiles stand with their runs."""
    from diskproof.records import StudyRecord

    return StudyRecord(
        id=study.id,
        name=study.name,
        origin="run",
        text=study.text,
        seed=study.seed,
        blocks=study.blocks,
        cells=(),
        created=time.time(),
    )


def probe_host(study: Study, consent: Consent) -> HostFacts:
    """What this host can do of what a study asks; builds the guest where it is missing. What
    nobody has consented to lose is looked at only."""
    from diskproof.cli.terminal import note
    from diskproof.host.facts import probe_facts

    frontends = dict(study.factors).get("frontend", ())
    wants_guest = not {"guest", "own-guest"}.isdisjoint(frontends)
    if wants_guest:  # one of ours tells whether KVM works, too
        ensure_guest()
    return probe_facts(
        study.backings, consent, guest=wants_guest, progress=note, own_guest=study.guest
    )


def ensure_guest(extra: str = "") -> None:
    """Build the guest where it is missing; a host that cannot build it drops its cells.

    ``extra`` names further packages that it is to have.
    """
    from diskproof.cli.terminal import note
    from diskproof.guest.build import build_guest, find_guest

    if find_guest(extra) is None:
        try:
            build_guest(note, extra)
        except HostError as error:
            note(f"the guest cannot be built: {error}")


def make_setup(study: Study, facts: HostFacts, consent: Consent, store: Store) -> LabSetup:
    """What all runs share, after what dead runs left behind is gone and the host is stored."""
    from diskproof.cli.sweeping import sweep_and_tell
    from diskproof.host.facts import host_record
    from diskproof.lab.setup import LabSetup
    from diskproof.study.backing_tables import chain

    folders = (chain(backing)[-1].option("path") for backing in study.backings)
    sweep_and_tell(map(Path, filter(None, folders)))
    host = host_record(facts.accel, facts.accel_reason)
    store.add_host(host)
    return LabSetup(
        study_id=study.id,
        host_id=host.id,
        backings={backing.name: backing for backing in study.backings},
        consent=consent,
        accel=facts.accel,
        run_timeout=study.run_timeout,
        own_guest=study.guest,
    )


def _print_results(store: Store, study: StudyRecord, as_json: bool) -> None:
    from diskproof.cli.terminal import console, print_json
    from diskproof.report.read import read_views
    from diskproof.report.study_tables import render_study
    from diskproof.store.show import show_rows

    if as_json:
        print_json(show_rows(store.results(study.id)))
        return
    for view in read_views(store, [study.id]):
        console().print(render_study(view))


def _conclude(outcome: Outcome, resume: str) -> int:
    from diskproof.cli.terminal import note

    undecided = any(race.course.over and not race.course.settled for race in outcome.races)
    if outcome.reason == "interrupted":
        note(f"diskproof: interrupted; every finished run is stored. To go on: {resume}")
        return Exit.INTERRUPTED
    if outcome.reason == "budget":
        left = outcome.standing.total - outcome.standing.done
        most = "at most " if outcome.races else ""
        note(f"diskproof: the budget is spent, {most}{left} runs are left. To go on: {resume}")
    elif undecided:
        note(f"diskproof: a race is out of blocks; raise max_blocks, then go on with: {resume}")
    return Exit.FELL_SHORT if outcome.standing.failed else Exit.OK


def status(
    store: StoreOption = DEFAULT_STORE,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Look again each second until it ends.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Show how far the studies in a store are, from any terminal, without disturbing a run."""
    from rich.live import Live

    from diskproof.cli.terminal import console, print_json
    from diskproof.report.progress import render_status, status_json
    from diskproof.store import open_store

    with open_store(store) as opened:
        if as_json:
            for found in _statuses(opened, follow):
                print_json(status_json(found), indent=None if follow else 1)
        elif follow and sys.stdout.isatty():
            with Live(console=console(), auto_refresh=False) as live:
                for found in _statuses(opened, follow):
                    live.update(render_status(found), refresh=True)
        else:
            for found in _statuses(opened, follow):
                console().print(render_status(found))
    return Exit.OK


def _statuses(store: Store, follow: bool) -> Iterator[list[StudyStatus]]:
    """The studies' status now, and with ``follow`` again until nothing runs any more."""
    from diskproof.lab.course import is_running
    from diskproof.report.progress import study_status

    while True:
        progress = store.progress()
        alive = progress if progress is not None and is_running(progress) else None
        yield [
            study_status(
                study,
                store.counts(study.id),
                alive if alive is not None and alive.study_id == study.id else None,
                time.time(),
                race_over=_is_race_over(store, study),
            )
            for study in store.studies()
        ]
        if not follow or alive is None:
            return
        time.sleep(FOLLOW_SECONDS)


def _is_race_over(store: Store, study: StudyRecord) -> bool:
    from diskproof.stats.study_race import race_rules, replay_races
    from diskproof.store.race_scores import race_scores

    if race_rules(study) is None:
        return False
    races = replay_races(study, race_scores(store, study.id))
    return bool(races) and all(race.course.over for race in races)
