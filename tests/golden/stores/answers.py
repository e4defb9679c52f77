"""All that a store answers, as JSON with one question a line: ``answers.py PLACE``.

Records are told by their fields, so what a test holds against it is the public face of the store
and no column of its tables.
"""

import base64
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from diskproof.store import Store, open_store
from diskproof.store.export import export_table
from diskproof.store.export_rows import Kind
from diskproof.store.show import show_rows, sorted_results


def read_answers(store: Store) -> dict[str, object]:
    """Every reading method of a store, for every study, cell, host and run in it."""
    return {name: _plain(answer) for name, answer in _ask(store)}


def render_answers(answers: dict[str, object]) -> str:
    lines = (
        f"{json.dumps(name)}: {json.dumps(answer, default=list)}"
        for name, answer in answers.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _ask(store: Store) -> Iterator[tuple[str, object]]:
    studies = store.studies()
    yield "studies", studies
    yield "hosts", store.hosts()
    yield "progress", store.progress()
    yield "results", store.results()
    for by_cell in (False, True):
        results, figures = store.results(), store.figures(store.results())
        ordered = sorted_results(results, figures, by_cell=by_cell)
        yield f"show {by_cell}", show_rows(ordered, figures, studies)
    yield "verdicts", store.verdicts()
    yield "tile_runs", store.tile_runs()
    for study in studies:
        yield from _ask_of_study(store, study.id)
    crash_runs = sorted({row.run_id for row in store.verdicts()})
    for key in crash_runs:
        yield f"crash_run {key}", store.crash_run(key)
    for key in sorted(run.id for run in store.tile_runs()):
        yield f"tile_run {key}", store.tile_run(key)
        yield f"tile_series_of {key}", store.tile_series_of(key)
    for kind in get_args(Kind):
        yield f"export {kind}", _export(store, kind)


def _ask_of_study(store: Store, key: str) -> Iterator[tuple[str, object]]:
    yield f"find_study {key}", store.find_study(key)
    yield f"counts {key}", store.counts(key)
    yield f"finished_runs {key}", sorted(store.finished_runs(key))
    yield f"results {key} iops", [row.run_ids for row in store.results(key, "iops")]
    yield f"failures {key}", store.failures(key)
    yield f"checks {key}", store.checks(key)
    yield f"checks {key} h2", store.checks(key, "h2")
    yield f"verdicts {key}", store.verdicts(key)
    yield f"tile_runs {key}", store.tile_runs(key)
    runs = store.runs(key)
    yield f"runs {key}", runs
    for run in runs:
        yield f"run {run.id}", store.run(run.id)
        yield f"series_of {run.id}", store.series_of(run.id)
    for cell_id in sorted({run.cell.id for run in runs}):
        for host in (None, "h1", "h2"):
            yield f"histograms {key} {cell_id} {host}", store.histograms(key, cell_id, host)


def _export(store: Store, kind: Kind) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        export_table(store, [], kind, path)
        return path.read_text()


def _plain(value: Any) -> Any:
    """What JSON can hold of it; tuples are lists, bytes are base64."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: _plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if field.compare  # a cell's names are no part of it, and older than no store
        }
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    with open_store(sys.argv[1]) as opened:
        sys.stdout.write(render_answers(read_answers(opened)))
