"""The spreadsheet, read back by openpyxl."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import openpyxl
import pytest

from diskproof.errors import UsageError
from diskproof.records import WorkloadSpec
from diskproof.store import Store, open_store
from diskproof.store import workbook as writer
from diskproof.store.export import export_table
from diskproof.store.grids import read_grids
from diskproof.store.show import show_rows
from support.grid_stores import fill_grids

COMMANDS = ("=1+1", "+1", "-1", "@SUM(A1)", '=HYPERLINK("http://x","y")')
"""Levels that look like formulas, as an import may bring them."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(fill_grids(tmp_path / "s.sqlite", COMMANDS, "=name()"))) as opened:
        yield opened


def test_results_and_runs_come_back(store: Store, tmp_path: Path) -> None:
    export_table(store, [], "results", tmp_path / "r.xlsx")
    book = openpyxl.load_workbook(tmp_path / "r.xlsx")
    assert book.sheetnames == ["results", "runs", *(f"iozone {n}" for n in range(1, 6))]
    heads, *rows = book["results"].values
    told = [dict(zip(heads, row, strict=True)) for row in rows]
    results = store.results("=study")
    wanted = show_rows(results, store.figures(results), store.studies())
    assert [row["metric"] for row in told] == [row["metric"] for row in wanted]
    for name in ("n", "mean", "ci95", "primary"):
        assert [row[name] for row in told] == [row[name] for row in wanted]
    heads, *rows = book["runs"].values
    runs = [dict(zip(heads, row, strict=True)) for row in rows]
    assert {run["run"] for run in runs} == {run.id for run in store.runs("=study")}
    assert sorted(run["metrics.mean_bandwidth"] for run in runs) == [100] * 5 + [101] * 5


def test_no_text_is_a_formula(store: Store, tmp_path: Path) -> None:
    export_table(store, [], "results", tmp_path / "r.xlsx")
    book = openpyxl.load_workbook(tmp_path / "r.xlsx")
    fields = [field for sheet in book for row in sheet.iter_rows() for field in row]
    assert {field.data_type for field in fields} <= {"s", "n", "b"}
    found = [field for field in fields if str(field.value).startswith(tuple("=+-@"))]
    assert {field.value for field in found} >= {*COMMANDS, "=name()", "=study"}
    assert all(field.quotePrefix for field in found if isinstance(field.value, str))
    assert not any(field.hyperlink for field in fields)


def test_iozones_grids_are_laid_out_as_it_does(store: Store, tmp_path: Path) -> None:
    export_table(store, [], "results", tmp_path / "r.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "r.xlsx")["iozone 1"]
    rows = [[value for value in row if value is not None] for row in sheet.values]
    (top,) = [n for n, row in enumerate(rows) if row and str(row[0]).startswith("random_read")]
    assert rows[top + 1] == [4, 64]
    assert rows[top + 2] == [64, 100.5, 200.5]
    assert rows[top + 3] == [1024, 300.5, 400.5]


def test_only_iozones_figures_make_a_grid(store: Store) -> None:
    (row, *_) = [row for row in store.results("=study") if row.metric == "write 4K/1M"]
    other = replace(row, cell=replace(row.cell, workload=WorkloadSpec("x", "fio")))
    strange = [replace(row, metric=name) for name in ("write 4.4.4K/1M", "write 4K", "a b 1K/1K")]
    (grid,) = read_grids([row, other, *strange])
    assert grid.means == {("4K", "1M"): 300.5}


def test_what_a_sheet_cannot_hold_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "MAX_ROWS", 10)
    with pytest.raises(UsageError, match="more than 9 results do not fit"):
        export_table(store, [], "results", tmp_path / "r.xlsx")
    assert [path.name for path in tmp_path.glob("*.xlsx*")] == []
