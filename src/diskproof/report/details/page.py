"""A workload looked at closely: latencies by percentile, time series, single runs."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from diskproof.records import Histogram, Series
from diskproof.report.chapter import Chapter, Draw, Figure, Source
from diskproof.report.details.chart import series_chart, tail_chart
from diskproof.report.view import Line, StudyView, WorkloadView, chosen_lines
from diskproof.stats.histograms import LEAST_BEYOND

LOAD_SERIES = 2
HOST_SERIES = ("process.cpu", "cpu", "disk.util", "memory.dirty")
"""How the names of the host's metrics worth a picture begin."""


@dataclass(frozen=True)
class WorkloadDetail:
    """Distributions and time series of a few cells of one workload, by cell label.

    ``curves`` are merged over the runs of a cell and named by their histogram; ``traces`` are of
    the run whose value is nearest to the cell's median.
    """

    load: WorkloadView
    curves: Mapping[str, Sequence[tuple[str, Histogram]]]
    traces: Mapping[str, Sequence[tuple[str, Series]]]


def _find(source: Source) -> Mapping[str, WorkloadDetail]:
    return {load.name: _detail(source, load) for load in source.workloads}


def _detail(source: Source, load: WorkloadView) -> WorkloadDetail:
    curves: dict[str, list[tuple[str, Histogram]]] = {}
    traces: dict[str, list[tuple[str, Series]]] = {}
    for line in chosen_lines(load):
        cell = line.ranked.cell
        for histogram in source.store.histograms(source.study.id, cell.id, source.host.id):
            curves.setdefault(histogram.name, []).append((line.label, histogram))
        for series in source.store.series_of(_median_run(line)):
            if len(series.times) > 1:
                traces.setdefault(series.name, []).append((line.label, series))
    return WorkloadDetail(load, curves, traces)


def _median_run(line: Line) -> str:
    """The id of the run whose value is nearest to the cell's median."""
    median = statistics.median(line.values)
    return min(zip(line.values, line.run_ids, strict=True), key=lambda run: abs(run[0] - median))[1]


def _page(detail: WorkloadDetail, view: StudyView, draw: Draw) -> Mapping[str, object]:
    return {"load": detail.load, "figures": [*_figures(detail, draw)]}


def _figures(detail: WorkloadDetail, draw: Draw) -> Iterator[Figure]:
    for name, curves in detail.curves.items():
        caption = (
            f"{name}: latency by percentile, all runs of a cell together; "
            "the best cell, the worst and some between; a line ends where fewer than "
            f"{LEAST_BEYOND} operations lie beyond."
        )
        yield draw(tail_chart(curves), caption, 2)
    for name in chosen_series(detail.traces):
        traces = detail.traces[name]
        unit = traces[0][1].unit
        caption = f"{_series_title(traces[0][1])} during the median run of each cell."
        yield draw(series_chart(name, unit, traces), caption, 3)


def chosen_series(traces: Mapping[str, Sequence[tuple[str, Series]]]) -> list[str]:
    """The few time series worth a picture: what the load saw first, then the host's side."""
    by_load = [name for name, lines in traces.items() if lines[0][1].source != "host"]
    by_host = [name for name in traces if name not in by_load]
    chosen = [next((n for n in by_host if n.startswith(begin)), "") for begin in HOST_SERIES]
    return by_load[:LOAD_SERIES] + [name for name in chosen if name]


def _series_title(series: Series) -> str:
    seen_by = {"fio": "seen by the load generator", "host": "seen by the host"}
    return f"{series.name}, {seen_by.get(series.source, series.source)}"


CHAPTER = Chapter("details", _find, _page, on_each_workload=True)
