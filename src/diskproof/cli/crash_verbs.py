"""The verb ``crash``: what does each setting lose when the power goes?"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from diskproof.cli.options import DEFAULT_STORE, JsonOption, StoreOption
from diskproof.cli.typed import DestroyOption, command_again, require_consent
from diskproof.errors import Exit, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diskproof.backings import Consent
    from diskproof.crash.course import Outcome
    from diskproof.crash.explore import Explorer
    from diskproof.lab.setup import LabSetup
    from diskproof.records import Cell, StudyRecord
    from diskproof.records.verdicts import Verdict
    from diskproof.store import Store, VerdictRow
    from diskproof.study.load import Study


class StudyByDefault(TyperGroup):
    """``diskproof crash STUDY`` is ``diskproof crash study STUDY``."""

    def parse_args(self, ctx, args):  # type: ignore[no-untyped-def]  # the types are typer's own
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["study", *args]
        return super().parse_args(ctx, args)


crash = typer.Typer(
    cls=StudyByDefault,
    no_args_is_help=True,
    help="Say what each setting loses when the power goes, QEMU dies or a disk lies.",
)


def register(app: typer.Typer) -> None:
    app.add_typer(crash, name="crash")


@crash.command(name="study")
def crash_study(
    context: typer.Context,
    target: Annotated[
        Path, typer.Argument(metavar="STUDY|DIR", help="A study file; with --writer a folder.")
    ],
    writer: Annotated[
        str | None,
        typer.Option(metavar="CMD", help="A program to test; each line it prints is a promise."),
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            metavar="CMD",
            help="Judges a state in its folder: exit 0 keeps, 1 loses (a count on stdout), "
            "2 corrupts.",
        ),
    ] = None,
    sector: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="With --writer: what a disk writes whole, 512 or 4096."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", help="With --writer: of the random states.", min=0)
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Search on a Dask cluster, e.g. tcp://HOST:8786."),
    ] = None,
    store: StoreOption = DEFAULT_STORE,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stop in time, e.g. 30m; resume later.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Make undecided verdicts again.")] = False,
    destroy_data: DestroyOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Record a writer in every stack of a study and check what crashes leave of its promises.

    Exit code 1 when a promise was broken, or nothing could be said; a disk that lies about
    flushes breaks every promise and does not count for that.

    diskproof crash studies/crash.toml

    diskproof crash --writer './app --data .' --check './app --verify .' data
    """
    from diskproof.study.load import load_study

    again = command_again(context)
    if writer is None and check is None:
        if sector is not None or seed is not None:
            raise UsageError("--sector and --seed go with --writer", "a study has them in [crash]")
        study = load_study(target)
        consent = require_consent(context, study, destroy_data)
        return _crash_study(study, consent, store, budget, retry, quiet, as_json, cluster, again)
    if writer is None or check is None:
        raise UsageError("--writer and --check go together", "one writes, the other judges")
    from diskproof.cli.crash_program import crash_program, program_rules

    commands, rules = (writer, check), program_rules(sector, seed)
    return crash_program(target, commands, rules, store, budget, quiet, as_json, cluster, again)


@contextmanager
def start_explorer(cluster: str | None) -> Iterator[Explorer]:
    """Who looks for losses: this host, or a cluster."""
    if cluster is None:
        from diskproof.crash.explore import explore

        yield explore
        return
    from diskproof.crash.fleet import start_fleet

    with start_fleet(cluster) as explorer:
        yield explorer


def _crash_study(
    study: Study,
    consent: Consent,
    store: str,
    budget: str | None,
    retry: bool,
    quiet: bool,
    as_json: bool,
    cluster: str | None,
    again: str,
) -> int:
    from diskproof.cli.crash_live import start_watching
    from diskproof.cli.study_verbs import parse_budget, require_quiet_store
    from diskproof.crash.course import run_crash_study
    from diskproof.crash.run import CrashLab
    from diskproof.recording.folder import require_fuse
    from diskproof.store import open_store

    seconds = parse_budget(budget)
    require_fuse()
    with start_explorer(cluster) as explorer, open_store(store, create=True) as opened:
        require_quiet_store(opened)
        record, cells, setup = _plan(study, consent, opened)
        lab = CrashLab(setup, explorer)
        with start_watching(cells, quiet) as watcher:
            outcome = run_crash_study(
                record,
                cells,
                study.crash.faults,
                lab,
                opened,
                on_event=watcher,
                budget_seconds=seconds,
                retry=retry,
            )
        wanted = {cell.id for cell in cells}
        rows = [row for row in opened.verdicts(record.id) if row.cell.id in wanted]
    print_verdicts(rows, as_json)
    return conclude(outcome, rows, again)


def _plan(
    study: Study, consent: Consent, store: Store
) -> tuple[StudyRecord, tuple[Cell, ...], LabSetup]:
    """The study as stored, its crash cells on this host, and what their runs share."""
    from diskproof.cli.study_verbs import ensure_guest, make_setup, probe_host, study_record
    from diskproof.cli.terminal import note
    from diskproof.plan import make_crash_plan
    from diskproof.study.crash import GUEST_EXTRAS

    facts = probe_host(study, consent)
    cells, dropped = make_crash_plan(study, facts)
    for each in dropped:
        note(f"left out, {each.count} of the cells: {each.reason}")
    guests = [cell for cell in cells if cell.level("frontend") == "guest"]
    for extra in {GUEST_EXTRAS.get(cell.workload.name, "") for cell in guests} - {""}:
        ensure_guest(extra)
    return study_record(study), cells, make_setup(study, facts, consent, store)


