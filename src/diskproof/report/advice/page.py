"""The answer comes first: what to use, the lines to paste, speed against the worst loss."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from diskproof.advice.dialect import Dialect, Paste, Target, Unsayable
from diskproof.advice.dialects import DIALECTS
from diskproof.report.advice.barred import Bars
from diskproof.report.advice.chart import loss_caption, loss_chart
from diskproof.report.advice.choose import (
    VM_FRONTENDS,
    Recommendation,
    Wish,
    disk_levels,
    recommend_all,
)
from diskproof.report.advice.keeping import find_keeping
from diskproof.report.advice.words import answer_sentences, settings_text
from diskproof.report.chapter import Chapter, Draw, Figure, Lead, Source
from diskproof.report.view import StudyView

MAX_PICTURES = 3
"""Workloads with a picture of speed against loss; reads need none."""

Advised = tuple[str, ...]
"""The workloads that have cells of a machine's disk."""


@dataclass(frozen=True)
class PasteOf:
    """One dialect's lines for what is advised on these workloads; ``paste`` is None where it cannot
    be said, and ``obstacles`` say why. ``settings`` are told where they are not the answer's own."""

    loads: str
    settings: str
    paste: Paste | None
    obstacles: tuple[Unsayable, ...]


def _find(source: Source) -> Advised:
    return tuple(
        load.name
        for load in source.workloads
        if any(line.ranked.cell.level("frontend") in VM_FRONTENDS for line in load.lines)
    )


def _lead(advised: Advised, view: StudyView) -> Lead:
    told = (answer_sentences(found) for found in recommend_all(view))
    return Lead(answers=tuple((first, " ".join(rest)) for first, *rest in told))


def _page(advised: Advised, view: StudyView, draw: Draw) -> Mapping[str, object]:
    found = recommend_all(view)
    bars = Bars(view.study)
    return {
        "figures": [*_figures(found, bars, draw)],
        "dialects": [
            (dialect, pastes)
            for dialect in DIALECTS.values()
            if (pastes := tuple(find_pastes(view, dialect)))
        ],
    }


def _figures(found: tuple[Recommendation, ...], bars: Bars, draw: Draw) -> Iterator[Figure]:
    """Of loads that write, for these lose; else of the first."""
    from diskproof.report.crash.page import writes

    loads = [each for each in found if writes(each.load)] or list(found[:1])
    for each in loads[:MAX_PICTURES]:
        judged = [
            (line, find_keeping(line.durability, "power", bars.find(line.ranked.cell)))
            for line in each.load.lines
            if line.ranked.cell.level("frontend") == each.frontend
        ]
        spec, hidden = loss_chart(each.load, judged)
        yield draw(spec, loss_caption(each.load, each.frontend, judged, hidden), 0)


def find_pastes(view: StudyView, dialect: Dialect) -> Iterator[PasteOf]:
    """What is advised in one dialect, by settings: those that are proved better than others, or the
    first workload's where nothing is proved. ``unsafe`` is never among them."""
    target = Target()
    wish = Wish(
        stack=dialect.title,
        defaults=dialect.defaults(target),
        find_obstacles=partial(dialect.find_obstacles, target=target),
    )
    chosen = [each for each in recommend_all(view, wish) if each.chosen]
    chosen = [each for each in chosen if each.proved] or chosen[:1]
    loads: dict[str, list[Recommendation]] = {}
    for each in chosen:
        assert each.chosen is not None
        loads.setdefault(repr(sorted(disk_levels(each.chosen.cell).items())), []).append(each)
    for alike in loads.values():
        first = alike[0]
        assert first.chosen is not None
        levels = disk_levels(first.chosen.cell)
        obstacles = tuple(dialect.find_obstacles(levels, target))
        yield PasteOf(
            ", ".join(each.load.name for each in alike),
            settings_text(first.chosen, first),
            None if obstacles else dialect.write(levels, target),
            obstacles,
        )


CHAPTER = Chapter("advice", _find, _page, lead=_lead)
