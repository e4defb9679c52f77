"""Verbs about stored results: ``show``, ``rank``, ``report``, ``export``."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diskproof.cli.options import DEFAULT_STORE, JsonOption, StoreOption, StudiesOption
from diskproof.errors import Exit, UsageError

if TYPE_CHECKING:
    from diskproof.report.view import StudyView
    from diskproof.store import ResultRow, Store


BEST_SCORES = 5
NOTHING_YET = "there are no results in {} yet"
_MEASURE_FIRST = "`diskproof run` a study first"


class Sort(StrEnum):
    """Orders of ``show``."""

    MEAN = "mean"
    CELL = "cell"


class ExportKind(StrEnum):
    """What ``export`` writes."""

    RESULTS = "results"
    RUNS = "runs"
    SERIES = "series"
    VERDICTS = "verdicts"
    TILES = "tiles"


def register(app: typer.Typer) -> None:
    app.command()(show)
    app.command()(rank)
    app.command()(report)
    app.command()(export)


def show(
    store: StoreOption = DEFAULT_STORE,
    study: StudiesOption = None,
    metric: Annotated[
        str | None,
        typer.Option(help="One metric or test of iozone; else each workload's primary one."),
    ] = None,
    all_metrics: Annotated[bool, typer.Option("--all", help="Every metric.")] = False,
    sort: Annotated[Sort, typer.Option(help="Order within a workload.")] = Sort.MEAN,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> int:
    """Show each cell's results: n, mean, 95 % interval, single runs."""
    from diskproof.cli.terminal import console, print_json
    from diskproof.report.results import render_results
    from diskproof.store import open_store
    from diskproof.store.show import show_rows, sorted_results

    if as_json and as_csv:
        raise UsageError("--json and --csv: one of them")
    with open_store(store) as opened:
        studies = opened.studies()
        found = _results(opened, study, metric)
        beside = _told_beside(opened, study)
        chosen = [row for row in found if all_metrics or metric or row.primary]
        figures = opened.figures(chosen)
    results = sorted_results(chosen, figures, by_cell=sort is Sort.CELL)
    if as_json:
        print_json(show_rows(results, figures, studies))
    elif as_csv:
        _print_csv(show_rows(results, figures, studies))
    else:
        if results:
            console().print(render_results(studies, results, figures))
        if beside or not results:
            console().print(beside or NOTHING_YET.format(store))
    return Exit.OK


def _told_beside(store: Store, wanted: Sequence[str] | None) -> str:
    """What is stored that is no result of a workload, and how to see it: a line each."""
    from diskproof.report.labels import count

    ids = dict.fromkeys(_require_study(store, name) for name in wanted) if wanted else [None]
    tiles = sum(len(store.tile_runs(each)) for each in ids), "tile run", "tiles"
    verdicts = sum(len(store.verdicts(each)) for each in ids), "crash verdict", "verdicts"
    return "\n".join(
        f"stored, too: {count(number, thing)}; `diskproof report -o FILE.html` tells what they "
        f"say, `diskproof export --kind {kind} -o FILE` writes them"
        for number, thing, kind in (tiles, verdicts)
        if number
    )


def _results(store: Store, wanted: Sequence[str] | None, metric: str | None) -> list[ResultRow]:
    """Results of the wanted studies. ``metric`` may be a test of iozone: all sizes of it. Raises
    UsageError for a study or metric there is none of."""
    from diskproof.store.grids import find_test

    ids = [_require_study(store, name) for name in wanted] if wanted else [None]
    found = [row for each in dict.fromkeys(ids) for row in store.results(each, metric)]
    if metric and not found:
        rows = [row for each in dict.fromkeys(ids) for row in store.results(each)]
        if found := [row for row in rows if find_test(row) == metric]:
            return found
        known = dict.fromkeys(find_test(row) or row.metric for row in rows)
        raise UsageError(
            f"there is no result of the metric {metric!r}",
            f"there are {', '.join(known)}" if known else "there are no results yet",
        )
    return found


