"""The answer comes first: what to use, the lines to paste, speed against the worst loss."""

from collections.abc import Iterator, Mapping, Sequence

from diskproof.advice.dialect import Dialect, Target
from diskproof.advice.dialects import DIALECTS
from diskproof.report.advice.answer import Answer, find_answers, unsaid_sentence
from diskproof.report.advice.barred import Bars
from diskproof.report.advice.chart import loss_caption, loss_chart
from diskproof.report.advice.choose import VM_FRONTENDS, Recommendation, Wish, settle
from diskproof.report.advice.keeping import find_keeping
from diskproof.report.advice.words import answer_sentences, settings_text
from diskproof.report.chapter import Chapter, Draw, Figure, Lead, Source
from diskproof.report.durability import writes
from diskproof.report.view import StudyView

MAX_PICTURES = 3
"""Workloads with a picture of speed against loss; reads need none."""

Advised = tuple[str, ...]
"""The workloads that have cells of a machine's disk."""


def _find(source: Source) -> Advised:
    return tuple(
        load.name
        for load in source.workloads
        if any(line.ranked.cell.level("frontend") in VM_FRONTENDS for line in load.lines)
    )


def _lead(advised: Advised, view: StudyView) -> Lead:
    sure_first = sorted(settle(view), key=lambda found: not found.proved)
    told = (answer_sentences(found) for found in sure_first)
    return Lead(answers=tuple((first, " ".join(rest)) for first, *rest in told))


def _page(advised: Advised, view: StudyView, draw: Draw) -> Mapping[str, object]:
    told = ((dialect, _pastes(view, dialect)) for dialect in DIALECTS.values())
    return {
        "figures": [*_figures(settle(view), Bars(view.study), draw)],
        "dialects": [(dialect, pastes) for dialect, pastes in told if pastes],
        "settings_text": settings_text,
        "unsaid_sentence": unsaid_sentence,
    }


def _figures(found: Sequence[Recommendation], bars: Bars, draw: Draw) -> Iterator[Figure]:
    """Of loads that write, for these lose; else of the first."""
    loads = [each for each in found if writes(each.load.lines[0].ranked.cell)] or list(found[:1])
    for each in loads[:MAX_PICTURES]:
        judged = [
            (line, find_keeping(line.durability, "power", bars.find(line.ranked.cell)))
            for line in each.load.lines
            if line.ranked.cell.level("frontend") == each.frontend
        ]
        spec, hidden = loss_chart(each.load, judged)
        yield draw(spec, loss_caption(each.load, each.frontend, judged, hidden), 0)


def _pastes(view: StudyView, dialect: Dialect) -> list[tuple[str, Answer]]:
    """What is advised in one dialect with the workloads that it is for: settings that are proved
    better than others, or the first workload's where nothing is proved."""
    found = [each for each in find_answers(view, Wish(), dialect, Target()) if each.paste]
    found = [each for each in found if each.found.proved] or found[:1]
    alike: dict[str, list[Answer]] = {}
    for each in found:
        assert each.paste is not None
        alike.setdefault(each.paste.text, []).append(each)
    return [(", ".join(e.found.load.name for e in same), same[0]) for same in alike.values()]


CHAPTER = Chapter("advice", _find, _page, lead=_lead)
