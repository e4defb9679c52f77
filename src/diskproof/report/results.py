"""Every cell's result as a plain table, metric by metric: what ``show`` prints."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from diskproof.records import StudyRecord
from diskproof.report import layout
from diskproof.report.labels import (
    cell_label,
    is_latency,
    render_half_width,
    render_measure,
    render_percentile,
    render_short_latency,
    too_few_text,
    varying_factors,
)
from diskproof.report.protocols.table import is_part, part_tables
from diskproof.stats.histograms import CellFigure
from diskproof.stats.intervals import Interval, mean_interval
from diskproof.stats.study_race import race_rules
from diskproof.store import ResultRow
from diskproof.store.show import Figures

POOLED = "a percentile is that of all operations of a cell's runs, its interval one by runs"

ARITHMETIC = "mean is arithmetic; rank and compare go by geometric means (geomean)"

RACED = "a race: a cell that it stopped early looks slower than it is, and rank marks it ~"


def render_results(
    studies: Sequence[StudyRecord], rows: Sequence[ResultRow], figures: Figures
) -> layout.Shown:
    """One table a study, in the order of ``rows``; several hosts get a column. Figures that come by
    the hundred (iozone's sizes, parts of a disk) follow as small tables of their own."""
    by_id = {study.id: study for study in studies}
    groups = groupby(rows, key=lambda row: row.study_id)
    return layout.paragraphs(
        [table]
        for study_id, own in groups
        for table in _study_tables(by_id[study_id], list(own), figures)
    )


def _study_tables(
    study: StudyRecord, rows: Sequence[ResultRow], figures: Figures
) -> list[layout.Shown]:
    hosts = {host: f"{n}" for n, host in enumerate(dict.fromkeys(r.host_id for r in rows), 1)}
    factors = varying_factors(study.cells)
    parts = [row for row in rows if is_part(row)]
    if len({row.metric for row in parts}) < 2:  # asked for by its name: a row like any other
        return [_render_study(study, rows, factors, hosts, figures)]
    rest = [row for row in rows if not is_part(row)]
    whole = [_render_study(study, rest, factors, hosts, figures)] if rest else []
    return whole + part_tables(parts, factors, hosts)


def _render_study(
    study: StudyRecord,
    rows: Sequence[ResultRow],
    factors: Sequence[str],
    hosts: Mapping[str, str],
    figures: Figures,
) -> layout.Shown:
    table = layout.start_table(
        f"study {study.name} ({study.id})",
        *("-workload", "*cell", "-metric", ">n", ">mean", ">\u00b195%", "!unit"),
        *(["!host"] if len(hosts) > 1 else []),
    )
    for row in rows:
        table.add_row(
            row.cell.workload.name,
            cell_label(row.cell, factors),
            row.metric,
            str(figures[row].n),
            *_told(row, figures[row]),
            *([hosts[row.host_id]] if len(hosts) > 1 else []),
        )
    means = [mean_interval(row.values) for row in rows if not figures[row].pooled]
    pooled = [POOLED] if any(figures[row].pooled for row in rows) else []
    notes = [ARITHMETIC] if means else []
    notes += [RACED] if race_rules(study) else []
    table.caption = "; ".join(filter(None, [*notes, too_few_text(means), *pooled])) or None
    return table


def _told(row: ResultRow, figure: CellFigure) -> tuple[str, str, str]:
    """A figure, its interval and its unit."""
    if figure.pooled:
        return (*render_percentile(figure), "")
    interval: Interval = mean_interval(row.values)
    mean, unit = render_measure(interval.mean, row.metric, row.unit)
    half = render_half_width(interval)
    if is_latency(row.metric, row.unit) and interval.half_width is not None:
        half = half if interval.says_nothing else render_short_latency(interval.half_width)
    return mean, half, unit
