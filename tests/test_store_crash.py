"""Crash runs in a store: as they went in, once, in one transaction."""

# ruff: noqa: F811 (fixtures by their names)
import csv
import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diskproof.errors import UsageError
from diskproof.records import Failure
from diskproof.records.verdicts import COVERED, Verdict
from diskproof.store import DuplicateRun, Store
from diskproof.store.export import export_table
from support.crashing import LOSS, make_crash_run, make_verdict
from test_store import EMPTY, database, store, url  # noqa: F401  (fixtures of both databases)


def test_a_crash_run_comes_out_as_it_went_in(store: Store) -> None:
    failure = Failure("qemu", "it died", "why", "hint")
    undecided = Verdict("power", "undecided", reason="it died")
    for run in (
        make_crash_run(),
        replace(make_crash_run(2, undecided, frontend="host"), failure=failure),
    ):
        store.add_crash_run(run)
        assert store.crash_run(run.id) == run


def test_verdicts_that_count(store: Store) -> None:
    run = make_crash_run()
    store.add_crash_run(run)
    rows = store.verdicts("s1")
    assert [row.verdict for row in rows] == [LOSS, make_verdict()]
    assert {(row.cell, row.run_id, row.host_id) for row in rows} == {(run.cell, run.id, "h1")}
    assert rows[0].counts == run.counts
    assert store.verdicts() == rows
    assert store.verdicts("other") == []


def test_a_cells_verdict_counts_once_and_a_stored_run_is_left_alone(store: Store) -> None:
    store.add_crash_run(make_crash_run())
    store.add_crash_run(make_crash_run())
    with pytest.raises(DuplicateRun):
        store.add_crash_run(make_crash_run(2, make_verdict("guest-kill"), LOSS))
    # All or nothing: the guest-kill verdict of the refused run is not there either.
    assert [row.verdict.fault for row in store.verdicts()] == ["power", "qemu-kill"]
    with pytest.raises(UsageError):
        store.crash_run("crash-2")


def test_keeps_that_noted_no_coverage_is_kept_so_far_and_made_again(store: Store) -> None:
    """Verdicts of earlier versions; those that noted theirs, and whole searches, stay."""
    early = replace(make_verdict(), states_total=1135, estimated=True)
    noted = replace(early, fault="power", details={COVERED: {}})
    store.add_crash_run(make_crash_run(1, early, noted))
    told = {row.verdict.fault: row.verdict.kept_so_far for row in store.verdicts()}
    assert told == {"qemu-kill": True, "power": False}
    assert store.remove_undecided("s1") == 1
    assert [row.verdict.fault for row in store.verdicts()] == ["power"]


def test_undecided_verdicts_are_made_again(store: Store) -> None:
    store.add_crash_run(make_crash_run(1, Verdict("power", "undecided"), make_verdict()))
    assert store.remove_undecided("s1") == 1
    assert [row.verdict.fault for row in store.verdicts()] == ["qemu-kill"]
    store.add_crash_run(make_crash_run(2, LOSS))
    assert len(store.verdicts()) == 2


def test_crash_cells_are_no_cells_of_the_study(store: Store) -> None:
    store.add_crash_run(make_crash_run())
    study = store.find_study("s1")
    assert study is not None and study.cells == EMPTY.cells
    assert store.results() == []


@pytest.mark.parametrize("changes", [{"study_id": "x"}, {"host_id": "x"}])
def test_an_unknown_study_or_host_is_refused(store: Store, changes: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="cannot be stored"):
        store.add_crash_run(replace(make_crash_run(), **changes))
    assert store.verdicts() == []


@pytest.mark.parametrize(
    "verdict",
    [
        replace(LOSS, lost=-1),
        replace(LOSS, age_seconds=float("nan")),
        replace(LOSS, verdict="fine"),  # type: ignore[arg-type]
        replace(LOSS, fault="fire"),  # type: ignore[arg-type]
        replace(LOSS, missing=(1,) * 10_001),
    ],
)
def test_what_no_reader_could_trust_is_refused(store: Store, verdict: Verdict) -> None:
    with pytest.raises(UsageError, match="cannot be stored"):
        store.add_crash_run(make_crash_run(1, verdict))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=50))
def test_any_reason_is_kept(store: Store, text: str) -> None:
    undecided = replace(make_verdict(), reason=text)
    store.remove_undecided("s1")
    number = len(store.verdicts())
    store.add_crash_run(make_crash_run(number, undecided, cache=f"level {number}"))
    stored = [row.verdict.reason for row in store.verdicts() if row.run_id == f"crash-{number}"]
    assert stored == [text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()]


@pytest.mark.parametrize("suffix", ["csv", "json", "parquet"])
def test_verdicts_are_exported(store: Store, tmp_path: Path, suffix: str) -> None:
    store.add_crash_run(make_crash_run())
    file = tmp_path / f"verdicts.{suffix}"
    export_table(store, [], "verdicts", file)
    if suffix == "csv":
        rows = list(csv.DictReader(file.open()))
        assert [(row["fault"], row["cell.cache"], row["lost"]) for row in rows] == [
            ("power", "unsafe", "3"),
            ("qemu-kill", "unsafe", "0"),
        ]
    elif suffix == "json":
        first, _ = json.loads(file.read_text())
        assert (first["writer"], first["missing"], first["cut"]) == ("ledger", [30, 31], 41)
    else:
        table = pyarrow.parquet.read_table(file)
        assert table.column("verdict").to_pylist() == ["loses", "keeps"]
        assert table.column("missing").to_pylist() == [[30, 31], []]