def print_verdicts(rows: Sequence[VerdictRow], as_json: bool) -> None:
    from diskproof.cli.terminal import console, print_json
    from diskproof.report.crash.table import render_verdicts
    from diskproof.report.durability import crash_cells_json

    if as_json:
        print_json(crash_cells_json(rows))
    elif rows:
        console().print(render_verdicts(rows))


def conclude(outcome: Outcome, rows: Sequence[VerdictRow], resume: str) -> int:
    from diskproof.cli.terminal import note

    if outcome.reason == "interrupted":
        note(f"diskproof: interrupted; every finished cell is stored. To go on: {resume}")
        return Exit.INTERRUPTED
    if outcome.reason == "budget":
        note(
            f"diskproof: the budget is spent, {outcome.left} verdicts are left. To go on: {resume}"
        )
    return _exit_code([row.verdict for row in rows])


def _exit_code(verdicts: Sequence[Verdict]) -> int:
    """1 where a promise was broken that a setting can keep, or where nothing could be said."""
    from diskproof.crash.verdict import loses_promises

    unsaid = any(verdict.verdict == "undecided" for verdict in verdicts)
    return Exit.FELL_SHORT if unsaid or loses_promises(verdicts) else Exit.OK


@crash.command()
def flushes(
    context: typer.Context,
    study_file: Annotated[Path, typer.Argument(metavar="STUDY", help="A study with guests.")],
    store: StoreOption = DEFAULT_STORE,
    destroy_data: DestroyOption = False,
    as_json: JsonOption = False,
) -> int:
    """Ask of each guest of a study whether flushes are sent, and whether each layer passes them on.

    On the raw disk and on file systems with and without barriers; counted in the guest, in QEMU
    and on the host. The question to ask before turning on writeback. The store keeps none of it;
    `diskproof status` sees there that it goes on.
    """
    from diskproof.cli.study_verbs import require_quiet_store
    from diskproof.cli.terminal import console, print_json
    from diskproof.recording.folder import require_fuse
    from diskproof.report.crash.table import render_flushes
    from diskproof.store import open_store
    from diskproof.study.load import load_study

    study = load_study(study_file)
    consent = require_consent(context, study, destroy_data)
    require_fuse()
    with open_store(store, create=True) as opened:
        require_quiet_store(opened)
        found = _audit_guests(study, consent, opened)
    if as_json:
        print_json(found)
    else:
        console().print(render_flushes(found))
    return Exit.OK


def _audit_guests(study: Study, consent: Consent, store: Store) -> list[dict[str, Any]]:
    """The flushes of each guest of a study, told of as they are counted."""
    from dataclasses import asdict

    from diskproof.cli.study_verbs import probe_host, study_record
    from diskproof.cli.terminal import note
    from diskproof.crash.flush_audit import audit_flushes
    from diskproof.lab.course import start_telling
    from diskproof.plan import make_crash_plan
    from diskproof.report.labels import cell_label, varying_factors

    facts = probe_host(study, consent)
    planned, _ = make_crash_plan(study, facts)
    cells = {cell.levels: cell for cell in planned if cell.level("frontend") == "guest"}
    if not cells:
        raise UsageError(f"study {study.name!r} has no guests to ask", hint='frontend = "guest"')
    backings = {backing.name: backing for backing in study.backings}
    factors = varying_factors(cells.values())
    found = []
    if store.find_study(study.id) is None:
        store.add_study(study_record(study))
    with start_telling(store, study.id) as tell:
        for done, cell in enumerate(cells.values()):
            label = cell_label(cell, factors)
            note(f"[{done + 1}/{len(cells)}] {label}")
            tell(f"flushes of {label}", done=done, failed=0, total=len(cells), eta_seconds=None)
            accel = cell.level("accel", "auto")
            accel = facts.accel if accel == "auto" else accel
            counts = audit_flushes(cell, backings[cell.level("backing")], consent, accel)
            rows = [{**asdict(row), "finding": row.finding} for row in counts]
            found.append({"cell": cell.levels_dict(), "label": label, "counts": rows})
    return found


@crash.command()
def reproduce(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The id of a crash run.")],
    fault: Annotated[
        str, typer.Option(metavar="FAULT", help="Under which fault it lost something.")
    ] = "power",
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="A new folder for the state.")
    ] = None,
    worst: Annotated[
        bool, typer.Option("--worst", help="The state that lost most, not the smallest loss.")
    ] = False,
    store: StoreOption = DEFAULT_STORE,
    as_json: JsonOption = False,
) -> int:
    """Make a stored loss again as files, and check it again.

    Every loss in a table has its command: `diskproof crash reproduce RUN --fault power`.
    """
    from diskproof.cli.terminal import print_json
    from diskproof.crash import reproduce as again
    from diskproof.store import open_store

    with open_store(store) as opened:
        found = opened.crash_run(run)
    target = to or Path(f"crash-{run[:8]}-{fault}")
    made = again.reproduce(found, fault, target, worst=worst)
    if as_json:
        print_json(again.state_json(made))
    else:
        print("\n".join(again.state_lines(made)))
    return Exit.FELL_SHORT if made.loss else Exit.OK
