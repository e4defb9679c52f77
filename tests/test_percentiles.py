"""One cell has one p99.9: every output of a store gives the same figure."""

import base64
import csv
import gzip
import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from diskproof.cli import run_command_line
from diskproof.plan.schedule import make_schedule
from diskproof.records import Cell, Histogram, Metric, RunRecord, StudyRecord
from diskproof.stats.histograms import TOO_FEW_OPERATIONS, CellFigure
from diskproof.store import open_store
from diskproof.store.export_rows import table_columns
from diskproof.units import render_latency
from support.json_schemas import validate
from support.simulate import SIMULATED_HOST, SimulatedExecutor, Simulation
from support.simulated_stores import simulated_cells

BUSY, CALM, SHORT = simulated_cells({"cache": ("none", "writeback", "unsafe")})
RUNS = 3
ASKED = {"latency_p50": 50.0, "latency_p99": 99.0, "latency_p99.9": 99.9}


def operations(cell: Cell, block: int) -> dict[str, list[float]]:
    """Latencies by direction. BUSY has a block with a tail, and writes that are slower; SHORT has
    few operations."""
    rng = random.Random(f"{cell.level('cache')} {block}")
    count = 400 if cell == SHORT else 5000
    slow = 20.0 if cell == BUSY and block == 1 else 1.0
    sides = {"read": 1.0, "write": 3.0} if cell == BUSY else {"read": 1.0}
    return {
        name: [
            round(1e-4 * factor * rng.lognormvariate(0, 0.4) * (slow if n % 100 == 0 else 1), 5)
            for n in range(count)
        ]
        for name, factor in sides.items()
    }


def measured(run: RunRecord) -> RunRecord:
    """The run with these latencies as fio would tell them."""
    latencies = operations(run.cell, run.block)
    histograms = tuple(
        Histogram(name, tuple(edges := sorted(set(each))), tuple(map(each.count, edges)))
        for name, each in latencies.items()
    )
    every = sorted(seconds for each in latencies.values() for seconds in each)
    own = tuple(
        Metric(name, "s", every[math.ceil(percent / 100 * len(every)) - 1], False)
        for name, percent in ASKED.items()
    )
    rest = tuple(metric for metric in run.metrics if "latency" not in metric.name)
    return replace(run, histograms=histograms, metrics=rest + own)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("percentiles") / "s.sqlite"
    cells = (BUSY, CALM, SHORT)
    executor = SimulatedExecutor("s1", Simulation(seed=1))
    with open_store(str(path), create=True) as opened:
        opened.add_study(StudyRecord("s1", "tails", "run", "", 1, RUNS, cells, created=1e9))
        opened.add_host(SIMULATED_HOST)
        for planned in make_schedule(cells, RUNS, 1):
            opened.add_run(measured(executor.execute(planned)))
    return path


def by_hand(cell: Cell, percent: float) -> float | None:
    """Nearest rank among all operations of all runs, one by one."""
    every = sorted(
        seconds
        for block in range(RUNS)
        for each in operations(cell, block).values()
        for seconds in each
    )
    rank = math.ceil(round(percent * len(every) / 100, 6))
    return every[rank - 1] if len(every) - rank >= 10 else None


WANTED = {
    (cell.level("cache") or "", metric): by_hand(cell, percent)
    for cell in (BUSY, CALM, SHORT)
    for metric, percent in ASKED.items()
}


