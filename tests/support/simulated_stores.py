"""Stores filled by the simulated executor, for tests of what works from a store alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from diskproof.plan.schedule import make_schedule
from diskproof.records import Cell, HostRecord, StudyRecord, WorkloadSpec
from diskproof.store import open_store
from support.report_views import make_cells
from support.simulate import EFFECTS, SIMULATED_HOST, SimulatedExecutor, Simulation

FACTORS = {"cache": ("none", "writeback"), "format": ("raw", "qcow2"), "frontend": ("daemon",)}
DAY = 86400.0


def simulated_cells(
    factors: Mapping[str, Sequence[str]] = FACTORS, loads: Sequence[str] = ("rand-read",)
) -> tuple[Cell, ...]:
    options = (("bs", "4096"), ("primary", "iops"), ("runtime", "30"), ("rw", "randread"))
    return tuple(
        replace(cell, workload=WorkloadSpec(cell.workload.name, "fio", options))
        for cell in make_cells(factors, loads)
    )


def fill(
    path: Path,
    cells: Sequence[Cell],
    *,
    blocks: int = 10,
    cv: float = 0.03,
    seed: int = 1,
    speed: Mapping[tuple[str, str], float] | None = None,
    drift: float = 0.0,
    name: str = "simulated",
    host: HostRecord = SIMULATED_HOST,
    started: float = 1e9,
) -> Path:
    """Add a study to the store; ``speed`` multiplies the speed of levels."""
    effects = {
        key: EFFECTS.get(key, 1.0) * (speed or {}).get(key, 1.0)
        for key in {*EFFECTS, *(speed or {})}
    }
    study_id = f"{name}-{seed}"
    executor = SimulatedExecutor(
        study_id, Simulation(seed=seed, cv=cv, drift=drift, effects=effects), started
    )
    with open_store(str(path), create=True) as store:
        store.add_study(
            StudyRecord(study_id, name, "run", "", seed, blocks, tuple(cells), created=started)
        )
        store.add_host(host)
        for planned in make_schedule(tuple(cells), blocks, seed):
            store.add_run(replace(executor.execute(planned), host_id=host.id))
    return path
