"""First write against rewrite as curves over the share of the disk that was touched."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from diskproof.stats.intervals import Interval, RatioInterval, Sample, mean_interval, ratio_interval
from diskproof.store.rows import ResultRow

KIND = "first_write"
PASSES = ("first_write", "rewrite")
_METRIC = re.compile(r"(first_write|rewrite) (\d{1,3}) %")


@dataclass(frozen=True)
class Curve:
    """One pass of one cell: ``points`` are (percent of the disk at which a part ends, speed in
    ``unit``), in that order."""

    name: str
    unit: str
    points: tuple[tuple[int, Interval], ...]


def is_curve_metric(row: ResultRow) -> bool:
    """Whether a result is one point of such a curve."""
    return _find_place(row) is not None


def read_curves(rows: Iterable[ResultRow]) -> tuple[Curve, ...]:
    """The curves of one cell on one host, the first pass first; none of another workload."""
    found: dict[str, list[tuple[int, ResultRow]]] = {}
    for row in rows:
        if (place := _find_place(row)) and row.values:
            found.setdefault(place[0], []).append((place[1], row))
    return tuple(
        Curve(
            name,
            found[name][0][1].unit,
            tuple((end, mean_interval(row.values)) for end, row in sorted(found[name], key=_end)),
        )
        for name in PASSES
        if name in found
    )


def find_ratio(rows: Iterable[ResultRow]) -> RatioInterval | None:
    """How many times as fast as the first pass the second one of a cell is, paired by runs."""
    found = {row.metric: row for row in rows if row.cell.workload.kind == KIND and row.values}
    if not found.keys() >= set(PASSES):
        return None
    first, second = (Sample(found[name].values, found[name].blocks) for name in PASSES)
    return ratio_interval(second, first)


def _end(part: tuple[int, ResultRow]) -> int:
    return part[0]


def _find_place(row: ResultRow) -> tuple[str, int] | None:
    match = _METRIC.fullmatch(row.metric) if row.cell.workload.kind == KIND else None
    return (match[1], int(match[2])) if match and int(match[2]) <= 100 else None
