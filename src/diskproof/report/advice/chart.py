"""Speed against the worst loss: what keeps, what nobody has judged, what loses, what corrupts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from diskproof.records.metrics import HIGHER
from diskproof.report import vega
from diskproof.report.advice.keeping import Keeping, KeepingWord
from diskproof.report.durability import render_age, share_text
from diskproof.report.labels import count, render_figure
from diskproof.report.view import Line, WorkloadView

MAX_OF_A_LANE = 8
"""Cells that a lane holds; the rest is in the table."""


@dataclass(frozen=True)
class Lane:
    """Cells of which the same is known. From top to bottom it gets worse."""

    words: tuple[KeepingWord, ...]
    head: str
    colour: str
    shape: str


LANES = (
    Lane(("keeps",), "keeps what was acknowledged", "var(--c3)", "circle"),
    Lane(("not judged", "undecided"), "not known", "var(--soft)", "diamond"),
    Lane(("drops flushes",), "drops flushes, by rule", "var(--warn)", "triangle-up"),
    Lane(("loses",), "loses acknowledged writes", "var(--c2)", "triangle-down"),
    Lane(("corrupts",), "corrupts: cannot be used any more", "var(--c4)", "cross"),
)
WIDEST = 1.3
"""An interval is drawn to this many times the best mean; beyond it goes on unseen."""
Judged = tuple[Line, Keeping]


def loss_chart(load: WorkloadView, judged: Sequence[Judged]) -> tuple[vega.Spec, int]:
    """A row a cell with its interval, in lanes from the safest to the worst and in each from the
    fastest to the slowest (of losses the smallest first); and how many cells had no room."""
    rows: list[dict[str, object]] = []
    hidden = 0
    for lane in LANES:
        held = sorted((each for each in judged if each[1].word in lane.words), key=_loss)
        hidden += max(0, len(held) - MAX_OF_A_LANE)
        if held:
            rows.append({"head": lane.head})
            rows += [_row(each, lane) for each in held[:MAX_OF_A_LANE]]
    names = [str(row.get("name", "")) for row in rows]
    value = {"title": f"{load.metric} ({load.unit}), {HIGHER[load.higher_is_better]}"}

    def layers(below: float) -> list[vega.Spec]:
        return [
            *vega.interval_layer(rows, _whisker(value, below)),
            _points(value, below),
            *vega.name_layers(names, below),
            vega.text_layer("figure", {"value": "width"}, "right", below),
            _heads(),
        ]

    _cut(rows)
    placed = [{"place": place, **row} for place, row in enumerate(rows)]
    return vega.rows_chart(placed, names, layers, height=18), hidden


def _cut(rows: Sequence[dict[str, object]]) -> None:
    """A cell of which next to nothing is known would press all others together."""
    edge = WIDEST * max((float(str(row["mean"])) for row in rows if "mean" in row), default=0.0)
    for row in rows:
        if row.get("high") is not None:
            row["high"] = min(float(str(row["high"])), edge)


def _loss(each: Judged) -> int:
    row = each[1].row
    return row.verdict.lost if row and each[1].word in ("loses", "corrupts") else 0


def _row(each: Judged, lane: Lane) -> dict[str, object]:
    line, keeping = each
    interval = line.ranked.interval
    half = None if interval.says_nothing else interval.half_width
    return {
        "name": line.label,
        **vega.name_fields(line.label),
        "figure": ", ".join([render_figure(interval.mean), *_loss_words(keeping)]),
        "mean": interval.mean,
        "low": None if half is None else max(0.0, interval.mean - half),
        "high": None if half is None else interval.mean + half,
        "colour": lane.colour,
        "shape": lane.shape,
    }


def _loss_words(keeping: Keeping) -> Iterator[str]:
    verdict = keeping.row.verdict if keeping.row else None
    if verdict and verdict.is_broken and verdict.lost:
        yield f"loses {verdict.lost}"
        if verdict.verdict == "loses":
            yield render_age(verdict.age_seconds)
    elif verdict and keeping.word in ("keeps", "undecided"):
        yield share_text(verdict)


def _points(value: vega.Spec, below: float) -> vega.Spec:
    return {
        "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1, "yOffset": below},
        "transform": [{"filter": "isValid(datum.mean)"}],
        "encoding": {
            "x": vega.amount("mean", {"tickCount": 4, "format": "~s", **value}, {"zero": True}),
            "color": vega.own_colour(),
            "shape": vega.own_colour("shape"),
            "tooltip": vega.tooltip("name", "figure"),
        },
    }


def _whisker(value: vega.Spec, below: float) -> vega.Spec:
    return {
        "mark": {"type": "rule", "strokeWidth": 2, "yOffset": below, "opacity": 0.6},
        "transform": [{"filter": "isValid(datum.low)"}],
        "encoding": {
            "x": vega.amount("low", {"tickCount": 4, "format": "~s", **value}),
            "x2": {"field": "high"},
        },
    }


def _heads() -> vega.Spec:
    return {
        "mark": {"type": "text", "align": "left", "baseline": "bottom", "fontWeight": "bold",
                 "fontSize": 13, "yOffset": 12},
        "transform": [{"filter": "isValid(datum.head)"}],
        "encoding": {
            "x": {"value": 0},
            "text": {"field": "head"},
        },
    }  # fmt: skip


def loss_caption(load: WorkloadView, frontend: str, judged: Sequence[Judged], hidden: int) -> str:
    """What the picture shows, and what it leaves out."""
    words = {word for word, _ in groupby(sorted(each[1].word for each in judged))}
    text = (
        f"{load.name}: speed with 95 % intervals (frontend {frontend}), from what keeps its data "
        "in every crash that was tried down to what is damaged by one."
    )
    if words & {"keeps", "undecided"}:
        text += " Behind a speed stands how many of how many states were checked."
    if any(line.ranked.interval.says_nothing for line, _ in judged):
        text += " A point without an interval: too few runs to say."
    if hidden:
        text += f" {count(hidden, 'more cell')} of these are in the table."
    if words & {"loses", "corrupts"}:
        text += (
            " loses N, T: in the worst state N acknowledged writes are missing, the oldest "
            "acknowledged T before the crash."
        )
    if "not judged" in words:
        text += " Of what is not known nothing says that it is safe."
    return f"{text} Intervals that reach the edge go on beyond it."
