"""The verb ``tiles``: how many groups of virtual machines does this host carry?"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diskproof.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from diskproof.cli.typed import DestroyOption, command_again, is_typed, require_consent
from diskproof.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diskproof.backings import Consent
    from diskproof.plan import TilePlan
    from diskproof.records import Cell, HostFacts, HostRecord, StudyRecord
    from diskproof.report.tiles.plan import TilePlanView
    from diskproof.store import Store
    from diskproof.study.load import Study
    from diskproof.tiles.search import Outcome

MAX_TILES = 64


def register(app: typer.Typer) -> None:
    app.command()(tiles)


def _print_example(wanted: bool) -> None:
    """The built-in tile's file."""
    if wanted:
        from diskproof.study.tile_file import read_built_in

        print(read_built_in(), end="")
        raise typer.Exit


def tiles(
    context: typer.Context,
    study_file: Annotated[Path, typer.Argument(metavar="STUDY", help="A study file (TOML).")],
    store: StoreOption = DEFAULT_STORE,
    most: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=MAX_TILES, help="Search up to N tiles, not the study's."
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=1000, help="Runs of each number, not the study's."),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(metavar="1/N", help="Size of the work, not the study's: 1 or 1/N."),
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop in time, e.g. 30m; resume later.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Make failed runs again.")] = False,
    destroy_data: DestroyOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: JsonOption = False,
    example: Annotated[
        bool,
        typer.Option(
            "--example",
            callback=_print_example,
            is_eager=True,
            help="Print the built-in tile, to start one of your own from.",
        ),
    ] = False,
) -> int:
    """Start groups of guests that load each other, and find how many of them keep their pace.

    All is compared with one tile alone. Exit code 1 when a run failed.

    diskproof tiles studies/tiles-small.toml

    diskproof tiles --example > my-tile.toml
    """
    from diskproof.cli.study_verbs import (
        make_setup,
        parse_budget,
        require_quiet_store,
        study_record,
    )
    from diskproof.cli.tile_live import start_watching
    from diskproof.store import open_store
    from diskproof.study.load import load_study
    from diskproof.tiles.boot_states import find_state_folder, start_boot_states
    from diskproof.tiles.run import TileLab
    from diskproof.tiles.search import run_tile_study

    seconds = parse_budget(budget)
    study = _with_options(load_study(study_file), most, runs, scale)
    consent = require_consent(context, study, destroy_data)
    with open_store(store, create=True) as opened:
        require_quiet_store(opened)
        facts = probe_tile_host(study, consent)
        plan, record = _plan(study, facts), study_record(study)
        setup = make_setup(study, facts, consent, opened)
        here = _find_host(opened, study.id, setup.host_id)
        with (
            start_watching(study.name, plan.cells, plan.rules, quiet) as watcher,
            start_boot_states(find_state_folder()) as states,
        ):
            outcome = run_tile_study(
                record,
                plan.cells,
                plan.rules,
                TileLab(setup, plan.rules, watcher.on_step, states),
                opened,
                host_id=here.id,
                cpus=facts.cpus,
                on_event=watcher,
                budget_seconds=seconds,
                retry=retry,
            )
        _print_results(opened, record, plan.cells, here, as_json)
    page = ["diskproof", "report", "-o", f"{study_file.stem}.html"]
    page += ["--store", store] if is_typed(context, "store") else []
    return _conclude(outcome, command_again(context), shlex.join(page))


def _with_options(study: Study, most: int | None, runs: int | None, scale: str | None) -> Study:
    """The study with what the command line says in place of its ``[tiles]``."""
    from fractions import Fraction

    from diskproof.plan.tiles import tile_rules
    from diskproof.units import SCALE

    rules = tile_rules(study)
    if most is not None:
        rules = replace(rules, most=most, counts=())
    if scale is not None:
        if not re.fullmatch(SCALE, scale):
            raise UsageError(f"--scale: {scale!r} is not 1 or 1/N", "N is at most 9999")
        rules = replace(rules, scale=Fraction(scale))
    return replace(study, tiles=replace(rules, runs=runs or rules.runs))


# -- the host and the plan ------------------------------------------------------------------


