"""The simulated executor: full records, the truth it says, noise and drift as asked for."""

import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.plan import make_plan
from diskproof.plan.schedule import make_schedule
from diskproof.records import Cell, PlannedRun, RunRecord
from diskproof.study.load import load_study, parse_study
from diskproof.study.presets import PRESETS
from support.planning import FACTS
from support.simulate import SimulatedExecutor, Simulation, true_iops

ALL_LOADS = f"""
workloads = {[preset.name for preset in PRESETS]}
[factors]
frontend = ["host", "daemon", "guest"]
[protocol]
size = "64MiB"
"""
CELLS = make_plan(parse_study(ALL_LOADS), FACTS).cells
ONE = CELLS[0]


def run(cell: Cell, block: int = 0, **simulation: float) -> RunRecord:
    return SimulatedExecutor("s", Simulation(**simulation)).execute(PlannedRun(block, 0, cell))


def iops(record: RunRecord) -> float:
    return next(metric.value for metric in record.metrics if metric.name == "iops")


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.workload.name}-{cell.id}")
def test_records_are_whole(cell: Cell) -> None:
    record = run(cell)
    names = [metric.name for metric in record.metrics]
    assert len(set(names)) == len(names)
    for name in ("iops", "bandwidth", "latency_mean", "latency_p50", "latency_p99"):
        assert name in names
    assert ("flush_p99" in names) == (cell.workload.option("fsync") != "0")
    assert ("read_iops" in names) == (cell.workload.option("rw") == "randrw")
    primary = [metric.name for metric in record.metrics if metric.primary]
    assert primary == [cell.workload.option("primary")]
    assert all(math.isfinite(metric.value) and metric.value > 0 for metric in record.metrics)
    assert record.histograms and record.series and record.artefacts
    assert record.ended > record.started


def test_percentiles_are_those_of_the_histogram() -> None:
    record = run(ONE)
    values = {metric.name: metric.value for metric in record.metrics}
    (histogram,) = record.histograms
    assert values["latency_p99"] == histogram.percentile(99)
    assert values["latency_p50"] < values["latency_p99"] < values["latency_p99.9"]
    depth = int(ONE.workload.option("iodepth"))
    # Little's law: operations in flight = rate x latency.
    assert values["latency_mean"] * values["iops"] == pytest.approx(depth, rel=0.05)


@given(st.integers(0, 2**31), st.integers(0, 50), st.sampled_from(CELLS))
def test_a_run_is_the_same_whatever_ran_before(seed: int, block: int, cell: Cell) -> None:
    alone = SimulatedExecutor("s", Simulation(seed))
    later = SimulatedExecutor("s", Simulation(seed))
    later.execute(PlannedRun(0, 0, CELLS[-1]))
    planned = PlannedRun(block, 0, cell)
    assert alone.execute(planned).metrics == later.execute(planned).metrics


@pytest.mark.parametrize("cv", [0.0, 0.03, 0.1])
def test_noise_scatters_around_the_truth_as_asked_for(cv: float) -> None:
    values = [iops(run(ONE, block, cv=cv)) for block in range(600)]
    assert statistics.median(values) == pytest.approx(true_iops(ONE), rel=0.02)
    spread = statistics.stdev(values) / statistics.mean(values)
    assert spread == pytest.approx(cv, rel=0.15, abs=1e-9)


def test_drift_is_of_time_not_of_cells() -> None:
    executor = SimulatedExecutor("s", Simulation(cv=0, drift=0.1))
    records = [executor.execute(planned) for planned in make_schedule([ONE], 200, 1)]
    hours = (records[-1].started - records[0].started) / 1000
    grown = iops(records[-1]) / iops(records[0])
    assert grown == pytest.approx(math.exp(0.1 * hours))


def test_failures_come_as_often_as_asked_for_and_say_why() -> None:
    records = [run(ONE, block, failure_rate=0.2) for block in range(1000)]
    failed = [record for record in records if record.status == "failed"]
    assert len(failed) == pytest.approx(200, abs=50)
    assert all(record.failure and not record.metrics for record in failed)
    assert len({record.id for record in records}) == 1000


def test_effects_are_those_of_the_levels() -> None:
    study = load_study(Path(__file__).parents[1] / "studies" / "cache-modes.toml")
    cells = [
        c for c in make_plan(study, FACTS).cells
        if c.workload.name == "rand-read-4k-d1" and c.level("frontend") == "daemon"
    ]  # fmt: skip
    best = max(cells, key=true_iops)
    assert (best.level("format"), best.level("cache"), best.level("aio")) == (
        "raw", "unsafe", "io_uring",
    )  # fmt: skip
