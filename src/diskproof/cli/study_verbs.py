"""Verbs about studies: ``plan``, ``run``, ``status``."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diskproof.cli import options
from diskproof.cli.typed import require_consent
from diskproof.errors import Exit

if TYPE_CHECKING:
    from diskproof.plan.history import History
    from diskproof.records import StudyRecord
    from diskproof.report.progress import StudyStatus
    from diskproof.store import Store

FOLLOW_SECONDS = 1.0


def register(app: typer.Typer) -> None:
    app.command()(plan)
    app.command()(run)
    app.command()(status)


def plan(
    study_file: options.StudyFile,
    store: options.StoreOption = options.DEFAULT_STORE,
    make: options.MakeOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Show what a study means on this host: cells, what is left out and why, time and disk.

    Times are those of runs in the store, where it has any. Nothing is written on devices that the
    study names.
    """
    from diskproof.backings import NO_CONSENT
    from diskproof.cli.changed import tell_of_changes_here
    from diskproof.cli.conduct import study_record
    from diskproof.cli.crash import plan_verdicts
    from diskproof.cli.measure import plan_here
    from diskproof.cli.terminal import console, print_json
    from diskproof.cli.tiles import view_tile_plan
    from diskproof.measure.past_runs import read_history
    from diskproof.plan.estimate import Estimate
    from diskproof.plan.like import find_owners
    from diskproof.report.plan_tables import plan_json, render_plan
    from diskproof.report.tiles.plan import render_tile_plan, whole_plan_json
    from diskproof.study.load import load_study

    study, proving = load_study(study_file, make), list[str]()
    tell_of_changes_here(study, store)
    with _open_past(store) as past:
        if study.tiles and not study.names_workloads:  # there is nothing else to measure
            history, record, cost, facts = None, study_record(study), Estimate(0.0, 0), None
        else:
            history = read_history(past) if past else None
            record, cost, facts = plan_here(study, NO_CONSENT, history)
            proving = _tell_what_it_proves(past, record, history)
        owners = find_owners(study, record.cells, facts) if facts else {}
        tiles = view_tile_plan(study, NO_CONSENT, past) if study.tiles else None
    planned = record, cost.seconds, cost.disk_bytes, owners, cost.phases
    verdicts = plan_verdicts(study, facts, history) if facts and study.names_crash else None
    if as_json:
        judged = verdicts._asdict() if verdicts else None
        obstacle = str(cost.obstacle) if cost.obstacle else None
        print_json(whole_plan_json(plan_json(*planned), obstacle, proving, judged, tiles))
    else:
        shown = [render_plan(*planned), *proving] if record.cells else []
        shown += [verdicts.text] if verdicts else []
        console().print(*shown, *([render_tile_plan(tiles)] if tiles else []), sep="\n")
    if cost.obstacle:  # seen what it would be, one can choose what to change
        raise cost.obstacle
    return Exit.OK


@contextmanager
def _open_past(store: str) -> Iterator[Store | None]:
    """The store that knows what runs took; it need not be there yet."""
    if "://" not in store and not Path(store).exists():
        yield None
        return
    from diskproof.store import open_store

    with open_store(store) as opened:
        yield opened


def _tell_what_it_proves(
    past: Store | None, study: StudyRecord, history: History | None
) -> list[str]:
    """By how far the study's cells scatter and what a block of them takes, by workload."""
    from diskproof.measure.past_runs import read_scatter
    from diskproof.plan.estimate import foretell
    from diskproof.plan.history import History
    from diskproof.report.proving import KnownScatter, proving_lines

    known, history = {}, history or History()
    for load in dict.fromkeys(cell.workload.name for cell in study.cells):
        cells = [cell for cell in study.cells if cell.workload.name == load]
        scatter, own = read_scatter(past, study, load) if past else ((), False)
        seconds = sum(foretell(cell, history) for cell in cells)
        known[load] = KnownScatter(len(cells), scatter, own, seconds)
    return proving_lines(study, known)


def run(
    context: typer.Context,
    study_file: options.StudyFile,
    store: options.StoreOption = options.DEFAULT_STORE,
    budget: options.BudgetOption = None,
    retry: options.RetryOption = False,
    destroy_data: options.DestroyOption = False,
    make: options.MakeOption = False,
    wait: options.WaitOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Measure a study, or go on where it stopped; ends with what to use, and the ranked tables.

    Where the study has a table \\[crash], its cells are then judged, too: which keep the data?
    """
    from diskproof.cli.conduct import Order, conduct
    from diskproof.cli.crash import start_judging
    from diskproof.cli.measure import start_measuring
    from diskproof.study.load import load_study

    study = load_study(study_file, make)
    consent = require_consent(context, study, destroy_data)
    order = Order(context, store, budget, retry, quiet, as_json, wait)
    judge = partial(start_judging, study, consent) if study.names_crash else None
    return conduct(order, partial(start_measuring, study, consent), judge)


def status(
    store: options.StoreOption = options.DEFAULT_STORE,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Look again each second until it ends.")
    ] = False,
    as_json: options.JsonOption = False,
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
    from diskproof.cli.terminal import has_reader

    while True:
        statuses, runs = read_statuses(store)
        yield statuses
        if not follow or not runs or not has_reader():
            return
        time.sleep(FOLLOW_SECONDS)


def read_statuses(store: Store) -> tuple[list[StudyStatus], bool]:
    """Where each study stands, and whether one of them runs."""
    from diskproof.lab.course import is_running
    from diskproof.report.progress import study_status

    progress = store.progress()
    alive = progress if progress is not None and is_running(progress) else None
    statuses = [
        study_status(
            study,
            store.counts(study.id),
            alive if alive is not None and alive.study_id == study.id else None,
            time.time(),
            race_over=_is_race_over(store, study),
        )
        for study in store.studies()
    ]
    return statuses, alive is not None


def _is_race_over(store: Store, study: StudyRecord) -> bool:
    """Whether a study is a race, and all its workloads are decided or out of blocks."""
    from diskproof.stats.study_race import race_rules, replay_races
    from diskproof.store.race_scores import race_scores

    if race_rules(study) is None:
        return False
    races = replay_races(study, race_scores(store, study.id))
    return bool(races) and all(race.course.over for race in races)
