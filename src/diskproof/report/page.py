"""The page: one HTML file without network, readable with scripts off, alive with them on."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from diskproof import __version__
from diskproof.records import Series
from diskproof.report import charts, factor_words, race_words, score_tables, stability_tables, words
from diskproof.report.crash_page import crash_parts, durability_figures
from diskproof.report.durability import (
    crash_cells_json,
    durability_json,
    short_text,
    states_text,
    verdict_text,
)
from diskproof.report.grid_page import grid_figures
from diskproof.report.labels import (
    cell_label,
    group_name,
    render_figure,
    render_half_width,
    render_short_latency,
    unit_name,
    varying_factors,
)
from diskproof.report.protocol_page import protocol_parts
from diskproof.report.stability_words import steady_words
from diskproof.report.tile_json import tiles_json
from diskproof.report.tile_page import tile_parts
from diskproof.report.view import LATENCIES, StudyView, WorkloadDetail, WorkloadView

if TYPE_CHECKING:
    from jinja2 import Environment

    from diskproof.report.analysis import WorkloadAnalysis

LOAD_SERIES = 2
HOST_SERIES = ("process.cpu", "cpu", "disk.util", "memory.dirty")
"""How the names of the host's metrics worth a picture begin."""
MAX_PICTURES = 20
"""Static pictures on a page; further charts are drawn with scripts on only. It bounds the page's
size and the time to make it, whatever the number of workloads."""


@dataclass
class Figure:
    """A chart on the page. ``importance`` 0 gets its static picture first; ``svg`` may be empty."""

    id: str
    caption: str
    spec: charts.Spec
    importance: int
    svg: str = ""


@dataclass
class Drawing:
    """The figures of a page."""

    figures: list[Figure] = field(default_factory=list)

    def figure(self, spec: charts.Spec, caption: str, importance: int) -> Figure:
        figure = Figure(f"chart-{len(self.figures)}", caption, spec, importance)
        self.figures.append(figure)
        return figure

    def draw(self) -> None:
        """Make the static pictures, the most important first."""
        for figure in sorted(self.figures, key=lambda each: each.importance)[:MAX_PICTURES]:
            figure.svg = charts.draw(figure.spec)


def render_page(views: Sequence[StudyView]) -> str:
    """The page of these studies as text. No limit on cells: charts hold the best, tables all."""
    drawing = Drawing()
    studies = [
        {
            "view": view,
            "together": _score_parts(view, drawing),
            "loads": [_load_parts(view, load, drawing) for load in view.workloads],
            "crash": crash_parts(view, drawing.figure),
            "tiles": tile_parts(view.tiles, drawing.figure) if view.tiles else None,
        }
        for view in views
    ]
    drawing.draw()
    bundle, script = vega_bundle(), read_resource("page.js")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            studies=studies,
            policy=content_policy((bundle, script)),
            style=read_resource("page.css"),
            vega=packed_bundle(),
            specs=pack(json.dumps({figure.id: figure.spec for figure in drawing.figures})),
            raw=script_json([row for view in views for row in raw_rows(view)]),
            script=script,
            written=time.strftime("%Y-%m-%d %H:%M", time.localtime()),
            version=__version__,
        )
    )


def pack(text: str) -> str:
    """gzip in base64: a third of the size of scripts, a tenth of specifications."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def content_policy(scripts: Sequence[str]) -> str:
    """The Content-Security-Policy: our two scripts by their hash, and no network at all."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )


