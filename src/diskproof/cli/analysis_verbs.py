"""Verbs that judge stored results: ``factors``, ``stability``, ``compare``."""

import math
from typing import Annotated

import typer

from diskproof.cli.options import DEFAULT_STORE, JsonOption, StoreOption, StudiesOption
from diskproof.errors import Exit, UsageError
from diskproof.units import parse_share

WorkloadsOption = Annotated[
    list[str] | None,
    typer.Option("--workload", metavar="NAME", help="Only this workload; may be repeated."),
]


def register(app: typer.Typer) -> None:
    app.command()(factors)
    app.command()(stability)
    app.command()(compare)


def factors(
    store: StoreOption = DEFAULT_STORE,
    study: StudiesOption = None,
    workload: WorkloadsOption = None,
    base: Annotated[
        list[str] | None,
        typer.Option(
            "--base", metavar="FACTOR=LEVEL", help="Compare with this level; may be repeated."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Say which factor matters how much, what each level gains, and where repeats pay.

    Effects are ratios with 95 % intervals, averaged over all other settings. Effects that the
    measured cells cannot separate are named.
    """
    from diskproof.cli.terminal import console, note, print_json
    from diskproof.report.analysis import read_analyses
    from diskproof.report.factors.table import analyses_json, render_analyses
    from diskproof.store import open_store

    bases = dict(_parse_level(text) for text in base or ())
    with open_store(store) as opened:
        found = read_analyses(opened, study or (), workload or (), bases)
    if as_json:
        print_json(analyses_json(found))
    elif found:
        console().print(render_analyses(found))
    else:
        note(f"there are no results in {store} yet")
    return Exit.OK


def stability(
    store: StoreOption = DEFAULT_STORE,
    study: StudiesOption = None,
    workload: WorkloadsOption = None,
    as_json: JsonOption = False,
) -> int:
    """Say how steady it all was: first runs, outliers, the host over time, each run's steady state.

    Outliers are labelled and stay in every figure. Ends with where more repeats pay.
    """
    from diskproof.cli.terminal import console, note, print_json
    from diskproof.report.analysis import read_analyses
    from diskproof.report.stability.table import render_stability, stability_json
    from diskproof.store import open_store

    with open_store(store) as opened:
        found = read_analyses(opened, study or (), workload or ())
    if as_json:
        print_json(stability_json(found))
    elif found:
        console().print(render_stability(found))
    else:
        note(f"there are no results in {store} yet")
    return Exit.OK


def _parse_level(text: str) -> tuple[str, str]:
    factor, equals, level = text.partition("=")
    if not (factor and equals and level):
        raise UsageError(f"{text!r} is not FACTOR=LEVEL", hint="write it like cache=none")
    return factor.strip(), level.strip()


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="What was there before.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is judged against it.")],
    store: StoreOption = DEFAULT_STORE,
    study: StudiesOption = None,
    workload: WorkloadsOption = None,
    metric: Annotated[
        str | None, typer.Option(help="This metric; else each workload's primary one.")
    ] = None,
    delta: Annotated[
        str, typer.Option(metavar="SHARE", help="Differences up to this are of no interest.")
    ] = "2%",
    as_json: JsonOption = False,
) -> int:
    """Say whether B is faster than A, slower, the same, or not decided yet.

    A and B are stores, or things in one store: studies, hosts, dates, or cells by their levels.
    Exit code 1 when B is proved slower anywhere: a gate for CI.

    diskproof compare before.sqlite after.sqlite

    diskproof compare cache=none cache=writeback --workload sync-write-4k

    diskproof compare format=raw,cache=none format=qcow2,cache=none --delta 5%

    diskproof compare 2026-11-20 2026-11-21 --store lab.sqlite
    """
    from diskproof.cli.terminal import console, print_json
    from diskproof.report.compare.find import compare_sides
    from diskproof.report.compare.sides import find_side
    from diskproof.report.compare.table import comparison_json, render_comparison

    share = _require_delta(delta)
    sides = [find_side(asked, store, study or (), metric) for asked in (a, b)]
    found = compare_sides(*sides, delta=share, metric=metric, workloads=workload or ())
    if as_json:
        print_json(comparison_json(found))
    else:
        console().print(render_comparison(found))
    return Exit.FELL_SHORT if found.regressions else Exit.OK


def _require_delta(text: str) -> float:
    """A share. Raises UsageError unless it lies between 0 and 1."""
    try:
        share = parse_share(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise UsageError(f"{text!r} is no share between 0 and 1", hint="write it like 2% or 0.02")
    return share
