"""What a fio job measured, by the names of docs/architecture.md."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from diskproof.fio_output.parse import Direction, FioJob, Latency
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


def combine_clones(jobs: Sequence[FioJob]) -> tuple[FioJob, ...]:
    """Jobs of equal name of one document as one: ``numjobs`` clones ran at the same time.

    Rates add up, times of operations are merged; percentiles need the bins of json+ and are left
    out without them.
    """
    by_name: dict[str, list[FioJob]] = {}
    for job in jobs:
        by_name.setdefault(job.name, []).append(job)
    return tuple(_combine(clones) if len(clones) > 1 else clones[0] for clones in by_name.values())


def _combine(clones: Sequence[FioJob]) -> FioJob:
    depths: dict[int, float] = {}
    for job in clones:
        for depth, share in job.depth_levels:
            depths[depth] = depths.get(depth, 0.0) + share / len(clones)
    return FioJob(
        name=clones[0].name,
        error=next((job.error for job in clones if job.error), 0),
        options=clones[0].options,
        read=combine_sides([job.read for job in clones]),
        write=combine_sides([job.write for job in clones]),
        trim=combine_sides([job.trim for job in clones]),
        flush=_combine_latencies([job.flush for job in clones]),
        depth_levels=tuple(sorted(depths.items())),
        user_cpu=math.fsum(job.user_cpu for job in clones),
        system_cpu=math.fsum(job.system_cpu for job in clones),
        runtime=max(job.runtime for job in clones),
        clones=len(clones),
    )


def combine_sides(sides: Sequence[Direction]) -> Direction:
    """Directions or clones that ran at the same time, as one: rates add up."""
    if len(sides) == 1:
        return sides[0]
    return Direction(
        operations=sum(side.operations for side in sides),
        bytes=sum(side.bytes for side in sides),
        iops=math.fsum(side.iops for side in sides),
        bandwidth=math.fsum(side.bandwidth for side in sides),
        runtime=max(side.runtime for side in sides),
        slat=_combine_latencies([side.slat for side in sides]),
        clat=_combine_latencies([side.clat for side in sides]),
        lat=_combine_latencies([side.lat for side in sides]),
    )


def _combine_latencies(parts: Sequence[Latency]) -> Latency:
    used = [part for part in parts if part.count]
    if not used:
        return Latency()
    count = sum(part.count for part in used)
    bins: Counter[float] = Counter()
    for part in used:
        bins.update(dict(part.bins))
    merged = tuple(sorted(bins.items())) if all(part.bins for part in used) else ()
    whole = Histogram("", tuple(value for value, _ in merged), tuple(n for _, n in merged))
    percents = (percent for percent, _ in used[0].percentiles if 0 < percent <= 100)
    percentiles = ((percent, whole.percentile(percent)) for percent in percents)
    return Latency(
        count=count,
        mean=math.fsum(part.mean * part.count for part in used) / count,
        smallest=min(part.smallest for part in used),
        largest=max(part.largest for part in used),
        percentiles=tuple((each, seconds) for each, seconds in percentiles if seconds is not None),
        bins=merged,
    )
