"""Failed runs: told where they go with slowness, and not where they fail at random."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from diskproof.cli import run_command_line
from diskproof.plan.schedule import make_schedule
from diskproof.records import Failure, StudyRecord
from diskproof.stats.intervals import Sample
from diskproof.stats.slow_losses import SlowLosses, find_slow_losses
from diskproof.store import open_store
from support.simulate import SIMULATED_HOST, SimulatedExecutor, Simulation
from support.simulated_stores import simulated_cells


def study(
    rng: np.random.Generator, cells: int, blocks: int, *, slow_fail: float, fail: float
) -> SlowLosses | None:
    """Blocks wander by 10 %; a run fails with ``fail``, in the slowest third of the session with
    ``slow_fail``."""
    effects = 0.1 * rng.standard_normal(blocks)
    slow = effects <= np.quantile(effects, 1 / 3)
    values, numbers, starts, failed = ([[] for _ in range(cells)] for _ in range(4))
    at = 0.0
    for block in range(blocks):
        for cell in rng.permutation(cells):
            at += 10.0
            if rng.random() < (slow_fail if slow[block] else fail):
                failed[cell].append(at)
                continue
            values[cell].append(float(np.exp(effects[block] + 0.03 * rng.standard_normal())))
            numbers[cell].append(block)
            starts[cell].append(at)
    samples = [Sample(tuple(v), tuple(b)) for v, b in zip(values, numbers, strict=True)]
    return find_slow_losses(samples, starts, failed, higher_is_better=True)


def proved(slow_fail: float, fail: float, studies: int) -> int:
    rng = np.random.default_rng(3)
    found = [study(rng, 12, 6, slow_fail=slow_fail, fail=fail) for _ in range(studies)]
    return sum(each is not None and each.p_value <= 0.05 for each in found)


def test_runs_that_fail_where_it_is_slow_are_told() -> None:
    assert proved(0.4, 0.02, 40) >= 34


def test_runs_that_fail_at_random_are_not() -> None:
    """Three in a thousand sessions would have more."""
    assert proved(1 / 6, 1 / 6, 150) <= 15


def test_without_failed_runs_or_without_others_nothing_is_said() -> None:
    samples = [Sample((1.0, 2.0), (0, 1)), Sample((1.0, 2.0), (0, 1))]
    starts = [[0.0, 2.0], [1.0, 3.0]]
    assert find_slow_losses(samples, starts, [[], []], higher_is_better=True) is None
    assert find_slow_losses([], [], [], higher_is_better=True) is None
    alone = find_slow_losses(samples[:1], starts[:1], [[4.0]], higher_is_better=True)
    assert alone is None


def test_metrics_of_which_less_is_better_are_turned() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(1, 0.01, (6, 4)) * np.array([1.0, 1.0, 2.0, 1.0])
    samples, starts, failed = [], [], []
    for cell in range(6):
        kept = [b for b in range(4) if b != 2 or cell % 2]
        samples.append(Sample(tuple(values[cell, kept]), tuple(kept)))
        starts.append([10.0 * b + cell for b in kept])
        failed.append([20.0 + cell] if len(kept) < 4 else [])
    slower = find_slow_losses(samples, starts, failed, higher_is_better=False)
    faster = find_slow_losses(samples, starts, failed, higher_is_better=True)
    assert slower is not None and faster is not None
    assert slower.failed == 3 and slower.ratio > 1.3
    assert slower.p_value < 0.05 < faster.p_value


def test_rank_tells_programs_what_it_tells_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A host that slows down, and loses every second run in its last blocks."""
    path, cells, blocks = str(tmp_path / "store.sqlite"), simulated_cells(), 9
    executor = SimulatedExecutor("slow", Simulation(cv=0.02, drift=-0.4), 1e9)
    with open_store(path, create=True) as store:
        store.add_study(StudyRecord("slow", "slow", "run", "", 1, blocks, cells, created=1e9))
        store.add_host(SIMULATED_HOST)
        for number, planned in enumerate(make_schedule(cells, blocks, 1)):
            record = replace(executor.execute(planned), host_id=SIMULATED_HOST.id)
            if planned.block >= 6 and number % 2:
                gone = Failure("workload", "it failed", "the host was slow")
                record = replace(record, status="failed", failure=gone, metrics=(), histograms=())
            store.add_run(record)
    assert run_command_line(["rank", "--store", path, "--json"]) == 0
    (ranking,) = json.loads(capsys.readouterr().out)[0]["rankings"]
    found = ranking["slow_losses"]
    assert found["failed"] == 6 and found["ratio"] < 0.95 and found["p_value"] <= 0.05
    assert "runs are missing where blocks were slow" in found["text"]
    assert run_command_line(["rank", "--store", path]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert found["text"] in shown
