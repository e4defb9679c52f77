"""What a store refuses to hold of a tile run; guests bring most of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from diskproof.records.tiles import GuestUse, Phase, StepRun, TileRun, WorkRun
from diskproof.store.bounds import (
    MAX_NUMBER,
    MAX_PER_RUN,
    require,
    require_artefact,
    require_finite,
    require_metrics,
    require_name,
    require_number,
    require_series,
)
from diskproof.store.limits import require_storable_cell

MAX_TILES = 1000
MAX_STEPS = 100_000
MAX_PARTS = 10_000
"""Workloads, uses and series of one run: some for each of its guests."""

MAX_CHECK = 64 << 10


def require_storable_tile_run(run: TileRun) -> None:
    """Raises UsageError naming what cannot be stored of a run of tiles."""
    require_name("tile run id", run.id)
    require_storable_cell(run.cell)
    require(1 <= run.tiles <= MAX_TILES, "tiles", f"{run.tiles} is not from 1 to {MAX_TILES}")
    require_number("repeat", run.repeat)
    require_finite("times of a tile run", [run.started, run.ended, run.seconds])
    require(run.seconds >= 0, "seconds", f"{run.seconds:g} is below 0")
    require_finite("phases", [seconds for _, seconds in run.phases])
    for kind, parts, most in (
        ("steps", run.steps, MAX_STEPS),
        ("workloads", run.works, MAX_PARTS),
        ("uses", run.uses, MAX_PARTS),
        ("series", run.series, MAX_PARTS),
        ("checks", run.checks, MAX_PARTS),
        ("artefacts", run.artefacts, MAX_PER_RUN),
        ("phases", run.phases, MAX_PER_RUN),
    ):
        _require_at_most(kind, parts, most)
    for step in run.steps:
        _require_step(step, run.tiles)
    for work in run.works:
        _require_work(work, run.tiles)
    for use in run.uses:
        _require_use(use, run.tiles)
    for series in run.series:
        require_series(series)
    for check in run.checks:
        length = sum(map(len, (check.name, check.requested, check.effective, check.source)))
        require(length <= MAX_CHECK, "check", f"longer than {MAX_CHECK} characters")
    for artefact in run.artefacts:
        require_artefact(artefact)


def _require_at_most(kind: str, parts: Sequence[object], most: int) -> None:
    require(len(parts) <= most, kind, f"more than {most} in one run")


def _require_step(step: StepRun, tiles: int) -> None:
    _require_place(step.tile, step.guest, tiles)
    require_name("step", step.step)
    require(step.phase in get_args(Phase), "phase", f"unknown: {step.phase!r:.40}")
    if step.work:
        require_name("workload of a step", step.work)
    require_finite(f"times of step {step.step!r}", [step.started, step.ended])
    require_number(f"status of step {step.step!r}", abs(step.status or 0), MAX_NUMBER)


def _require_work(work: WorkRun, tiles: int) -> None:
    _require_place(work.tile, work.guest, tiles)
    require_name("workload", work.work)
    _require_at_most("metrics", work.metrics, MAX_PER_RUN)
    require_metrics(work.metrics)


def _require_use(use: GuestUse, tiles: int) -> None:
    _require_place(use.tile, use.guest, tiles)
    require_finite("CPU time of a guest", [use.cpu_seconds])
    counts = (use.read_bytes, use.written_bytes, use.memory_bytes, use.ksm_bytes)
    for count in counts:
        require_number("bytes of a guest", count, (1 << 63) - 1)


def _require_place(tile: int, guest: str, tiles: int) -> None:
    require(1 <= tile <= tiles, "tile", f"{tile} is not from 1 to {tiles}")
    require_name("guest", guest)
