"""Charts as Vega-Lite specifications; the same one is drawn to SVG here and alive in the page.

Text takes the page's own colour (``currentColor``) and marks its CSS variables, so that one
picture reads in a light and in a dark scheme. Widths are those of a phone; the page's script
stretches a live chart to its box.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from diskproof.errors import RunFailure, UsageError
from diskproof.process.extras import require_extra
from diskproof.process.kept import make_once
from diskproof.process.start import run
from diskproof.report import draw_svg
from diskproof.report.labels import cut

Spec = dict[str, Any]

WIDTH = 340
NAME_CHARS = 32
MAX_CHARS = 1_000
LINE_HEIGHT = 14
COLOURS = tuple(f"var(--c{number})" for number in range(1, 5))
DRAW_SECONDS = 60.0
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\x7f-\x9f]")
_DASHES = ([1, 0], [5, 3])

_CONFIG: Spec = {
    "aria": False,  # thousands of marks; the figure has its caption and the table all numbers
    "background": None,
    "font": "sans-serif",
    "view": {"stroke": None},
    "text": {"color": "currentColor", "fontSize": 12},
    "rule": {"color": "currentColor"},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "gridColor": "var(--grid)",
        "domainColor": "var(--grid)",
        "tickColor": "var(--grid)",
    },
    "legend": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "labelFontSize": 11,
        "labelLimit": 270,
        "title": None,
        "orient": "bottom",
        "columns": 1,
        "symbolStrokeWidth": 3,
    },
}


def chart(
    data: Sequence[Mapping[str, object]], height: int, padding: Spec | None = None, **rest: Any
) -> Spec:
    """A chart of ``data`` rows; ``rest`` is the mark, encoding or layers."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": list(data)},
        "width": WIDTH,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "padding": padding or {"left": 10, "right": 10, "top": 4, "bottom": 4},
        "config": _CONFIG,
        **rest,
    }


# -- encodings ------------------------------------------------------------------------------


def amount(name: str, axis: Spec | None = None, scale: Spec | None = None, **rest: Any) -> Spec:
    """The encoding of a number."""
    told = {"axis": axis, "scale": scale}
    given = {key: value for key, value in told.items() if value is not None}
    return {"field": name, "type": "quantitative", **given, **rest}


def choice(name: str, values: Mapping[str, object], **rest: Any) -> Spec:
    """The encoding of a name by the colour, dash or shape that stands for it."""
    scale = {"domain": list(values), "range": list(values.values())}
    return {"field": name, "type": "nominal", "scale": scale, **rest}


def own_colour(name: str = "colour") -> Spec:
    """The encoding of a colour that stands in the row itself."""
    return {"field": name, "type": "nominal", "scale": None}


def line_at_one(axis: Spec, scale: Spec, **mark: object) -> Spec:
    """Where a ratio is 1."""
    x = {"datum": 1, "type": "quantitative", "scale": scale, "axis": axis}
    return {
        "mark": {"type": "rule", "color": "var(--grid)", **mark},
        "encoding": {"x": x, "y": None},
    }


def tooltip(*names: str) -> list[Spec]:
    return [{"field": name} for name in names]


def line_colours(name: str, labels: Sequence[str], **rest: Any) -> Spec:
    """A colour for each line, in their order; beyond those that can be told apart they come
    again, dashed by ``line_dashes``."""
    colours = {label: COLOURS[place % len(COLOURS)] for place, label in enumerate(labels)}
    return choice(name, colours, sort=list(labels), **rest)


