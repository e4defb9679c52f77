"""Views from a real store, filled by the simulated executor."""

from dataclasses import replace
from pathlib import Path

import pytest

from diskproof.errors import UsageError
from diskproof.plan.schedule import make_schedule
from diskproof.records import Artefact, Cell, Check, RunRecord, StudyRecord, WorkloadSpec
from diskproof.report.page import render_page
from diskproof.report.read import read_views
from diskproof.store import Store, open_store
from support.report_views import FACTORS, make_cells
from support.simulate import SIMULATED_HOST, SimulatedExecutor, Simulation, true_iops

LOADS = (("rand-read", "randread", "0"), ("sync-write", "write", "1"))


def cells() -> tuple[Cell, ...]:
    loads = {
        name: WorkloadSpec(name, "fio", (("bs", "4096"), ("fsync", fsync), ("rw", rw)))
        for name, rw, fsync in LOADS
    }
    return tuple(replace(cell, workload=loads[cell.workload.name]) for cell in _bare(loads))


def _bare(names: dict[str, WorkloadSpec]) -> list[Cell]:
    return make_cells(FACTORS, list(names))


def with_evidence(run: RunRecord) -> RunRecord:
    console = Artefact("console", "text/plain", b"line\n" * 500 + b"</script> panic \xff")
    check = Check("cache.direct", "on", "on", "QMP", True)
    return replace(run, artefacts=(*run.artefacts, console), checks=(check,))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = open_store(str(tmp_path_factory.mktemp("store") / "s.sqlite"), create=True)
    study = StudyRecord("study-1", "simulated", "run", "", 7, 4, cells())
    store.add_study(study)
    store.add_host(SIMULATED_HOST)
    executor = SimulatedExecutor(study.id, Simulation(seed=7, failure_rate=0.03))
    for planned in make_schedule(study.cells, study.blocks, study.seed):
        store.add_run(with_evidence(executor.execute(planned)))
    return store


def test_views_hold_what_the_store_holds(filled: Store) -> None:
    [view] = read_views(filled)
    counts = filled.counts("study-1")
    runs = view.parts["runs"]
    assert (view.runs, len(runs.failures)) == (counts.ok, counts.failed)
    assert counts.failed > 0
    assert [load.name for load in view.workloads] == ["rand-read", "sync-write"]
    assert "details" not in view.parts and not runs.checks
    best = max(cells(), key=lambda cell: (cell.workload.name == "rand-read", true_iops(cell)))
    lines = view.workloads[0].lines
    winners = {line.ranked.cell.id for line in lines if line.ranked.rank == 1}
    assert best.id in winners
    assert set(view.workloads[1].lines[0].latencies) >= {"latency_p50", "flush_p99"}


def test_details_for_the_page(filled: Store) -> None:
    [view] = read_views(filled, ["simulated"], details=True)
    detail = view.parts["details"]["sync-write"]
    assert set(detail.curves) == {"write", "flush"} and len(detail.curves["write"]) == 4
    assert len(detail.traces["iops"]) == 4
    tails = dict(view.parts["runs"].failures[0].tails)
    assert tails["console"].endswith("panic \ufffd") and tails["console"].count("\n") < 40
    assert len(view.parts["runs"].checks) == len(cells())
    page = render_page([view])
    assert "every figure is made up" in page and "flush: latency by percentile" in page


def test_unknown_study_says_what_there_is(filled: Store) -> None:
    with pytest.raises(UsageError, match="no study 'nope'") as caught:
        read_views(filled, ["nope"])
    assert "simulated" in caught.value.why


def test_a_study_without_runs_is_a_view(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "s.sqlite"), create=True) as store:
        store.add_study(StudyRecord("s", "new", "run", "", 1, 3, cells()))
        [view] = read_views(store, details=True)
    assert view.workloads == () and "No run gave a result yet" in render_page([view])
