"""The page: one HTML file without network, readable with scripts off, alive with them on."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from diskproof import __version__
from diskproof.errors import UsageError
from diskproof.report.chapter import Chapter, Drawing
from diskproof.report.chapters import CHAPTERS
from diskproof.report.head import find_head
from diskproof.report.labels import cut, cut_all, group_name, render_figure, render_half_width
from diskproof.report.vega import bundle_scripts
from diskproof.report.view import StudyView
from diskproof.units import render_bytes

if TYPE_CHECKING:
    from jinja2 import Environment


MAX_TEXT = 4_000
"""Characters of one foreign text on the page, where its template names no other number."""
MAX_RAW_TEXT = 1_000
MOST_WARNINGS = 50
_PAGE_BYTES, _STUDY_BYTES, _CELL_BYTES = 4 << 20, 512 << 10, 64 << 10
_CHART_BYTES, _ROW_BYTES = 64 << 10, 8 << 10
"""What may be on a page: for itself, for a study, a cell, a chart, and a row of figures."""


@dataclass(frozen=True)
class Fragment:
    """A piece of the page. It becomes HTML late: which figures have a static picture is known when
    all charts are."""

    template: str
    context: Mapping[str, object]

    def __html__(self) -> str:
        return environment().get_template(self.template).render(self.context)


def render_page(views: Sequence[StudyView], chapters: Sequence[Chapter[Any]] = CHAPTERS) -> str:
    """The page of these studies as text. No limit on cells: charts hold the best, tables all."""
    drawing = Drawing()
    title = ", ".join(dict.fromkeys(view.study.name for view in views))
    contents = [
        {
            "place": f"study-{n}",
            "name": view.study.name,
            "id": view.study.id,
            "host": view.host.name,
        }
        for n, view in enumerate(views, 1)
    ]
    studies = [
        Fragment(
            "templates/study.html.j2",
            {"place": each["place"], **_study(view, chapters, drawing)},
        )
        for each, view in zip(contents, views, strict=True)
    ]
    rows = [row for view in views for row in _raw_rows(view, chapters)]
    raw = script_json(rows)
    context = {"title": title, "contents": contents, "studies": studies, "raw": raw}
    page = render_document("templates/page.html.j2", drawing, context)
    _require_justified(page, most_bytes(views, len(rows), len(drawing.figures)))
    return page


def most_bytes(views: Sequence[StudyView], rows: int, charts: int) -> int:
    """As large as a page of such studies may be, with so many rows of figures and charts."""
    cells = sum(len(view.study.cells) for view in views)
    of_studies = len(views) * _STUDY_BYTES + cells * _CELL_BYTES
    return _PAGE_BYTES + of_studies + rows * _ROW_BYTES + charts * _CHART_BYTES


def _require_justified(page: str, most: int) -> None:
    if len(page) > most:
        raise UsageError(
            "the page would be larger than its studies justify",
            f"{render_bytes(len(page))}; of so many cells and runs {render_bytes(most)} are enough",
            "the store holds strange texts: ask for one --study",
        )


def render_document(template: str, drawing: Drawing, context: Mapping[str, object]) -> str:
    """A whole file with its style, its scripts and the charts that were drawn."""
    drawing.draw()
    bundle, script = bundle_scripts(), read_resource("page.js")
    return (
        environment()
        .get_template(template)
        .render(
            context,
            policy=content_policy((bundle, script)),
            style=read_resource("page.css"),
            vega=packed_bundle(),
            specs=pack(json.dumps({figure.id: figure.spec for figure in drawing.figures})),
            script=script,
            written=time.strftime("%Y-%m-%d %H:%M", time.localtime()),
            version=__version__,
        )
    )


def _study(
    view: StudyView, chapters: Sequence[Chapter[Any]], drawing: Drawing
) -> Mapping[str, object]:
    """A study's head, and its chapters in their order: those that stand open, and those that are
    folded under their question. Those on each workload that follow each other are one fold."""
    head = find_head(view, chapters)

    def fragments(group: Sequence[Chapter[Any]], load: str) -> list[Fragment]:
        return [
            Fragment(
                f"{chapter.name}/page.html.j2",
                {"head": head, **chapter.page(part, view, drawing.figure)},
            )
            for chapter in group
            if (part := chapter.parts(view).get(load)) is not None
        ]

    sections: list[Fragment] = []
    folds: list[tuple[str, Fragment]] = []
    for on_each, alike in groupby(chapters, key=lambda chapter: chapter.on_each_workload):
        group = list(alike)
        for load in view.workloads if on_each else ():
            context = {"load": load, "sections": fragments(group, load.name)}
            fold = Fragment("templates/workload.html.j2", context)
            folds.append((f"How fast is each cell under {load.name}?", fold))
        for chapter in () if on_each else group:
            found = fragments([chapter], "")
            sections += [] if chapter.question else found
            folds += [(chapter.question, each) for each in found if chapter.question]
    return {"head": head, "sections": sections, "folds": folds, "most_warnings": MOST_WARNINGS}


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


def _raw_rows(view: StudyView, chapters: Sequence[Chapter[Any]]) -> Iterator[Mapping[str, object]]:
    """Every value behind a figure with the run it comes from, plain JSON."""
    for chapter in chapters:
        if chapter.raw is not None:
            for part in chapter.parts(view).values():
                for row in chapter.raw(part):
                    whole = {"study": view.study.name, "host": view.host.name, **row}
                    yield {name: cut_all(value, MAX_RAW_TEXT) for name, value in whole.items()}


@cache
def packed_bundle() -> str:
    return pack(bundle_scripts())


@cache
def read_resource(name: str) -> str:
    """A file of ``templates/`` as text."""
    return files("diskproof.report").joinpath("templates", name).read_text("utf-8")


@cache
def environment() -> Environment:
    """Jinja as every page needs it: all that is foreign is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=PackageLoader("diskproof.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # Only what we made ourselves skips the escaping: scripts, style, JSON and pictures.
    made.filters["ours"] = Markup
    made.filters["printable"] = printable
    made.filters["figure"] = render_figure
    made.filters["half_width"] = render_half_width
    made.filters["letters"] = group_name
    figures: Any = made.get_template("templates/figure.html.j2").module
    made.globals |= {"chart": figures.chart, "cards": figures.cards}
    return made


def printable(text: str, most: int = MAX_TEXT) -> str:
    """Text of others without control characters (a console has plenty), and no more of it than a
    page needs; HTML-escaped later."""
    shown = cut(text, most)
    return "".join(char if char.isprintable() or char == "\n" else "\ufffd" for char in shown)