def line_dashes(name: str, labels: Sequence[str]) -> Spec:
    """A second round of colours is dashed; empty where there is none."""
    dashes = {label: _DASHES[n // len(COLOURS) % len(_DASHES)] for n, label in enumerate(labels)}
    return {"strokeDash": choice(name, dashes)} if len(labels) > len(COLOURS) else {}


def drop_down(name: str, options: Sequence[str], value: str | None = None, text: str = "") -> Spec:
    """A parameter of the live chart; one option alone leaves nothing to choose."""
    first = options[0] if options else ""
    param: Spec = {"name": name, "value": first if value is None else value}
    if len(options) > 1:
        param["bind"] = {"input": "select", "options": list(options), "name": f"{text or name} "}
    return param


def shorten(text: str, most: int = 48) -> str:
    """Text that cannot wrap; what is too long ends in an ellipsis that the table resolves."""
    return text if len(text) <= most else text[: most - 1] + "\u2026"


def digits(value: float) -> float:
    """Five of them: no picture shows more, and the page is smaller."""
    return float(f"{value:.5g}") if math.isfinite(value) else value


def interval_layer(rows: Sequence[Mapping[str, object]], layer: Spec) -> list[Spec]:
    """A layer of intervals from ``low`` to ``high``, where any row has one: single runs have none,
    and Vega warns of a layer without data."""
    known = any(row.get("low") is not None and row.get("high") is not None for row in rows)
    return [layer] if known else []


# -- rows with their names above them, so that they need no margin of their own --------------


def wrap(text: str) -> list[str]:
    """Lines of at most NAME_CHARS, broken at spaces, and hard where a word is longer."""
    import textwrap

    return textwrap.wrap(cut(text, MAX_CHARS), NAME_CHARS, break_on_hyphens=False) or [text]


def name_fields(name: str) -> dict[str, str]:
    """The lines of a name as fields of a row, the lowest first: what ``name_layers`` draws."""
    return {f"line{number}": part for number, part in enumerate(wrap(name)[::-1])}


def name_layers(names: Iterable[str], below: float) -> list[Spec]:
    """Layers for rows of these names; ``below`` is how far under the row's middle the mark lies
    that they stand on."""
    return [
        text_layer(f"line{number}", {"value": 0}, "left", below - LINE_HEIGHT * number)
        for number in range(max((len(wrap(name)) for name in names), default=1))
    ]


def text_layer(field: str, x: Spec, align: str, below: float) -> Spec:
    return {
        "mark": {"type": "text", "align": align, "baseline": "bottom", "yOffset": below - 7},
        "transform": [{"filter": f"isValid(datum.{field})"}],
        "encoding": {"x": x, "text": {"field": field}},
    }


def mark_offset(lines: int) -> float:
    """How far under the middle of its row a mark lies that has so many lines above it."""
    return 2 + LINE_HEIGHT * (1 + lines) / 2 - 7


def rows_chart(
    rows: Sequence[Mapping[str, object]],
    names: Iterable[str],
    layers: Callable[[float], Sequence[Spec]],
    height: int = 22,
) -> Spec:
    """A row for each of the names, by its ``place``. ``layers`` are asked for what stands so far
    under the middle of a row; ``height`` is a row's without its name."""
    lines = [len(wrap(name)) for name in names]
    tallest = max(lines, default=1)
    return chart(
        rows,
        (height + LINE_HEIGHT * tallest) * max(1, len(lines)),
        padding={"left": 4, "right": 6, "top": 0, "bottom": 4},
        encoding={
            "y": {"field": "place", "type": "ordinal", "axis": None, "scale": {"padding": 0}}
        },
        layer=[*layers(mark_offset(tallest))],
    )


# -- pictures -------------------------------------------------------------------------------


def draw_all(specs: Sequence[Spec]) -> list[str]:
    """The charts as SVG elements, drawn by a process that may fail alone (``draw_svg.py``).

    Raises UsageError when they ask for more than it may take.
    """
    if not specs:
        return []
    told = json.dumps([cleaned(spec) for spec in specs]).encode()
    try:
        return [str(picture) for picture in json.loads(_draw(told))]
    except (RunFailure, ValueError) as error:
        last = str(error).strip().splitlines()[-1][:200]
        why = f"the process that draws them failed: {last}"
        raise UsageError("the charts cannot be drawn", why, "ask for one --study") from None


@cache
def bundle_scripts() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script (BSD-licensed, shipped with vl-convert). To
    bundle them takes seconds: those of a version are kept."""
    require_extra("report")
    name = f"vega-{version('vl-convert-python')}.js"
    return make_once(name, lambda: _draw(b"", "scripts").replace(b"\r\n", b"\n")).decode()


def _draw(told: bytes, *words: str) -> bytes:
    require_extra("report")
    argv = [sys.executable, "-I", str(Path(draw_svg.__file__)), *words]
    return run(argv, timeout=DRAW_SECONDS, stdin=told).stdout


def cleaned(content: Any) -> Any:
    """The same with what SVG cannot hold replaced: one such character ends the library. No
    picture has room for more of a text than its beginning."""
    if isinstance(content, str):
        return _NOT_XML.sub("\ufffd", cut(content, MAX_CHARS))
    if isinstance(content, Mapping):
        return {cleaned(key): cleaned(value) for key, value in content.items()}
    return [cleaned(each) for each in content] if isinstance(content, (list, tuple)) else content
