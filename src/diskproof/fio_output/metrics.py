"""What a fio job measured, by the names of docs/architecture.md."""

from __future__ import annotations

from collections.abc import Iterator

from diskproof.fio_output.clones import combine_sides
from diskproof.fio_output.records import Direction, FioJob, Latency
from diskproof.records import Histogram, Metric
from diskproof.units import MIB

_PERCENTILES = ((50.0, "p50"), (99.0, "p99"), (99.9, "p99.9"))


def job_metrics(job: FioJob, primary: str) -> tuple[Metric, ...]:
    """Rates and latencies of a job; ``primary`` names the one it is ranked by.

    Reads and writes (and trims) are taken together; a job that does several has ``read_`` and
    ``write_`` variants as well. Raises ValueError for a job that did nothing, or without the
    primary metric.
    """
    sides = _used_sides(job)
    if not sides:
        raise ValueError(f"job {job.name[:60]!r} did no I/O")
    metrics = [*_side_metrics("", combine_sides([side for _, side in sides]), primary)]
    if len(sides) > 1:
        for name, side in sides:
            metrics += _side_metrics(f"{name}_", side, primary)
    if job.flush.count:
        metrics += _latency_metrics("flush_", job.flush, primary)
    if not any(metric.primary for metric in metrics):
        raise ValueError(f"job {job.name[:60]!r} has no metric {primary!r}")
    return tuple(metrics)


def job_histograms(job: FioJob) -> tuple[Histogram, ...]:
    """The latency distributions of json+: ``read``, ``write``, ``trim``, ``flush``."""
    latencies = [(name, side.latency) for name, side in _used_sides(job)] + [("flush", job.flush)]
    return tuple(
        Histogram(name, *(tuple(column) for column in zip(*latency.bins, strict=True)))
        for name, latency in latencies
        if latency.bins
    )


def _used_sides(job: FioJob) -> list[tuple[str, Direction]]:
    sides = (("read", job.read), ("write", job.write), ("trim", job.trim))
    return [(name, side) for name, side in sides if side.operations]


def _side_metrics(prefix: str, side: Direction, primary: str) -> Iterator[Metric]:
    for name, unit, value in (
        (f"{prefix}iops", "1/s", side.iops),
        (f"{prefix}bandwidth", "MiB/s", side.bandwidth / MIB),
    ):
        yield Metric(name, unit, value, higher_is_better=True, primary=name == primary)
    yield from _latency_metrics(f"{prefix}latency_", side.latency, primary)


def _latency_metrics(prefix: str, latency: Latency, primary: str) -> Iterator[Metric]:
    values = [("mean", latency.mean if latency.count else None)]
    values += [(name, latency.find_percentile(percent)) for percent, name in _PERCENTILES]
    for name, value in values:
        if value is not None:
            full = f"{prefix}{name}"
            yield Metric(full, "s", value, higher_is_better=False, primary=full == primary)