def told(store: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert run_command_line([*arguments, "--store", str(store)]) == 0
    return capsys.readouterr().out


def test_the_store_has_what_this_is_about(store: Path) -> None:
    """A percentile that is absent, and one that the mean of the runs' own gives wrong."""
    assert WANTED["unsafe", "latency_p99.9"] is None and WANTED["unsafe", "latency_p99"]
    with open_store(str(store)) as opened:
        (row,) = (
            r for r in opened.results("s1", "latency_p99.9") if r.cell.level("cache") == "none"
        )
    wanted = WANTED["none", "latency_p99.9"]
    assert wanted and not 0.8 < sum(row.values) / len(row.values) / wanted < 1.25


def test_show_and_its_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(told(store, capsys, "show", "--all", "--json"))
    validate("show", rows)
    found = {(r["cell"]["cache"], r["metric"]): r for r in rows if r["metric"] in ASKED}
    assert {key: row["mean"] for key, row in found.items()} == pytest.approx(WANTED)
    for key, row in found.items():
        few = WANTED[key] is None
        assert row["reason"] == (TOO_FEW_OPERATIONS if few else None) and row["pooled"]
        assert few or row["low95"] < row["mean"] < row["high95"]
    text = told(store, capsys, "show", "--metric", "latency_p99.9")
    for cache in ("none", "writeback"):
        assert short(WANTED[cache, "latency_p99.9"]) in text
    assert TOO_FEW_OPERATIONS in " ".join(text.split())


def short(seconds: float | None) -> str:
    assert seconds is not None
    return render_latency(seconds).replace(" ", "")


def test_rank_and_its_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    studies = json.loads(told(store, capsys, "rank", "--json"))
    validate("rank", studies)
    (study,) = studies
    cells = study["rankings"][0]["cells"]
    found = {(c["cell"]["cache"], m): v for c in cells for m, v in c["latencies"].items()}
    assert found == pytest.approx(WANTED)
    missing = {c["cell"]["cache"]: c["latencies_missing"] for c in cells}
    assert missing == {
        "none": {}, "writeback": {}, "unsafe": {"latency_p99.9": TOO_FEW_OPERATIONS}
    }  # fmt: skip
    text = told(store, capsys, "rank")
    assert all(short(value) in text for value in WANTED.values() if value)


def test_the_page_has_them_in_its_table_and_its_chart(store: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run_command_line(["report", "--store", str(store), "-o", str(page)]) == 0
    text = page.read_text()
    for metric in ASKED:
        label = metric.removeprefix("latency_")
        place = rf'<td data-head="{re.escape(label)}">(?:<span[^>]*>)?([^<]*)'
        cells = re.findall(place, text)
        wanted = {WANTED[cache, metric] for cache in ("none", "writeback", "unsafe")}
        assert {cell.strip() for cell in cells} == {
            short(each) if each else TOO_FEW_OPERATIONS for each in wanted
        }
    specs = re.search(r'id="specs">([^<]*)<', text)
    assert specs is not None
    charts = json.loads(gzip.decompress(base64.b64decode(specs[1]))).values()
    points = [
        (row["cell"], row["percentile"], row["seconds"])
        for chart in charts
        for row in chart.get("data", {}).get("values", ())
        if "percentile" in row
    ]
    calm = {percent: seconds for cell, percent, seconds in points if "writeback" in cell}
    few = {percent for cell, percent, _ in points if "unsafe" in cell}
    for metric in ASKED:
        percent = metric.removeprefix("latency_")
        assert calm[percent] == pytest.approx(WANTED["writeback", metric])
        assert (percent in few) == (WANTED["unsafe", metric] is not None)


def test_compare_and_its_json(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("compare", "cache=none", "cache=writeback", "--metric", "latency_p99.9")
    compared = json.loads(told(store, capsys, *asked, "--json"))
    validate("compare", compared)
    (line,) = compared["comparisons"]
    assert line["mean_a"] == pytest.approx(WANTED["none", "latency_p99.9"])
    assert line["mean_b"] == pytest.approx(WANTED["writeback", "latency_p99.9"])
    short_one = ["compare", "cache=none", "cache=unsafe", "--metric", "latency_p99.9"]
    assert run_command_line([*short_one, "--store", str(store)]) == 2
    assert TOO_FEW_OPERATIONS in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_exports(store: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"out.{suffix}"
    assert run_command_line(["export", "--store", str(store), "-o", str(path)]) == 0
    if suffix == "csv":
        rows: list[dict[str, Any]] = list(csv.DictReader(path.read_text().splitlines()))
    elif suffix == "json":
        rows = [{**r, "cell.cache": r["cell"]["cache"]} for r in json.loads(path.read_text())]
    else:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    found = {
        (r["cell.cache"], r["metric"]): float(r["mean"]) if r["mean"] not in (None, "") else None
        for r in rows
        if r["metric"] in ASKED
    }
    assert found == pytest.approx(WANTED)
    reasons = {r["reason"] or "" for r in rows if r["mean"] in (None, "")}
    assert reasons == {TOO_FEW_OPERATIONS}


def test_without_histograms_it_is_the_mean_of_the_runs(store: Path) -> None:
    with open_store(str(store)) as opened:
        row = opened.results("s1", "latency_p99")[0]
        lost = replace(row, run_ids=("gone", *row.run_ids[1:]))
        (figure,) = opened.figures([lost]).values()
        columns = {c.head for c in table_columns(opened, opened.studies(), "results")}
    assert not figure.pooled and figure.value == pytest.approx(sum(row.values) / RUNS)
    assert isinstance(figure, CellFigure) and {"low95", "high95", "reason"} <= columns
