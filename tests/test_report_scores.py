"""Scores from stored results: weights by name and direction, joined cells, tables and JSON."""

import json
import math
import random

import pytest
from rich.console import Console

from diskproof.errors import UsageError
from diskproof.records import Cell, HostRecord, StudyRecord, WorkloadSpec
from diskproof.report.scores.find import direction, parse_weights, score_rows, spread_weights
from diskproof.report.scores.table import column_words
from diskproof.report.study_tables import ranking_json, render_rankings
from diskproof.report.view import StudyView, rank_workloads
from diskproof.store.rows import ResultRow

SPEEDS = {
    "seq-read": {"host": 1000.0, "raw": 800.0, "thin": 700.0},
    "rand-read-4k-d1": {"host": 10000.0, "raw": 4000.0, "thin": 2000.0},
    "seq-write": {"host": 500.0, "raw": 450.0, "thin": 200.0},
    "rand-write-4k-d1": {"host": 9000.0, "raw": 5000.0},
}


def make_cell(load: str, name: str) -> Cell:
    levels = (
        (("frontend", "host"),) if name == "host" else (("format", name), ("frontend", "daemon"))
    )
    return Cell(levels, WorkloadSpec(load, "fio"))


def make_rows(speeds: dict[str, dict[str, float]] = SPEEDS, runs: int = 5) -> list[ResultRow]:
    rng = random.Random(3)
    rows = []
    for load, cells in speeds.items():
        metric = ("bandwidth", "MiB/s") if load.startswith("seq") else ("iops", "1/s")
        for name, speed in cells.items():
            values = tuple(speed * math.exp(rng.gauss(0, 0.02)) for _ in range(runs))
            ids = tuple(f"{load}-{name}-{run}" for run in range(runs))
            cell = make_cell(load, name)
            rows.append(
                ResultRow("s", "h", cell, *metric, True, True, values, tuple(range(runs)), ids)
            )
    return rows


def make_study(rows: list[ResultRow]) -> StudyView:
    study = StudyRecord("s", "four", "run", "", 1, 5, tuple(row.cell for row in rows))
    return StudyView(study, HostRecord("h", "lab", {}), rank_workloads(study, rows))


def test_weights_are_read() -> None:
    assert parse_weights("read=2, write=1") == {"read": 2, "write": 1}
    for wrong in ("", "read", "read=", "=3", "read=-1", "read=nan", "read=inf", "a=1,a=2", "a=1,"):
        with pytest.raises(UsageError, match="not understood"):
            parse_weights(wrong)


def test_directions() -> None:
    kinds = {"seq-read": "read", "rand-write-4k-d32": "write", "mixed-70-30": "", "read": "read"}
    for name, kind in kinds.items():
        assert direction(WorkloadSpec(name, "fio")) == kind
    assert direction(WorkloadSpec("mine", "fio", (("rw", "randwrite"),))) == "write"


def test_weights_are_spread() -> None:
    loads = [WorkloadSpec(name, "fio") for name in SPEEDS]
    assert set(spread_weights(loads, {}).values()) == {1.0}
    halves = spread_weights(loads, {"read": 3, "write": 1})
    assert halves["seq-read"] == halves["rand-read-4k-d1"] == 1.5
    assert halves["seq-write"] == 0.5
    own = spread_weights(loads, {"seq-read": 3, "read": 1})
    assert own == {"seq-read": 3, "rand-read-4k-d1": 1, "seq-write": 0, "rand-write-4k-d1": 0}


def test_weights_that_fit_nothing_are_refused() -> None:
    loads = [WorkloadSpec("seq-read", "fio")]
    with pytest.raises(UsageError) as caught:
        spread_weights(loads, {"seq-reed": 1})
    assert "seq-read" in caught.value.hint
    with pytest.raises(UsageError):
        spread_weights(loads, {"write": 1})
    with pytest.raises(UsageError, match="all weights are 0"):
        spread_weights(loads, {"seq-read": 0})


