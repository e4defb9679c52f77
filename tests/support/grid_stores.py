"""A store with figures of iozone, for tests of its grids."""

from collections.abc import Sequence
from pathlib import Path

from diskproof.records import Cell, Metric, RunRecord, StudyRecord, WorkloadSpec
from support.simulate import plain_run, start_store

PLACES = (("4K", "64K"), ("64K", "64K"), ("4K", "1M"), ("64K", "1M"))


def make_run(cell: Cell, number: int) -> RunRecord:
    figures = [
        Metric(f"{test} {record}/{file}", "MiB/s", 100.0 * place + number, True)
        for test in ("write", "random_read")
        for place, (record, file) in enumerate(PLACES, 1)
    ]
    mean = Metric("mean_bandwidth", "MiB/s", 100.0 + number, True, primary=True)
    return plain_run(cell, number, (mean, *figures))


def fill_grids(path: Path, levels: Sequence[str], study: str) -> Path:
    """Two runs of each cell; a cell for each level of ``backing``."""
    load = WorkloadSpec("iozone", "iozone", (("size", "1"),))
    cells = tuple(Cell((("backing", text), ("cache", "none")), load) for text in levels)
    with start_store(path) as opened:
        opened.add_study(StudyRecord("=study", study, "run", "", 1, 2, cells, created=1e9))
        for cell in cells:
            for number in (0, 1):
                opened.add_run(make_run(cell, number))
    return path
