"""Verbs that judge stored results: ``factors``, ``stability``, ``compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from diskproof.cli.options import DEFAULT_STORE, JsonOption, StoreOption, StudiesOption
from diskproof.errors import Exit, UsageError

WorkloadsOption = Annotated[
    list[str] | None,
    typer.Option("--workload", metavar="NAME", help="Only this workload; may be repeated."),
]


def register(app: typer.Typer) -> None:
    app.command()(factors)


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
    from diskproof.report.factor_tables import analyses_json, render_analyses
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


def _parse_level(text: str) -> tuple[str, str]:
    factor, equals, level = text.partition("=")
    if not (factor and equals and level):
        raise UsageError(f"{text!r} is not FACTOR=LEVEL", hint="write it like cache=none")
    return factor.strip(), level.strip()