def test_cells_are_joined_and_what_is_missing_is_named() -> None:
    found = score_rows(make_rows(), {}, blocked=True)
    assert found is not None
    assert [dict(line.levels).get("format", "host") for line in found.scores.lines] == [
        "host",
        "raw",
    ]
    (lacking,) = found.scores.missing.items()
    assert dict(lacking[0])["format"] == "thin" and lacking[1] == ("rand-write-4k-d1",)
    raced = score_rows(make_rows(), {}, blocked=True, looked=True)
    assert found and raced and "race" not in column_words(found)
    assert "a race stopped early looks slower than it is" in column_words(raced)
    only_reads = score_rows(make_rows(), {"read": 1}, blocked=True)
    assert only_reads is not None and len(only_reads.scores.lines) == 3


def test_weighted_speeds_need_a_baseline_and_four_loads() -> None:
    found = score_rows(make_rows(), {}, blocked=True)
    assert found is not None and found.weighted is not None
    assert found.weighted.read_factor == pytest.approx(0.1, rel=0.05)
    few = {name: SPEEDS[name] for name in ("seq-read", "rand-read-4k-d1")}
    without = score_rows(make_rows(few), {}, blocked=True)
    assert without is not None and without.weighted is None and "seq-write" in without.unweighted
    guests = {load: {"raw": cells["raw"]} for load, cells in SPEEDS.items()}
    baseless = score_rows(make_rows(guests), {}, blocked=True)
    assert baseless is not None and "there are 0" in baseless.unweighted


def test_one_workload_has_no_score() -> None:
    assert score_rows(make_rows({"seq-read": SPEEDS["seq-read"]}), {}, blocked=True) is None
    assert score_rows([], {}, blocked=True) is None


@pytest.mark.parametrize("runs", [1, 5])
def test_json_holds_scores_and_both_kinds_of_intervals(runs: int) -> None:
    rows = make_rows(runs=runs)
    view = make_study(rows)
    found = ranking_json(view, score_rows(rows, {}, blocked=True), 0)
    text = json.loads(json.dumps(found, allow_nan=False))
    second = text["rankings"][0]["cells"][1]
    assert text["score"]["cells"][0]["label"] == "host"
    assert len(text["weighted_speed"]["cells"]) == 3
    assert text["score"]["missing"][0]["lacks"] == ["rand-write-4k-d1"]
    if runs == 5:
        wide, narrow = second["ratio_simultaneous95"], second["ratio_ci95"]
        assert wide[0] < second["ratio_to_best"] < wide[1] < 1
        assert narrow[0] < second["ratio_to_best"] < narrow[1]
    else:
        assert second["ratio_simultaneous95"] is None and second["rank"] is None


def test_tables_fit_eighty_columns() -> None:
    rows = make_rows()
    console = Console(width=80, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(render_rankings([(make_study(rows), score_rows(rows, {}, blocked=True))], 0))
    text = captured.get()
    assert max(map(len, text.splitlines())) <= 80 and "\u2026" not in text
    flat = " ".join(text.split())
    assert "host has the best score, proved better than every other" in flat
    assert "lacks rand-write-4k-d1" in flat and "best five of each" in flat


def test_the_scores_alone_can_be_short_and_say_what_is_missing() -> None:
    guests = {
        load: {name: cells[name] for name in ("raw", "host")} for load, cells in SPEEDS.items()
    }
    del guests["seq-write"]
    rows = make_rows(guests)
    console = Console(width=80, force_terminal=False)
    with console.capture() as captured:
        ranking = make_study(rows), score_rows(rows, {}, blocked=True)
        console.print(render_rankings([ranking], 0, best_scores=1))
    text = captured.get()
    assert max(map(len, text.splitlines())) <= 80
    assert "1 more are not shown" in " ".join(text.split())
    assert "weighted" not in text, "nobody asked for another one's score"
