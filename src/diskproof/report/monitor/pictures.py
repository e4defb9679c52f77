"""Which columns of a recording belong into one picture, in which order, and what it says."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from diskproof.report.monitor.chart import MAX_WATCHED_LINES, MetricLine
from diskproof.report.monitor.samples import MonitorColumn, MonitorRecording


@dataclass(frozen=True)
class Family:
    """Columns that are one picture for each device; ``{of}`` in the title is the device."""

    section: str
    title: str
    names: str
    stacked: bool = False


_DISK = r"disk\.(?:(?P<of>.+)\.)?"
FAMILIES = (
    Family(
        "Processors",
        "Where the processors' time goes{of}",
        r"cpu\.(?:(?P<of>[^.]+)\.)?(?:user|system|iowait|steal)",
        stacked=True,
    ),
    Family("Processors", "Load averages", r"load\.\w+"),
    Family("Disks", "Throughput{of}", _DISK + r"(?:read|write|discard)"),
    Family("Disks", "Latency by kind of request{of}", _DISK + r"\w+_await"),
    Family("Disks", "Requests, flushes among them{of}", _DISK + r"(?:\w+_iops|flush)"),
    Family("Disks", "Utilisation{of}", _DISK + r"util"),
    Family("Disks", "Requests under way{of}", _DISK + r"(?:aqu_sz|in_flight)"),
    Family("Memory", "Used with and without page cache", r"memory\.used(?:_with_cache)?"),
    Family("Memory", "Page cache and what is left", r"memory\.(?:cached|free|available)"),
    Family("Memory", "ZFS's cache (ARC)", r"arc\.(?:size|target|mru|mfu)"),
    Family("Memory", "ZFS's cache: reads found in it", r"arc\.hit"),
    Family("Memory", "ZFS's cache: accesses, misses among them", r"arc\.(?:accesses|misses)"),
    Family("Memory", "Waiting to be written", r"memory\.(?:dirty|writeback)"),
    Family("Memory", "Swap", r"swap\.\w+"),
    Family("Memory", "Same-page merging (KSM)", r"ksm\.(?:shared|saved|unshared|volatile)"),
    Family("Pressure", "Share of time in which tasks waited (PSI)", r"psi\.\w+"),
    Family("Network", "Throughput{of}", r"net\.(?:(?P<of>.+)\.)?(?:receive|send)"),
)
_ROW_PICTURES = (
    ("Virtual machines", "vCPU time, percent of one core", ("vcpu",)),
    ("Virtual machines", "vCPUs that waited for a core", ("wait",)),
    ("Virtual machines", "Memory", ("rss",)),
    ("Virtual machines", "Read from storage", ("read",)),
    ("Virtual machines", "Written to storage", ("write",)),
)
_FLUSHES = ("guest_flush", "host_fdatasync")


@dataclass(frozen=True)
class MonitorChart:
    """One chart: its section, caption and lines."""

    section: str
    title: str
    unit: str
    lines: tuple[MetricLine, ...]
    stacked: bool = False


def choose_pictures(recording: MonitorRecording) -> tuple[MonitorChart, ...]:
    """All columns, each in one picture; those that say nothing at all are left out."""
    taken: set[str] = set()
    pictures = [each for family in FAMILIES for each in _family(recording, family, taken)]
    pictures += _machines(recording)
    # What the machines sum up to stands in their table.
    taken |= {each.name for each in recording.columns if each.name.startswith("vm.total.")}
    pictures += _others(recording, taken)
    return tuple(pictures)


def _family(recording: MonitorRecording, family: Family, taken: set[str]) -> Iterator[MonitorChart]:
    devices: dict[str, list[int]] = {}
    for place, column in enumerate(recording.columns):
        if column.name not in taken and (found := re.fullmatch(family.names, column.name)):
            devices.setdefault(found.groupdict().get("of") or "", []).append(place)
    for device, places in devices.items():
        taken |= {recording.columns[place].name for place in places}
        title = family.title.replace("{of}", f", {device}" if device else "")
        yield from _picture(recording, family.section, title, places, family.stacked)


def _others(recording: MonitorRecording, taken: set[str]) -> Iterator[MonitorChart]:
    """What no family knows, own modules among it: by the first part of the name, and unit."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, column in enumerate(recording.columns):
        if column.name not in taken:
            groups.setdefault((column.name.partition(".")[0], column.unit), []).append(place)
    for (name, _), places in groups.items():
        yield from _picture(recording, "More", name, places)


def _picture(
    recording: MonitorRecording,
    section: str,
    title: str,
    places: Sequence[int],
    stacked: bool = False,
) -> Iterator[MonitorChart]:
    lines = [
        MetricLine(_last_part(recording.columns[place]), recording.times, values)
        for place in places
        if any(map(math.isfinite, values := [row[place] for row in recording.values]))
    ]
    for start in range(0, len(lines), MAX_WATCHED_LINES):
        chosen = tuple(lines[start : start + MAX_WATCHED_LINES])
        yield MonitorChart(section, title, recording.columns[places[0]].unit, chosen, stacked)


def _last_part(column: MonitorColumn) -> str:
    return column.name.rpartition(".")[2].replace("_", " ")


def _machines(recording: MonitorRecording) -> Iterator[MonitorChart]:
    """A line a machine, then the flushes of those that flush beside what the host made of them."""
    places = {_last_name(column): place for place, column in enumerate(recording.row_columns)}
    for section, title, columns in _ROW_PICTURES:
        for column in columns:
            if column in places and (lines := _busiest(recording, places[column])):
                unit = recording.row_columns[places[column]].unit
                yield MonitorChart(section, title, unit, tuple(lines))
    if set(_FLUSHES) <= set(places):
        yield from _flushes(recording, places)


def _flushes(recording: MonitorRecording, places: dict[str, int]) -> Iterator[MonitorChart]:
    found: list[tuple[float, MonitorChart]] = []
    for name, samples in recording.rows.items():
        lines = [line for each in _FLUSHES if (line := _row_line(each, samples, places[each]))]
        if (total := sum(map(_sum, lines))) > 0:
            title = f"{name}: flushes of the guest beside syncs of the host"
            found.append((total, MonitorChart("Virtual machines", title, "1/s", tuple(lines))))
    found.sort(key=lambda pair: pair[0], reverse=True)
    yield from (picture for _, picture in found[:MAX_WATCHED_LINES])


def _last_name(column: MonitorColumn) -> str:
    return column.name.rpartition(".")[2]


def _row_line(
    label: str, samples: Sequence[tuple[float, tuple[float, ...]]], place: int
) -> MetricLine | None:
    values = [row[place] for _, row in samples]
    if not any(map(math.isfinite, values)):
        return None
    return MetricLine(label.replace("_", " "), [at for at, _ in samples], values)


def _busiest(recording: MonitorRecording, place: int) -> list[MetricLine]:
    lines = [_row_line(name, samples, place) for name, samples in recording.rows.items()]
    known = [line for line in lines if line is not None]
    return sorted(known, key=_sum, reverse=True)[:MAX_WATCHED_LINES]


def _sum(line: MetricLine) -> float:
    return sum(value for value in line.values if math.isfinite(value))
