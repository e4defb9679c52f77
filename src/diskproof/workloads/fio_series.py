"""fio's log of operations a second over time. Pure: text in, series out."""

from collections.abc import Iterator

from diskproof.records import Series

MAX_LINES = 1_000_000
_DIRECTIONS = {"0": "read", "1": "write", "2": "trim"}

Points = list[tuple[int, float]]


def parse_iops_log(text: bytes, window: int) -> tuple[Series, ...]:
    """A ``write_iops_log`` with an averaging ``window`` (milliseconds) as series.

    A line is ``milliseconds, operations a second, direction, ...``; others are skipped: a run
    whose log is short has still been measured. Times are seconds since the measured start. One
    direction gives ``iops``, several give ``read_iops``, ``write_iops``, ``trim_iops``. Clones of
    a job write their logs one after the other into one file; their speeds are added up.
    """
    clones: dict[str, list[Points]] = {}
    for name, at, value in _parse_lines(text):
        logs = clones.setdefault(name, [[]])
        if logs[-1] and at < logs[-1][-1][0]:
            logs.append([])
        logs[-1].append((at, value))
    return tuple(
        _series(f"{name}_iops" if len(clones) > 1 else "iops", _add_up(logs, window))
        for name, logs in clones.items()
    )


def _parse_lines(text: bytes) -> Iterator[tuple[str, int, float]]:
    for line in text.decode("ascii", "replace").splitlines()[:MAX_LINES]:
        fields = [field.strip() for field in line.split(",")]
        if len(fields) > 2 and fields[2] in _DIRECTIONS and all(map(_is_count, fields[:2])):
            yield _DIRECTIONS[fields[2]], int(fields[0]), float(fields[1])


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _add_up(logs: list[Points], window: int) -> Points:
    """One log as it is; of several the windows that all of them have."""
    if len(logs) == 1:
        return logs[0]
    windows = [{round(at / window): value for at, value in log} for log in logs]
    shared = sorted(set.intersection(*(set(each) for each in windows)))
    return [(number * window, sum(each[number] for each in windows)) for number in shared]


def _series(name: str, points: Points) -> Series:
    times = tuple(at / 1000 for at, _ in points)
    return Series("fio", name, "1/s", times, tuple(value for _, value in points))