def script_json(content: object) -> str:
    """JSON that is safe inside a script element: no ``<`` that could end or open a tag."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def raw_rows(view: StudyView) -> Iterator[dict[str, object]]:
    """Every value behind a figure with the run it comes from, plain JSON."""
    for load in view.workloads:
        for line in load.lines:
            yield {
                "study": view.study.name,
                "host": view.host.name,
                "workload": load.name,
                "cell": line.ranked.cell.levels_dict(),
                "metric": load.metric,
                "unit": load.unit,
                "runs": dict(zip(line.run_ids, line.values, strict=True)),
                "durability": durability_json(line.durability),
            }
    for row in crash_cells_json(view.verdicts):
        yield {"study": view.study.name, "host": view.host.name, **row}
    if view.tiles:
        yield from tiles_json([view.tiles])


def _score_parts(view: StudyView, drawing: Drawing) -> dict[str, object] | None:
    """All workloads together; None where there are no two of them."""
    found = view.scores
    if found is None:
        return None
    labels = score_tables.score_labels(view.study)
    places = [(labels.get(line.levels, "?"), line) for line in found.scores.lines]
    chart = charts.ratio_chart(places, "score over the best one's")
    figures = [_ratio_figure(chart, drawing)] if chart else []
    if len(found.front) > 1:
        text = score_tables.front_caption(found.front, labels)
        figures.append(drawing.figure(charts.pareto_chart(found.front, labels), text, 1))
    return {
        "found": found,
        "labels": labels,
        "front": {point.levels: point for point in found.front},
        "figures": figures,
    }


def _load_parts(view: StudyView, load: WorkloadView, drawing: Drawing) -> dict[str, object]:
    detail = view.details.get(load.name)
    analysis = view.analyses.get(load.name)
    return {
        "load": load,
        "analysis": analysis,
        "factors": [*_factor_figures(analysis, drawing)],
        "drift": [*_drift_figure(analysis, drawing)],
        "race": view.races.get(load.name),
        "timeline": [*_race_figure(view, load, drawing)],
        "summary": [
            _bars_figure(load, drawing),
            *durability_figures(load, drawing.figure),
            *_load_ratio_figure(load, drawing),
            *_heat_figure(load, drawing),
        ],
        "judged": any(line.durability for line in load.lines),
        "grids": view.grids.get(load.name, ()),
        "grid_figures": grid_figures(view.grids.get(load.name, ()), drawing.figure),
        "protocols": protocol_parts(view.protocols.get(load.name), drawing.figure),
        "closer": [*_detail_figures(detail, drawing)],
        "latencies": [
            name for name in LATENCIES if any(name in line.latencies for line in load.lines)
        ],
    }


def _bars_figure(load: WorkloadView, drawing: Drawing) -> Figure:
    text = "Means with 95 % intervals; circles are single runs; coloured: no cell is proved better."
    hidden = len(load.lines) - charts.MAX_BARS
    if hidden > 0:
        text = f"{text} The best {charts.MAX_BARS}; all are in the table."
    return drawing.figure(charts.bars_chart(load), text, 0)


def _load_ratio_figure(load: WorkloadView, drawing: Drawing) -> Iterator[Figure]:
    title = f"{load.metric} over the best cell's ({words.HIGHER[load.higher_is_better]})"
    chart = charts.ratio_chart([(line.label, line.ranked) for line in load.lines], title)
    if chart is not None:
        yield _ratio_figure(chart, drawing)


def _ratio_figure(chart: charts.RatioChart, drawing: Drawing) -> Figure:
    text = (
        "Ratio to the best with simultaneous 95 % intervals; cells that share a letter are not "
        "told apart."
    )
    if chart.cut:
        text = f"{text} Intervals that reach the edge go on beyond it."
    if chart.hidden:
        text = f"{text} {chart.hidden} more cells are in the table."
    return drawing.figure(chart.spec, text, 1)


def _heat_figure(load: WorkloadView, drawing: Drawing) -> Iterator[Figure]:
    factors = charts.heat_factors(load)
    if factors is not None:
        across, down = factors
        caption = (
            "Speed in percent of the best cell, geometric mean over all other factors: "
            f"{down} down, {across} across."
        )
        yield drawing.figure(charts.heat_chart(load, across, down), caption, 1)


def _factor_figures(analysis: WorkloadAnalysis | None, drawing: Drawing) -> Iterator[Figure]:
    if analysis is None or analysis.factors is None:
        return
    text = "Each level's speed over its base level's, with 95 % intervals; coloured: proved."
    yield drawing.figure(charts.effects_chart(analysis, analysis.factors), text, 1)
    pair = charts.interaction_factors(analysis.factors)
    if pair is not None:
        caption = (
            f"{pair[0]} and {pair[1]}, the other settings averaged (geometric mean): lines that "
            "are not parallel mean that the one acts differently with the other."
        )
        yield drawing.figure(
            charts.interaction_chart(analysis, analysis.factors, *pair), caption, 2
        )


def _drift_figure(analysis: WorkloadAnalysis | None, drawing: Drawing) -> Iterator[Figure]:
    if analysis is not None and analysis.drift is not None:
        caption = f"All cells of each block together: {stability_tables.drift_line(analysis)}."
        yield drawing.figure(charts.drift_chart(analysis.drift), caption, 3)


def _race_figure(view: StudyView, load: WorkloadView, drawing: Drawing) -> Iterator[Figure]:
    race = view.races.get(load.name)
    if race is not None and race.course.verdicts:
        caption = race_words.timeline_sentence(race, min(charts.MAX_LANES, len(race.cells)))
        yield drawing.figure(charts.race_chart(race, view.study), caption, 1)


def _detail_figures(detail: WorkloadDetail | None, drawing: Drawing) -> Iterator[Figure]:
    if detail is None:
        return
    for name, curves in detail.curves.items():
        caption = (
            f"{name}: latency by percentile, all runs of a cell together; "
            "the best cell, the worst and some between."
        )
        yield drawing.figure(charts.tail_chart(curves), caption, 2)
    for name in chosen_series(detail.traces):
        traces = detail.traces[name]
        unit = traces[0][1].unit
        caption = f"{_series_title(traces[0][1])} during the median run of each cell."
        yield drawing.figure(charts.series_chart(name, unit, traces), caption, 3)


def chosen_series(traces: Mapping[str, Sequence[tuple[str, Series]]]) -> list[str]:
    """The few time series worth a picture: what the load saw first, then the host's side."""
    by_load = [name for name, lines in traces.items() if lines[0][1].source != "host"]
    by_host = [name for name in traces if name not in by_load]
    chosen = [next((n for n in by_host if n.startswith(begin)), "") for begin in HOST_SERIES]
    return by_load[:LOAD_SERIES] + [name for name in chosen if name]


