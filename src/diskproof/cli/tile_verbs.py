"""The verb ``tiles``: how many groups of virtual machines does this host carry?"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from diskproof.cli import options
from diskproof.cli.typed import is_typed, require_consent
from diskproof.errors import UsageError

if TYPE_CHECKING:
    from diskproof.study.load import Study

MAX_TILES = 64


def register(app: typer.Typer) -> None:
    app.command()(tiles)


MostOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=MAX_TILES, help="Search up to N tiles, not the study's."),
]
RunsOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, max=1000, help="Runs of each number, not the study's."),
]
ScaleOption = Annotated[
    str | None, typer.Option(metavar="1/N", help="Size of the work, not the study's: 1 or 1/N.")
]


def tiles(
    context: typer.Context,
    study_file: options.StudyFile,
    store: options.StoreOption = options.DEFAULT_STORE,
    most: MostOption = None,
    runs: RunsOption = None,
    scale: ScaleOption = None,
    budget: options.BudgetOption = None,
    retry: options.RetryOption = False,
    destroy_data: options.DestroyOption = False,
    make: options.MakeOption = False,
    wait: options.WaitOption = False,
    quiet: options.QuietOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Start groups of guests that load each other, and find how many of them keep their pace.

    All is compared with one tile alone. Exit code 1 when a run failed.

    diskproof tiles studies/tiles-small.toml

    diskproof init --example tile > my-tile.toml
    """
    from diskproof.cli.conduct import Order, conduct
    from diskproof.cli.tiles import start_tiles
    from diskproof.study.load import load_study

    study = _with_options(load_study(study_file, make), most, runs, scale)
    consent = require_consent(context, study, destroy_data)
    page = ["diskproof", "report", "-o", f"{study_file.stem}.html"]
    page += ["--store", store] if is_typed(context, "store") else []
    order = Order(context, store, budget, retry, quiet, as_json, wait)
    return conduct(order, partial(start_tiles, study, consent, shlex.join(page)))


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
