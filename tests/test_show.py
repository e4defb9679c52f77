"""What `show` prints, held against figures worked out by hand."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.records import Cell, WorkloadSpec
from diskproof.stats.histograms import mean_figure
from diskproof.store.rows import ResultRow
from diskproof.store.show import Figures, show_rows, sorted_results


def make_row(
    cache: str,
    values: tuple[float, ...],
    *,
    workload: str = "read",
    metric: str = "iops",
    higher: bool = True,
    primary: bool = True,
    study: str = "s1",
) -> ResultRow:
    cell = Cell((("cache", cache), ("format", "raw")), WorkloadSpec(workload, "imported"))
    blocks = tuple(range(len(values)))
    ids = tuple(f"{cache}-{workload}-{block}" for block in blocks)
    return ResultRow(study, "h1", cell, metric, "1/s", higher, primary, values, blocks, ids)


def figures(rows: Sequence[ResultRow]) -> Figures:
    return {row: mean_figure(row.values) for row in rows}


def shown(rows: Sequence[ResultRow]) -> list[dict[str, object]]:
    return show_rows(rows, figures(rows), [])


def test_an_object_has_what_the_contract_promises() -> None:
    (row,) = shown([make_row("none", (1.0, 2.0, 3.0))])
    assert row["cell"] == {"cache": "none", "format": "raw"}
    assert (row["workload"], row["metric"], row["unit"]) == ("read", "iops", "1/s")
    assert (row["study"], row["host"]) == ("s1", "h1")
    assert (row["n"], row["mean"], row["runs"]) == (3, 2.0, [1.0, 2.0, 3.0])
    # t(0.975, 2) = 4.302653 by any table, sd 1, over the root of 3
    assert row["ci95"] == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
    assert (row["higher_is_better"], row["primary"]) == (True, True)


def test_one_run_has_no_interval_and_equal_runs_that_of_their_resolution() -> None:
    single, equal = shown([make_row("none", (5.0,)), make_row("unsafe", (5.0, 5.0))])
    assert (single["n"], single["ci95"]) == (1, None)
    assert (equal["n"], equal["ci95"]) == (2, 0.5)
    assert json.loads(json.dumps([single, equal])) == [single, equal]


def test_best_mean_comes_first_and_metrics_stay_with_their_cell() -> None:
    rows = []
    for cache, mean in (("none", 2.0), ("unsafe", 9.0), ("writeback", 5.0)):
        rows += [
            make_row(cache, (1 / mean,), metric="latency", higher=False, primary=False),
            make_row(cache, (mean,)),
        ]
    order = [
        (row.cell.level("cache"), row.metric)
        for row in sorted_results(rows, figures(rows), by_cell=False)
    ]
    caches = ("unsafe", "writeback", "none")
    assert order == [(cache, metric) for cache in caches for metric in ("latency", "iops")]
    assert sorted_results(rows, figures(rows), by_cell=True) == rows


def test_lower_is_better_and_without_the_primary_metric_the_first_one_decides() -> None:
    rows = [
        make_row(cache, (seconds,), metric="seconds", higher=False, primary=False)
        for cache, seconds in (("none", 3.0), ("unsafe", 1.0), ("writeback", 2.0))
    ]
    order = [row.cell.level("cache") for row in sorted_results(rows, figures(rows), by_cell=False)]
    assert order == ["unsafe", "writeback", "none"]


def test_workloads_and_studies_keep_their_order() -> None:
    rows = [
        make_row(cache, (mean,), workload=workload, study=study)
        for study in ("s2", "s1")
        for cache, mean in (("none", 1.0), ("unsafe", 2.0))
        for workload in ("write", "read")
    ]
    for by_cell in (True, False):
        order = [
            (r.study_id, r.cell.workload.name)
            for r in sorted_results(rows, figures(rows), by_cell=by_cell)
        ]
        expected = [(study, name) for study in ("s2", "s1") for name in ("write", "read")]
        assert order == [pair for pair in expected for _ in range(2)]


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.floats(0, 1e9)), max_size=20), st.booleans())
def test_sorting_neither_loses_nor_invents(pairs: list[tuple[str, float]], by_cell: bool) -> None:
    rows = [
        replace(make_row(cache, (value,)), host_id=str(n)) for n, (cache, value) in enumerate(pairs)
    ]
    ordered = sorted_results(rows, figures(rows), by_cell=by_cell)
    assert sorted(map(repr, ordered)) == sorted(map(repr, rows))
    if not by_cell:
        means = [row.values[0] for row in ordered]
        assert means == sorted(means, reverse=True)
