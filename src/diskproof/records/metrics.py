"""The metrics that our workloads give: one row a metric. What a user's command or a foreign file
calls its own figure has none, and is told by its own name."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

_SIDES = ("read_", "write_", "trim_")


@dataclass(frozen=True)
class MetricRow:
    """One metric, or with ``*`` in its name a family of them."""

    name: str
    unit: str
    higher_is_better: bool
    label: str = ""
    """What stands for it at the head of a column; ``narrow`` where there is little room."""
    narrow: str = ""
    title: str = ""
    """What stands at an axis, its unit with it."""
    said: str = ""
    """What a ranking by it is told in; else its name and unit."""
    figure: str = ""
    """What stands behind a figure of it; else its unit."""
    on_each_side: bool = False
    """Whether a job that reads and writes has it of each, too: ``read_iops``, ``write_iops``."""
    beside_speeds: bool = False
    judged: bool = False
    """Whether a workload of a tile may be held to a service level of it."""


METRICS = (
    MetricRow("seconds", "s", False, "s", title="time (s)", said="seconds", judged=True),
    MetricRow("iops", "1/s", True, said="IOPS", figure="IOPS", on_each_side=True),
    MetricRow("bandwidth", "MiB/s", True, on_each_side=True),
    MetricRow("latency_mean", "s", False, on_each_side=True),
    MetricRow("latency_p50", "s", False, "p50", on_each_side=True, beside_speeds=True),
    MetricRow(
        "latency_p99",
        "s",
        False,
        "p99",
        title="p99 latency (s)",
        on_each_side=True,
        beside_speeds=True,
        judged=True,
    ),
    MetricRow("latency_p99.9", "s", False, "p99.9", on_each_side=True, beside_speeds=True),
    MetricRow("flush_p99", "s", False, "flush p99", narrow="flush", beside_speeds=True),
    MetricRow("flush_*", "s", False),
    MetricRow("cold_iops", "1/s", True),
    MetricRow("warm_iops", "1/s", True),
    MetricRow("warm_up_seconds", "s", False),
    # a cache that is flooded
    MetricRow("flooded_iops", "1/s", True, said="IOPS after a scan", figure="IOPS"),
    MetricRow("cold_cached", "%", True),
    MetricRow("warm_cached", "%", True),
    MetricRow("flooded_cached", "%", True),
    MetricRow("kept", "%", True),
    MetricRow("scan_bandwidth", "MiB/s", True),
    MetricRow("in_page_cache", "MiB", True),
    MetricRow("in_arc", "MiB", True),
    MetricRow("cached_twice", "MiB", False),
    MetricRow("drain_seconds", "s", False),
    # dd, copies of trees, a disk that is full
    MetricRow("file_rate", "1/s", True),
    MetricRow("sync_seconds", "s", False),
    MetricRow("resume_seconds", "s", False),
    MetricRow("rest_seconds", "s", False),
    MetricRow("pause_seconds", "s", True),
    MetricRow("written_before", "MiB", True),
    MetricRow("verified", "MiB", True),
    # boots: in all, and of each step
    MetricRow("read_*seconds", "s", False),
    MetricRow("write_*seconds", "s", False),
    # thin disks, caches, iozone
    MetricRow("first_write", "MiB/s", True),
    MetricRow("rewrite", "MiB/s", True),
    MetricRow("rewrite_ratio", "x", False),
    MetricRow("first_write * %", "MiB/s", True),
    MetricRow("rewrite * %", "MiB/s", True),
    MetricRow("first_read", "MiB/s", True),
    MetricRow("second_read", "MiB/s", True),
    MetricRow("cached_by_reading", "%", True),
    MetricRow("left_after_*", "%", True),
    MetricRow("mean_bandwidth", "MiB/s", True),
    MetricRow("* */*", "MiB/s", True),
    # workloads of tiles
    MetricRow("throughput", "1/s", True),
    MetricRow("requests", "1", True),
    MetricRow("transactions", "1", True),
    MetricRow("mails", "1", True),
    MetricRow("batches_seconds", "s", False),
    MetricRow("burst_seconds", "s", False),
    MetricRow("copy_there", "s", False),
    MetricRow("copy_back", "s", False),
)
HIGHER = {True: "higher is better", False: "lower is better"}
BESIDE_SPEEDS = tuple(row for row in METRICS if row.beside_speeds)
JUDGED = tuple(row.name for row in METRICS if row.judged)

_BY_NAME = {row.name: row for row in METRICS}


def find_metric(name: str) -> MetricRow | None:
    """The row of a metric by the name it is stored by."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    for side in _SIDES:
        row = _BY_NAME.get(name.removeprefix(side))
        if row is not None and row.on_each_side and name.startswith(side):
            return row
    families = (row for row in METRICS if "*" in row.name)
    return next((row for row in families if fnmatchcase(name, row.name)), None)


def metric_label(name: str) -> str:
    row = find_metric(name)
    return (row.label if row else "") or name


def metric_said(name: str, unit: str) -> str:
    """``IOPS``, ``seconds``, ``bandwidth in MiB/s``. Only its own name has words of its own: the
    reads of a job are not the job."""
    row = _BY_NAME.get(name)
    return (row.said if row else "") or f"{name} in {unit}"


def figure_unit(name: str, unit: str) -> str:
    """A unit as people say it behind a figure."""
    row = _BY_NAME.get(name)
    return (row.figure if row else "") or unit