def probe_tile_host(study: Study, consent: Consent) -> HostFacts:
    """What this host can do; builds the guests of the study's tile where they are missing.

    Raises HostError when they cannot be built: there is nothing else to run tiles in.
    """
    from diskproof.cli.terminal import note
    from diskproof.guest.build import build_guest
    from diskproof.host.facts import probe_facts
    from diskproof.plan.tiles import tile_rules

    tile = tile_rules(study).tile
    for root in sorted({"", *(guest.root for guest in tile.guests)}):  # "" also probes KVM
        build_guest(note, root)
    return probe_facts(study.backings, consent, guest=True, progress=note)


def plan_tiles(study: Study, facts: HostFacts) -> TilePlan:
    """The tile cells of a study on a host with the memory it has free now."""
    from diskproof.host.memory import read_available_bytes
    from diskproof.plan import make_tile_plan

    return make_tile_plan(study, facts, read_available_bytes())


def plan_here(study: Study, consent: Consent) -> TilePlanView:
    """A study's tiles on this host, for ``diskproof plan``."""
    from diskproof.plan.tile_costs import tile_memory
    from diskproof.report.tiles.plan import TilePlanView

    made = plan_tiles(study, probe_tile_host(study, consent))
    return TilePlanView(
        study=study.name,
        rules=made.rules,
        cells=made.cells,
        dropped=made.dropped,
        warnings=made.warnings,
        runs=made.runs,
        seconds=made.seconds,
        disk_bytes=made.needed_bytes,
        memory_bytes=max(tile_memory(made.rules.tile, c.level("accel")) for c in made.cells),
    )


def _plan(study: Study, facts: HostFacts) -> TilePlan:
    """The plan, with what it leaves out and warns of told."""
    from diskproof.cli.terminal import note

    made = plan_tiles(study, facts)
    for each in made.dropped:
        note(f"left out, {each.count} of the cells: {each.reason}")
    for text in made.warnings:
        note(f"warning: {text}")
    return made


def _find_host(store: Store, study_id: str, host_id: str) -> HostRecord:
    """This host. Says which stored runs of the study count for nothing here."""
    from diskproof.cli.terminal import note

    hosts = {host.id: host for host in store.hosts()}
    here = hosts[host_id]
    counts = Counter(run.host_id for run in store.tile_runs(study_id))
    for other in (hosts[each] for each in counts if each != host_id):
        known = sorted({*other.facts, *here.facts})
        changed = [key for key in known if other.facts.get(key) != here.facts.get(key)]
        was = ", ".join(f"{key} was {other.facts.get(key)}" for key in changed)
        whose = f"this host, when {was}," if other.name == here.name else other.name
        note(f"stored runs of {whose} do not count here: {counts[other.id]}")
    return here


# -- the end --------------------------------------------------------------------------------


def _print_results(
    store: Store,
    study: StudyRecord,
    cells: Sequence[Cell],
    host: HostRecord,
    as_json: bool,
) -> None:
    """What this host's runs of these cells tell."""
    from diskproof.cli.terminal import console, print_json
    from diskproof.report.tiles.find import analyse_tiles
    from diskproof.report.tiles.table import render_tiles, tiles_json

    wanted = {cell.id for cell in cells}
    every = [run for run in store.tile_runs(study.id) if run.host_id == host.id]
    runs = [run for run in every if run.cell.id in wanted]
    views = []
    if runs:
        series = {run.id: store.tile_series_of(run.id) for run in runs if run.failure is None}
        views.append(analyse_tiles(study, host, runs, series))
    if as_json:
        print_json(tiles_json(views))
        return
    for view in views:
        console().print(render_tiles(view))


def _conclude(outcome: Outcome, resume: str, page: str) -> int:
    from diskproof.cli.terminal import note

    if outcome.reason == "interrupted":
        note(f"diskproof: interrupted; every finished run is stored. To go on: {resume}")
        return Exit.INTERRUPTED
    if outcome.reason == "budget":
        left = outcome.standing.total - outcome.standing.done
        note(f"diskproof: the budget is spent, at most {left} runs are left. To go on: {resume}")
    if outcome.standing.done:
        note(f"the page with all of it: {page}")
    return Exit.FELL_SHORT if outcome.standing.failed else Exit.OK
