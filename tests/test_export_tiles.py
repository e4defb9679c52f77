"""Runs of tiles as a table, a row for each workload of each tile; what ``show`` says of them."""

import csv
import json
from pathlib import Path

import openpyxl
import pyarrow.parquet
import pytest

from diskproof.store import open_store
from diskproof.store.export import export_table
from support.commands import diskproof
from support.tile_stores import fill_tiles, tile_cell

GOOD_ROWS = 4 + 2 * 4
"""Four workloads of one tile, and of each of two; the failed run is a row of its own."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("export") / "t.sqlite"
    cells = (tile_cell("none"), tile_cell("writeback"))
    fill_tiles(path, cells, most=2, runs=1, series=False, fail="web")
    return path


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_a_row_for_each_workload_of_each_tile(place: Path, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"tiles.{suffix}"
    with open_store(str(place)) as store:
        runs = store.tile_runs()
        export_table(store, [], "tiles", file)
    wanted = [
        (run.id, work.tile, work.work, work.value("seconds")) for run in runs for work in run.works
    ]
    wanted += [(run.id, None, None, None) for run in runs if run.failure]
    if suffix == "csv":
        rows = [{k: v or None for k, v in row.items()} for row in csv.DictReader(file.open())]
        found = [
            (
                row["run"],
                int(row["tile_number"]) if row["tile_number"] else None,
                row["workload"],
                float(row["metrics.seconds"]) if row["metrics.seconds"] else None,
            )
            for row in rows
        ]
    elif suffix == "json":
        rows = json.loads(file.read_text())
        found = [
            (row["run"], row["tile_number"], row["workload"], row["metrics"].get("seconds"))
            for row in rows
        ]
    else:
        rows = pyarrow.parquet.read_table(file).to_pylist()
        found = [
            (row["run"], row["tile_number"], row["workload"], row["metrics.seconds"])
            for row in rows
        ]
    key = str
    assert sorted(found, key=key) == sorted(wanted, key=key) and len(found) == 4 + GOOD_ROWS + 1
    (failed,) = [row for row in rows if row["failure_kind"]]
    assert failed["failure_kind"] == "guest" and "Out of memory" in str(failed["failure"])


def test_a_spreadsheet_has_a_sheet_of_tiles(place: Path, tmp_path: Path) -> None:
    with open_store(str(place)) as store:
        export_table(store, [], "results", tmp_path / "t.xlsx")
    book = openpyxl.load_workbook(tmp_path / "t.xlsx")
    assert book.sheetnames == ["results", "runs", "tiles"]
    heads, *rows = book["tiles"].values
    assert {"cell.cache", "metrics.throughput", "wall_seconds"} <= set(heads)
    assert len(rows) == 4 + GOOD_ROWS + 1


def test_show_says_that_there_are_runs_of_tiles(place: Path, tmp_path: Path) -> None:
    shown = diskproof("show", "--store", place, cwd=tmp_path)
    assert shown.returncode == 0
    assert b"stored, too: 4 tile runs" in shown.stdout and b"--kind tiles" in shown.stdout
    assert b"no results" not in shown.stdout
    as_json = diskproof("show", "--store", place, "--json", cwd=tmp_path)
    assert json.loads(as_json.stdout) == []
    exported = diskproof("export", "--kind", "tiles", "-o", "-", "--store", place, cwd=tmp_path)
    assert exported.stdout.startswith(b"study,study_name,host,run,tile,workload,guest,cell.")