def _require_study(store: Store, name: str) -> str:
    found = store.find_study(name)
    if found is None:
        held = ", ".join(dict.fromkeys(study.name for study in store.studies())) or "no study"
        raise UsageError(f"no study {name!r} in {store.place}", f"it holds {held}")
    return found.id


def _print_csv(rows: Sequence[Mapping[str, Any]]) -> None:
    """A column a factor; the values of single runs in the last one, separated by blanks."""
    factors = sorted({factor for row in rows for factor in row["cell"]})
    others = [name for name in (rows[0] if rows else ()) if name not in ("cell", "runs")]
    writer = csv.writer(sys.stdout)
    writer.writerow([*others, *factors, "runs"])
    for row in rows:
        levels = [row["cell"].get(factor, "") for factor in factors]
        runs = " ".join(map(repr, row["runs"]))
        writer.writerow([*(row[name] for name in others), *levels, runs])


def rank(
    store: StoreOption = DEFAULT_STORE,
    study: StudiesOption = None,
    best: Annotated[int, typer.Option(min=0, help="Only so many lines a workload.")] = 0,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=N,...",
            help="What counts how much in the score: workloads, or read and write.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Rank the cells of each workload and by their score over all; ties are told as ties."""
    from diskproof.cli.advise_verb import name_files
    from diskproof.cli.terminal import console, print_json
    from diskproof.report.read import read_views
    from diskproof.report.scores.find import parse_weights, read_scores
    from diskproof.report.study_tables import ranking_json, render_rankings
    from diskproof.store import open_store

    given = parse_weights(weights) if weights is not None else {}
    with open_store(store) as opened:
        rankings = [
            (view, read_scores(opened, view.study, view.host.id, given))
            for view in name_files(read_views(opened, study or ()))
        ]
    if not rankings:
        raise UsageError(NOTHING_YET.format(store), hint=_MEASURE_FIRST)
    if as_json:
        print_json([ranking_json(view, found, best) for view, found in rankings])
    else:
        # Who gives no weights has asked for the rankings: of the scores the best will do.
        few = 0 if given else BEST_SCORES
        console().print(render_rankings(rankings, best, best_scores=few))
    return Exit.OK


def _views(store: str, study: Sequence[str] | None, details: bool = False) -> Sequence[StudyView]:
    from diskproof.cli.advise_verb import name_files
    from diskproof.report.read import read_views
    from diskproof.store import open_store

    with open_store(store) as opened:
        return name_files(read_views(opened, study or (), details=details))


def report(
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE.html", help="The page.")],
    store: StoreOption = DEFAULT_STORE,
    study: StudiesOption = None,
) -> int:
    """Write one self-contained page with tables and pictures; it needs no network."""
    from diskproof.cli.terminal import note
    from diskproof.report.page import render_page
    from diskproof.store.export import start_whole_file
    from diskproof.units import render_bytes

    views = _views(store, study, details=True)
    if not views:
        raise UsageError(NOTHING_YET.format(store), hint=_MEASURE_FIRST)
    page = render_page(views).encode()
    with start_whole_file(output) as stream:
        stream.write(page)
    note(f"{output}: {render_bytes(len(page))}")
    return Exit.OK


def export(
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="FILE", help="FILE.csv, .parquet, .json, .xlsx."),
    ],
    store: StoreOption = DEFAULT_STORE,
    study: StudiesOption = None,
    kind: Annotated[ExportKind, typer.Option(help="A row a result, run, sample, ...")] = (
        ExportKind.RESULTS
    ),
) -> int:
    """Write results, runs, samples or verdicts as a table for other tools; the suffix says how."""
    from diskproof.store import open_store
    from diskproof.store.export import export_table

    with open_store(store) as opened:
        ids = [_require_study(opened, name) for name in study or ()]
        export_table(opened, ids, kind.value, output)
    return Exit.OK