def _series_title(series: Series) -> str:
    seen_by = {"fio": "seen by the load generator", "host": "seen by the host"}
    return f"{series.name}, {seen_by.get(series.source, series.source)}"


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script (BSD-licensed, shipped with vl-convert)."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")).replace("\r\n", "\n")


@cache
def packed_bundle() -> str:
    return pack(vega_bundle())


@cache
def read_resource(name: str) -> str:
    """A file of ``templates/`` as text."""
    return files("diskproof.report").joinpath("templates", name).read_text("utf-8")


def make_environment() -> Environment:
    """Jinja as every page needs it: all that is foreign is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("diskproof.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Only what we made ourselves skips the escaping: scripts, style, JSON and pictures.
    environment.filters["ours"] = Markup
    environment.filters["printable"] = printable
    return environment


@cache
def _environment() -> Environment:
    environment = make_environment()
    environment.filters["figure"] = render_figure
    environment.filters["latency"] = render_short_latency
    environment.filters["half_width"] = render_half_width
    environment.filters["letters"] = group_name
    environment.filters["durability"] = short_text
    environment.filters["verdict"] = verdict_text
    environment.filters["states"] = states_text
    environment.globals["words"] = words
    environment.globals["race_words"] = race_words
    environment.globals["told"] = factor_words
    environment.globals["scored"] = score_tables
    environment.globals["stability"] = stability_tables
    environment.globals["steady_words"] = steady_words
    environment.globals["cell_label"] = cell_label
    environment.globals["unit_name"] = unit_name
    environment.globals["varying_factors"] = varying_factors
    return environment


def printable(text: str) -> str:
    """Text of others without control characters (a console has plenty); HTML-escaped later."""
    return "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in text)
