"""Every metric that a workload gives has its row, with the same unit and direction."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from diskproof.plan.schedule import make_schedule
from diskproof.records import Metric, WorkloadSpec
from diskproof.records.metrics import BESIDE_SPEEDS, JUDGED, METRICS, find_metric, metric_said
from diskproof.store.formats.fio import import_fio
from diskproof.workloads.boots import WORKLOAD as BOOTS
from diskproof.workloads.first_write import curve_metrics
from diskproof.workloads.iozone import plan_steps
from support.simulate import SimulatedExecutor, Simulation
from support.simulated_stores import simulated_cells
from test_boots import RIGHT, Recorded
from test_boots import make as make_boots
from test_import_fio import document, job, side
from test_workload_programs import make as make_program

SOURCE = Path(__file__).parent.parent / "src" / "diskproof"


def written_metrics() -> Iterator[tuple[str, str, str, bool]]:
    """(file, name, unit, direction) of every metric that is written out in the source."""
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Metric":
                words = {each.arg: each.value for each in node.keywords}
                places = dict(
                    zip(("name", "unit", "value", "higher_is_better"), node.args, strict=False)
                )
                told = {**places, **words}
                values = [told.get(key) for key in ("name", "unit", "higher_is_better")]
                if all(isinstance(each, ast.Constant) for each in values):
                    name, unit, higher = (each.value for each in values)  # type: ignore[union-attr]
                    yield str(file.relative_to(SOURCE)), str(name), str(unit), bool(higher)


def made_metrics() -> Iterator[Metric]:
    """Those whose names are put together, from the real parts."""
    yield from BOOTS.run(make_boots("reads = 1\nwrites = 2\n"), Recorded(RIGHT)).metrics
    yield from curve_metrics([1.0, 2.0, 3.0, 4.0], 2)
    tests = plan_steps(make_program("iozone"), 1 << 30)
    yield from (Metric(step.label, "MiB/s", 1.0, True) for step in tests)
    for run in import_fio([("run.json", document({**job(), "write": side(10, 1.0)}))], "s").runs:
        yield from run.metrics
    mixed = WorkloadSpec("mixed", "fio", (("bs", "4096"), ("fsync", "1"), ("rw", "randrw")))
    cells = [replace(cell, workload=mixed) for cell in simulated_cells()]
    for planned in make_schedule(tuple(cells), 1, 1):
        yield from SimulatedExecutor("study", Simulation(seed=1)).execute(planned).metrics


def check_row(name: str, unit: str, higher_is_better: bool) -> None:
    row = find_metric(name)
    assert row is not None, f"{name} has no row in metrics.py"
    assert (row.unit, row.higher_is_better) == (unit, higher_is_better), name


def test_what_the_source_writes_out_has_its_row() -> None:
    found = list(written_metrics())
    assert {"seconds", "file_rate", "copy_there", "pause_seconds", "warm_up_seconds"} <= {
        name for _, name, _, _ in found
    }
    for _, name, unit, higher in found:
        check_row(name, unit, higher)


def test_what_is_put_together_has_its_row() -> None:
    found = {(each.name, each.unit, each.higher_is_better) for each in made_metrics()}
    names = {name for name, _, _ in found}
    assert {"read_walk_seconds", "rewrite 50 %", "read_iops", "write_latency_mean"} <= names
    assert "flush_p99" in names and any("/" in name for name in names)
    for name, unit, higher in found:
        check_row(name, unit, higher)


def test_names_stand_once_and_families_do_not_hide_them() -> None:
    assert len({row.name for row in METRICS}) == len(METRICS)
    for row in METRICS:
        assert find_metric(row.name) is row
    assert find_metric("read_cold_iops") is None and find_metric("anything") is None


def test_words_of_metrics() -> None:
    assert [row.label for row in BESIDE_SPEEDS] == ["p50", "p99", "p99.9", "flush p99"]
    assert set(JUDGED) == {"seconds", "latency_p99"}
    assert metric_said("iops", "1/s") == "IOPS"
    assert metric_said("hits", "1/s") == "hits in 1/s"
    assert metric_said("read_iops", "1/s") == "read_iops in 1/s"
