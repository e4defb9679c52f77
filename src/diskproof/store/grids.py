"""iozone's figures as it prints them itself: for each test a grid of record size by file size."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from diskproof.store.rows import ResultRow

KIND = "iozone"
_METRIC = re.compile(r"([a-z_]{1,40}) (\d[\d.e+]{0,11})([BKMGT])/(\d[\d.e+]{0,11})([BKMGT])")
_UNITS = {unit: 1024.0**power for power, unit in enumerate("BKMGT")}


@dataclass(frozen=True)
class Grid:
    """One test of one cell: means over its runs by (record size, file size), both as the metric
    spells them, in the order of their sizes. A record larger than its file has no figure."""

    test: str
    unit: str
    records: tuple[str, ...]
    files: tuple[str, ...]
    means: Mapping[tuple[str, str], float]


def is_grid_metric(row: ResultRow) -> bool:
    """Whether a result is one figure of such a grid."""
    return _find_place(row) is not None


def find_test(row: ResultRow) -> str | None:
    """The test that such a figure is of: ``random_read``; None for other results."""
    place = _find_place(row)
    return place[0] if place else None


def read_grids(rows: Iterable[ResultRow]) -> tuple[Grid, ...]:
    """The grids of one cell on one host, in the order of the tests; none of another workload."""
    found: dict[str, list[tuple[str, str, ResultRow]]] = {}
    for row in rows:
        if place := _find_place(row):
            test, record, file = place
            found.setdefault(test, []).append((record, file, row))
    return tuple(_make_grid(test, figures) for test, figures in found.items())


def _make_grid(test: str, figures: Sequence[tuple[str, str, ResultRow]]) -> Grid:
    return Grid(
        test,
        figures[0][2].unit,
        tuple(sorted({record for record, _, _ in figures}, key=size_of)),
        tuple(sorted({file for _, file, _ in figures}, key=size_of)),
        {
            (record, file): math.fsum(row.values) / len(row.values)
            for record, file, row in figures
            if row.values
        },
    )


def size_of(text: str) -> float:
    """Bytes of a size as a metric's name spells it: ``64K``."""
    return float(text[:-1]) * _UNITS[text[-1]]


def _find_place(row: ResultRow) -> tuple[str, str, str] | None:
    """Test, record size and file size that a result is about: ``random_read 4K/16M``."""
    match = _METRIC.fullmatch(row.metric) if row.cell.workload.kind == KIND else None
    if match is None:
        return None
    test, record, file = match[1], match[2] + match[3], match[4] + match[5]
    try:
        sizes = size_of(record), size_of(file)
    except ValueError:
        return None
    return (test, record, file) if all(map(math.isfinite, sizes)) else None
