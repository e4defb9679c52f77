"""The answer comes first: what to use, the lines to paste, speed against the worst loss."""

from collections.abc import Iterator, Mapping, Sequence

from diskproof.advice.dialect import Dialect, Target
from diskproof.advice.dialects import DIALECTS
from diskproof.report.advice.answer import (
    Answer,
    by_paste,
    find_answers,
    instead_sentence,
    unsaid_sentence,
)
from diskproof.report.advice.chart import loss_caption, loss_chart
from diskproof.report.advice.choose import VM_FRONTENDS, Recommendation, Wish, settle
from diskproof.report.advice.keeping import find_keeping
from diskproof.report.advice.own_wish import find_own_dialect, find_own_wish
from diskproof.report.advice.words import answer_sentences, settings_text
from diskproof.report.barred import Bars
from diskproof.report.chapter import Chapter, Draw, Figure, Lead, Source
from diskproof.report.durability import writes
from diskproof.report.view import StudyView

_FIRST = ("qemu", "libvirt", "virt-install", "proxmox", "incus", "kubevirt", "nova")
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
    sure_first = sorted(settle(view, find_own_wish(view)), key=lambda found: not found.proved)
    told = (answer_sentences(found) for found in sure_first)
    return Lead(answers=tuple((first, " ".join(rest)) for first, *rest in told), settled=advised)


def _page(advised: Advised, view: StudyView, draw: Draw) -> Mapping[str, object]:
    own = find_own_dialect(view.study)
    told = ((dialect, _told(view, dialect)) for dialect in _ordered_dialects(own))
    return {
        "figures": [*_figures(settle(view, find_own_wish(view)), Bars(view.study), draw)],
        "dialects": [(dialect, answers) for dialect, answers in told if answers],
        "told_lines": told_lines,
    }


def _ordered_dialects(own: Dialect | None) -> list[Dialect]:
    """That of the study first, then QEMU's own words, from one host's managers to those of many."""
    names = [*([own.name] if own else []), *_FIRST, *DIALECTS]
    return [DIALECTS[name] for name in dict.fromkeys(names) if name in DIALECTS]


def _figures(found: Sequence[Recommendation], bars: Bars, draw: Draw) -> Iterator[Figure]:
    """Of loads that write, for these lose; else of the first."""
    loads = [each for each in found if writes(each.load.lines[0].ranked.cell)] or list(found[:1])
    for each in loads[:MAX_PICTURES]:
        judged = [
            (line, find_keeping(line.durability, "power", bars.find(line.ranked.cell)))
            for line in each.load.lines
            if line.ranked.cell.level("frontend") == each.frontend
        ]
        if all(keeping.is_open for _, keeping in judged):
            continue  # what nobody knows is said in words
        spec, hidden = loss_chart(each.load, judged)
        yield draw(spec, loss_caption(each.load, each.frontend, judged, hidden), 0)


def _told(view: StudyView, dialect: Dialect) -> list[tuple[str, Answer]]:
    """What is advised in one dialect with the workloads that it is for: settings that are proved
    better than others, or the first workload's where nothing is proved."""
    found = [
        each
        for each in find_answers(view, Wish(file=view.file), dialect, Target())
        if told_lines(each)
    ]
    found = [each for each in found if each.found.proved] or found[:1]
    return [(", ".join(e.found.load.name for e in alike), alike[0]) for alike in by_paste(found)]


def told_lines(answer: Answer) -> list[str]:
    """What stands before a line to paste: whose settings they are, and what cannot be said."""
    chosen = answer.found.chosen
    told = [settings_text(chosen, answer.found)] if chosen else []
    return [*told, *filter(None, [unsaid_sentence(answer), instead_sentence(answer)])]


CHAPTER = Chapter("advice", _find, _page, lead=_lead)
