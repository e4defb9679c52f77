"""fio's log of operations a second over time. Pure: text in, series out."""

from __future__ import annotations

from diskproof.records import Series

MAX_POINTS = 100_000
_DIRECTIONS = {"0": "read", "1": "write", "2": "trim"}


def parse_iops_log(text: bytes) -> tuple[Series, ...]:
    """``write_iops_log`` (with an averaging window) as series, seconds from the measured start.

    A line is ``milliseconds, operations a second, direction, ...``; others are skipped: a run
    whose log is short has still been measured. One direction gives ``iops``, several give
    ``read_iops``, ``write_iops``, ``trim_iops``.
    """
    points: dict[str, list[tuple[float, float]]] = {}
    for line in text.decode("ascii", "replace").splitlines()[:MAX_POINTS]:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) < 3 or fields[2] not in _DIRECTIONS:
            continue
        if not (_is_count(fields[0]) and _is_count(fields[1])):
            continue
        name = _DIRECTIONS[fields[2]]
        points.setdefault(name, []).append((int(fields[0]) / 1000, float(fields[1])))
    return tuple(
        Series(
            "fio",
            f"{name}_iops" if len(points) > 1 else "iops",
            "1/s",
            tuple(at for at, _ in column),
            tuple(value for _, value in column),
        )
        for name, column in points.items()
    )


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16
