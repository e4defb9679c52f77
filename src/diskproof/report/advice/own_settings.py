"""A machine's own settings against the best that keeps, in sentences."""

from collections.abc import Mapping

from diskproof.records.metrics import figure_unit
from diskproof.report.advice.choose import Recommendation, recommend
from diskproof.report.advice.times import Times, times_of
from diskproof.report.advice.words import keeping_sentence, settings_text
from diskproof.report.labels import render_figure
from diskproof.report.view import Line, StudyView, WorkloadView
from diskproof.stats.ranking import ratios_over


def compare_own(view: StudyView, own: Mapping[str, str]) -> list[str]:
    """A few sentences on each workload: what to use, how far the own settings are from it."""
    told: list[str] = []
    for load in view.workloads:
        found = recommend(view, load)
        mine = next((line for line in load.lines if _is_own(line, own)), None)
        told += _sentences(found, load, mine)
    return told


def _is_own(line: Line, own: Mapping[str, str]) -> bool:
    return all(line.ranked.cell.level(name, level) == level for name, level in own.items())


def _sentences(found: Recommendation, load: WorkloadView, mine: Line | None) -> list[str]:
    chosen = found.chosen
    if mine is None:
        return [f"{load.name}: its own settings were not measured."]
    value = f"{render_figure(mine.ranked.interval.mean)} {figure_unit(load.metric, load.unit)}"
    if chosen is None:
        return [f"{load.name}: its own settings do {value}; none that keeps was measured."]
    if chosen.line is mine:
        return [
            f"{load.name}: its own settings do {value}, and none that keeps is proved faster.",
            keeping_sentence(chosen, found),
        ]
    best = settings_text(chosen, found)
    apart = chosen.line.ranked.is_apart(mine.ranked)
    times = _times(load, mine, chosen.line).text
    why = next((each.why_not for each in found.refused if each.line is mine), "").partition("; ")[0]
    own = f"{load.name}: its own settings do {value}" + (f"; such a disk {why}" if why else "")
    if not apart:
        what = "is not told apart from them" + ("" if why else ": nothing is gained by a change")
        return [f"{own}. {best} {what} ({times}).", keeping_sentence(chosen, found)]
    return [f"{own}. {best} is {times} as fast.", keeping_sentence(chosen, found)]


def _times(load: WorkloadView, base: Line, other: Line) -> Times:
    """How many times as fast ``other`` is as ``base``, for all pairs of the workload together."""
    samples, higher = [line.sample for line in load.lines], load.higher_is_better
    ratios = ratios_over(samples, load.lines.index(base), higher, load.alpha)
    return times_of(ratios[load.lines.index(other)], higher)
