"""A store with thin disks, a warm-up and lives of caches, for tests of their parts of the page."""

from collections.abc import Sequence
from pathlib import Path

from diskproof.records import Cell, Metric, RunRecord, Series, StudyRecord, WorkloadSpec
from support.simulate import plain_run, start_store

PARTS = (25, 50, 75, 100)
THIN = WorkloadSpec("thin", "first_write", (("size", "1"),))
ZIPF = WorkloadSpec("reread", "fio", (("distribution", "zipf:1.2"), ("ramp", "0"), ("size", "1")))
LIFE = WorkloadSpec("life", "cache_life", (("size", "1"),))


def thin_metrics(number: int) -> tuple[Metric, ...]:
    """The second pass is twice as fast in every part; the second run a little faster."""
    metrics = [
        Metric("first_write", "MiB/s", 100.0 + number, True, primary=True),
        Metric("rewrite", "MiB/s", 2 * (100.0 + number), True),
    ]
    for place, end in enumerate(PARTS):
        speed = 100.0 + 10 * place + number
        metrics.append(Metric(f"first_write {end} %", "MiB/s", speed, True))
        metrics.append(Metric(f"rewrite {end} %", "MiB/s", 2 * speed, True))
    return tuple(metrics)


def zipf_metrics(number: int) -> tuple[Metric, ...]:
    """The second run was not steady at its end."""
    metrics = [
        Metric("iops", "1/s", 900.0 + number, True, primary=True),
        Metric("cold_iops", "1/s", 50.0, True),
        Metric("warm_iops", "1/s", 1000.0 + number, True),
    ]
    if number == 0:
        metrics.append(Metric("warm_up_seconds", "s", 1.5, False))
    return tuple(metrics)


def life_metrics(number: int) -> tuple[Metric, ...]:
    """Half of the disk was cached; a reset leaves all of it, the end half of that."""
    return (
        Metric("cached_by_reading", "%", 50.0, True),
        Metric("left_after_reset", "%", 100.0, True),
        Metric("left_after_restart", "%", 50.0, True, primary=True),
        Metric("first_read", "MiB/s", 10.0 + number, True),
        Metric("second_read", "MiB/s", 90.0, True),
    )


METRICS = {"thin": thin_metrics, "reread": zipf_metrics, "life": life_metrics}
COURSE = Series(
    "fio",
    "iops",
    "1/s",
    tuple(second / 10 for second in range(1, 41)),
    tuple(min(1000.0, 100.0 + 60 * second) for second in range(40)),
)


def fill_protocols(path: Path, levels: Sequence[str], runs: int = 2) -> Path:
    """Up to two runs of each cell; a cell for each level of ``backing`` and each workload."""
    cells = tuple(
        Cell((("backing", text), ("cache", "none")), load)
        for load in (THIN, ZIPF, LIFE)
        for text in levels
    )
    with start_store(path) as opened:
        opened.add_study(StudyRecord("=study", "protocols", "run", "", 1, 2, cells, created=1e9))
        for cell in cells:
            for number in range(runs):
                opened.add_run(_run(cell, number))
    return path


def _run(cell: Cell, number: int) -> RunRecord:
    name = cell.workload.name
    series = (COURSE,) if name == "reread" else ()
    return plain_run(cell, number, METRICS[name](number), series)
