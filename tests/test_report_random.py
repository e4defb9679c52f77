"""No study, however short, patchy or wild, breaks the tables or the page."""

import io
import random
from pathlib import Path

import pytest
from rich.console import Console

from diskproof.records import (
    Cell,
    Failure,
    HostRecord,
    Metric,
    RunRecord,
    StudyRecord,
    WorkloadSpec,
)
from diskproof.report.page import render_page
from diskproof.report.read import read_views
from diskproof.report.study_tables import render_study
from diskproof.store import Store, open_store

STUDIES = 12


def make_study(store: Store, rng: random.Random, name: str) -> None:
    """Blocks seconds or hours apart, values over fifteen decades, missing and failed runs."""
    cells = tuple(
        Cell(
            (("backing", "b"), ("cache", cache), ("format", form), ("frontend", "daemon")),
            WorkloadSpec(load, "fio"),
        )
        for cache in rng.sample(["none", "writeback", "unsafe", "directsync"], rng.randint(1, 4))
        for form in rng.sample(["raw", "qcow2"], rng.randint(1, 2))
        for load in rng.sample(["seq-read", "sync-write-4k", "app"], rng.randint(1, 3))
    )
    study = StudyRecord(name, name, "run", "", 1, rng.choice([1, 2, 3, 5]), cells)
    store.add_study(study)
    pace, now = rng.choice([1e-3, 1.0, 3600.0]), 1e9
    for block in range(study.blocks):
        for position, cell in enumerate(cells):
            now += pace * rng.random()
            if rng.random() > 0.15:
                store.add_run(make_run(study, cell, (block, position), now, rng))


def make_run(
    study: StudyRecord, cell: Cell, place: tuple[int, int], now: float, rng: random.Random
) -> RunRecord:
    failure = Failure("tool", "it failed") if rng.random() < 0.1 else None
    value = rng.choice([rng.uniform(1e-6, 1e9), 100.0, rng.lognormvariate(5, 3)])
    return RunRecord(
        f"{study.id}-{place[0]}-{place[1]}",
        study.id,
        cell,
        *place,
        now,
        now + 0.5,
        "failed" if failure else "ok",
        "host",
        failure,
        metrics=() if failure else (Metric("iops", "1/s", value, True, True),),
    )


@pytest.mark.parametrize("seed", range(4))
def test_every_study_can_be_shown(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with open_store(str(tmp_path / "store.sqlite"), create=True) as store:
        store.add_host(HostRecord("host", "host", {}))
        for number in range(STUDIES):
            make_study(store, rng, f"study-{number}")
        views = read_views(store, details=True)
        assert len(views) == STUDIES
        for view in views:
            shown = io.StringIO()
            Console(file=shown, width=80).print(render_study(view))
            assert max(map(len, shown.getvalue().splitlines())) <= 80
        assert "study-0" in render_page(views[:2])
