"""The clones of one job (fio's ``numjobs``), taken together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from diskproof.fio_output.records import Direction, FioJob, Latency
from diskproof.records import Histogram


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
