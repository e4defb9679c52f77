"""Seeded views for the report's tests: a study with everything, and ones of any size."""

import itertools
import math
import random
from collections.abc import Mapping, Sequence

from diskproof.records import (
    Cell,
    Check,
    Dropped,
    Failure,
    Histogram,
    HostRecord,
    Series,
    StudyRecord,
    WorkloadSpec,
)
from diskproof.report.details.page import WorkloadDetail
from diskproof.report.runs.find import FailedRun, StudyRuns
from diskproof.report.scores.find import score_rows
from diskproof.report.view import StudyView, WorkloadView, chosen_lines, rank_workloads
from diskproof.stats.histograms import mean_figure
from diskproof.store.rows import ResultRow

HOSTILE = (
    '</script><script>alert(1)</script><img src=x onerror="alert(2)"> {{ 7*7 }} [bold]x[/bold]'
)
FACTORS = {
    "format": ("raw", "qcow2"),
    "cache": ("none", "writeback", "writethrough", "unsafe"),
    "aio": ("threads", "native"),
    "frontend": ("daemon", "guest"),
}


def make_cells(factors: Mapping[str, Sequence[str]], workloads: Sequence[str]) -> list[Cell]:
    combinations = itertools.product(*factors.values())
    return [
        Cell(tuple(sorted(zip(factors, levels, strict=True))), WorkloadSpec(name, "fio"))
        for levels in combinations
        for name in workloads
    ]


def _rows(cell: Cell, place: int, runs: int, rng: random.Random) -> list[ResultRow]:
    """One cell's metrics: levels have effects, runs have noise."""
    speed = 20000 * math.exp(-0.12 * (place % 17)) * (8 if cell.level("cache") == "unsafe" else 1)
    values = tuple(speed * math.exp(rng.gauss(0, 0.04)) for _ in range(runs))
    ids = tuple(f"{cell.id}-{run}" for run in range(runs))
    blocks = tuple(range(runs))
    rows = [ResultRow("s1", "h1", cell, "iops", "1/s", True, True, values, blocks, ids)]
    for metric, factor in (("latency_p50", 0.8), ("latency_p99", 4), ("latency_p99.9", 30)):
        slow = tuple(factor / value for value in values)
        rows.append(ResultRow("s1", "h1", cell, metric, "s", False, False, slow, blocks, ids))
    if cell.workload.name.startswith("sync"):
        slow = tuple(9 / value for value in values)
        rows.append(ResultRow("s1", "h1", cell, "flush_p99", "s", False, False, slow, blocks, ids))
    return rows


def make_histogram(typical: float, rng: random.Random) -> Histogram:
    edges = [typical * 1.12**step for step in range(-20, 50)]
    counts = [max(0, int(4000 * math.exp(-abs(step) / 3.5))) for step in range(-20, 50)]
    noise = [count + rng.randrange(2) for count in counts]
    return Histogram("read", tuple(edges), tuple(noise))


def _series(source: str, name: str, unit: str, level: float, rng: random.Random) -> Series:
    times = tuple(0.5 * tick for tick in range(240))
    values = tuple(level * math.exp(rng.gauss(0, 0.1)) for _ in times)
    return Series(source, name, unit, times, values)


def make_detail(load: WorkloadView, rng: random.Random) -> WorkloadDetail:
    lines = chosen_lines(load)
    shown = (
        ("fio", "iops", "1/s", 9e3),
        ("host", "cpu.system", "%", 60.0),
        ("host", "disk.util", "%", 4),
    )
    return WorkloadDetail(
        load,
        curves={
            "read": tuple(
                (line.label, make_histogram(1 / line.ranked.interval.mean, rng)) for line in lines
            )
        },
        traces={
            name: tuple((line.label, _series(source, name, unit, level, rng)) for line in lines)
            for source, name, unit, level in shown
        },
    )


def make_view(
    factors: Mapping[str, Sequence[str]] = FACTORS,
    workloads: Sequence[str] = ("rand-read-4k-d1", "sync-write-4k"),
    *,
    runs: int = 5,
    name: str = "disk-study",
    origin: str = "run",
    details: bool = True,
) -> StudyView:
    """A study on a TCG host with every kind of content a page has."""
    rng = random.Random(5)
    cells = make_cells(factors, workloads)
    rows = [row for place, cell in enumerate(cells) for row in _rows(cell, place, runs, rng)]
    study = StudyRecord(
        "s1",
        name,
        origin,
        f'name = "{name}"\n',
        42,
        runs,
        tuple(cells),
        dropped=(Dropped("aio=native needs direct I/O", 16, (("aio", "native"),)),),
        warnings=("64 MiB is less than the host's cache: reads come from memory",),
        created=1.7e9,
    )
    host = HostRecord("h1", "lab-one", {"accel": "tcg", "kernel": "6.1", "cpu": {"model": "x"}})
    figures = {row: mean_figure(row.values) for row in rows}
    loads = rank_workloads(study, rows, figures=figures)
    checks = {
        cell.id: (
            Check("cache.direct", "on", "on", "query-named-block-nodes", True),
            Check("O_DIRECT", "set", "set", "/proc/PID/fdinfo", True),
        )
        for cell in cells
    }
    failed = FailedRun(
        "run-failed-1",
        cells[0],
        2,
        Failure("guest", f"kernel panic {HOSTILE}", f"console: {HOSTILE}\x1b[31m", "look there"),
        (("console", f"panic \x00\x07 {HOSTILE}"),),
    )
    scores = score_rows([row for row in rows if row.primary], {}, blocked=origin == "run")
    parts = {
        "advice": tuple(load.name for load in loads),
        "ranking": {load.name: load for load in loads},
        "runs": StudyRuns((failed,), checks),
        "details": {load.name: make_detail(load, rng) for load in loads} if details else {},
        **({"scores": scores} if scores else {}),
    }
    return StudyView(study, host, loads, parts)
