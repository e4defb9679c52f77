"""A mean has one name in every output: ``mean`` is arithmetic, ``geomean`` is geometric."""

import csv
import io
import json
import math
from collections.abc import Iterator
from statistics import fmean, geometric_mean
from typing import Any

import pytest

from diskproof.cli import run_command_line
from support.simulated_stores import fill, simulated_cells

CELLS = simulated_cells()
METRIC, PERCENTILE = "iops", "latency_p99"
Runs = dict[tuple[str, ...], list[float]]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Cells that scatter so much that the two means lie far apart."""
    folder = tmp_path_factory.mktemp("means")
    return tuple(  # type: ignore[return-value]
        str(fill(folder / f"{seed}.sqlite", CELLS, cv=0.6, seed=seed, blocks=6)) for seed in (1, 2)
    )


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command_line(list(arguments)) in (0, 1)
    return capsys.readouterr().out


def shown(capsys: pytest.CaptureFixture[str], store: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        call(capsys, "show", "--store", store, "--all", "--json")
    )
    return found


def levels(cell: dict[str, str]) -> tuple[str, ...]:
    return tuple(f"{name}={level}" for name, level in sorted(cell.items()))


def runs_of(rows: list[dict[str, Any]]) -> Runs:
    return {levels(row["cell"]): row["runs"] for row in rows if row["metric"] == METRIC}


def told(row: dict[str, Any], runs: list[float]) -> Iterator[bool]:
    yield math.isclose(float(row["mean"]), fmean(runs))
    yield math.isclose(float(row["geomean"]), geometric_mean(runs))
    yield float(row["mean"]) > 1.02 * float(row["geomean"])


def test_one_name_one_mean_in_every_output(
    stores: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = shown(capsys, stores[0])
    runs = runs_of(rows)
    assert len(runs) == len(CELLS)
    for row in rows:
        if not row["pooled"]:
            assert math.isclose(row["mean"], fmean(row["runs"]))
            assert math.isclose(row["geomean"], geometric_mean(row["runs"]))
    exported = call(capsys, "export", "--store", stores[0], "-o", "-")
    for line in csv.DictReader(io.StringIO(exported)):
        if line["metric"] == METRIC:
            cell = {k[5:]: v for k, v in line.items() if k.startswith("cell.") and v}
            assert all(told(line, runs[levels(cell)]))
    (ranking,) = json.loads(call(capsys, "rank", "--store", stores[0], "--json"))
    for cell in ranking["rankings"][0]["cells"]:
        assert all(told(cell, runs[levels(cell["cell"])]))
    other = runs_of(shown(capsys, stores[1]))
    compared = json.loads(call(capsys, "compare", *stores, "--json"))["comparisons"]
    for line in compared:
        ratio = line["geomean_b"] / line["geomean_a"]
        assert math.isclose(line["ratio"], ratio)
        if line["cell_a"]:
            for side, its in (("a", runs), ("b", other)):
                mean = {name: line[f"{name}_{side}"] for name in ("mean", "geomean")}
                assert all(told(mean, its[levels(line["cell_a"])]))


def test_columns_say_which_mean(
    stores: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    rank = call(capsys, "rank", "--store", stores[0])
    show = " ".join(call(capsys, "show", "--store", stores[0]).split())
    compare = " ".join(call(capsys, "compare", *stores).split())
    assert "geomean" in rank and "mean is arithmetic; rank and compare go by geometric" in show
    assert "geometric means" in compare


def test_a_ratio_of_percentiles_is_that_of_the_figures_beside_it(
    stores: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Percentiles of all operations, everywhere; no mean of the runs' own."""
    pooled = [
        {levels(r["cell"]): r["mean"] for r in shown(capsys, store) if r["metric"] == PERCENTILE}
        for store in stores
    ]
    found = json.loads(call(capsys, "compare", *stores, "--metric", PERCENTILE, "--json"))
    together = found["comparisons"][-1]
    for line in found["comparisons"]:
        assert math.isclose(line["ratio"], line["mean_b"] / line["mean_a"])
        assert line["low"] < line["ratio"] < line["high"] and line["geomean_a"] is None
    for line in found["comparisons"][:-1]:
        assert line["mean_a"] == pooled[0][levels(line["cell_a"])]
        assert line["mean_b"] == pooled[1][levels(line["cell_b"])]
    assert together["cell_a"] is None
    assert together["mean_a"] == pytest.approx(geometric_mean(pooled[0].values()))
