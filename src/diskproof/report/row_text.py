"""Names that stand above their row of a chart, so that they need no margin of their own."""

from __future__ import annotations

from diskproof.report.charts import Spec

LABEL_CHARS = 32
LINE_HEIGHT = 14


def wrap(text: str) -> list[str]:
    """Lines of at most LABEL_CHARS, broken at spaces, and hard where a word is longer."""
    import textwrap

    return textwrap.wrap(text, LABEL_CHARS, break_on_hyphens=False) or [text]


def name_fields(name: str) -> dict[str, str]:
    """The lines of a name as fields of a row, the lowest first: what ``name_layers`` draws."""
    return {f"line{number}": part for number, part in enumerate(wrap(name)[::-1])}


def name_layers(lines: int, below: float) -> list[Spec]:
    """Layers for names of up to ``lines`` lines; ``below`` is how far under the row's middle the
    mark lies that they stand on."""
    return [
        text_layer(f"line{number}", {"value": 0}, "left", below - LINE_HEIGHT * number)
        for number in range(lines)
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
