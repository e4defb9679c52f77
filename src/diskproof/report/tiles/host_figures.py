"""What the host did while tiles loaded it: one figure a run, from the samples between the begin
and the end of the load."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from diskproof.records import Series


@dataclass(frozen=True)
class HostFigure:
    """``name`` is ours (also in JSON), ``series`` are the sampler's columns that add up to it."""

    name: str
    title: str
    unit: str
    series: tuple[str, ...]


FIGURES = (
    HostFigure("cpu_user", "CPU user", "percent", ("cpu.user",)),
    HostFigure("cpu_system", "CPU system", "percent", ("cpu.system",)),
    HostFigure("cpu_wait", "CPU idle, waiting for I/O", "percent", ("cpu.iowait",)),
    HostFigure("true_load", "true load, user and system", "percent", ("cpu.user", "cpu.system")),
    HostFigure("disk_read", "disk read", "MiB/s", ("disk.read",)),
    HostFigure("disk_write", "disk written", "MiB/s", ("disk.write",)),
    HostFigure("disk_util", "disk utilisation", "percent", ("disk.util",)),
    HostFigure("read_await", "read await", "ms", ("disk.read_await",)),
    HostFigure("write_await", "write await", "ms", ("disk.write_await",)),
    HostFigure("flush_await", "flush await", "ms", ("disk.flush_await",)),
    HostFigure("memory", "memory without page cache", "MiB", ("memory.used",)),
    HostFigure("memory_cached", "memory with page cache", "MiB", ("memory.used_with_cache",)),
    HostFigure("ksm_saved", "memory that KSM saves", "MiB", ("ksm.saved",)),
    HostFigure("ksm_shared", "memory that KSM shares", "MiB", ("ksm.shared",)),
    HostFigure("ksmd_cpu", "ksmd, of one CPU", "percent", ("ksm.cpu",)),
)
"""All but the efficiency, which is no mean of samples but a quotient of two means."""

EFFICIENCY = HostFigure("efficiency", "efficiency of the disk", "MiB/s/percent", ())
NAMED: Mapping[str, HostFigure] = {figure.name: figure for figure in (*FIGURES, EFFICIENCY)}
LEAST_UTIL = 0.5
"""Percent of utilisation below which an efficiency would be noise."""


def host_figures(series: Iterable[Series], seconds: float) -> dict[str, float]:
    """Means over a load of so many seconds, by the names of FIGURES; what nobody sampled is not
    in it. Samples before and after the load do not count.

    ``efficiency`` is throughput (read and written) over utilisation, as in "KVM cache settings":
    it falls when the same busy time moves less.
    """
    means = {
        each.name: mean
        for each in series
        if each.source == "host" and (mean := _mean(each, seconds)) is not None
    }
    found = {
        figure.name: sum(means[name] for name in figure.series)
        for figure in FIGURES
        if all(name in means for name in figure.series)
    }
    if {"disk_read", "disk_write", "disk_util"} <= set(found) and found["disk_util"] > LEAST_UTIL:
        moved = found["disk_read"] + found["disk_write"]
        found[EFFICIENCY.name] = moved / found["disk_util"]
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _mean(series: Series, seconds: float) -> float | None:
    """The mean reading during the load; each is about the interval that ends with it."""
    values: Sequence[float] = [
        value
        for time, value in zip(series.times, series.values, strict=False)
        if 0 < time <= seconds and math.isfinite(value)
    ]
    try:
        return fmean(values) if values else None
    except OverflowError:  # no host has such figures
        return None
