"""Sentences on what managers give: is it good?"""

from collections.abc import Iterator

from diskproof.records.metrics import figure_unit
from diskproof.report.barred import Bars, is_unfit
from diskproof.report.durability import short_text
from diskproof.report.ratios import ratio_text
from diskproof.report.view import Line, WorkloadView


def default_sentences(load: WorkloadView, bars: Bars) -> Iterator[str]:
    """The speeds of managers' defaults and what they keep, best first; those of which the same is
    to be said together. Of several disks of one manager (with other numbers of processors, say) the
    best is told."""
    told: set[str] = set()
    said: dict[str, list[str]] = {}
    for line in load.lines:
        if new := [name for name in line.ranked.cell.names if name not in told]:
            told.update(new)
            judged = short_text(line.durability)
            kept = "nobody has judged what it keeps" if judged == "-" else f"a crash: {judged}"
            kept = "it drops flushes" if is_unfit(line.ranked.cell, bars) else kept
            said.setdefault(f"{_place(line, load)}; {kept}", []).extend(new)
    for what, names in said.items():
        yield f"Default{'s' * (len(names) > 1)} of {', '.join(names)}: {what}."


def _place(line: Line, load: WorkloadView) -> str:
    ranked = line.ranked
    if line is load.lines[0]:
        return "the best mean"
    if ranked.tied_with_best and ranked.interval.n > 1:
        return "not told apart from the best"
    if not ranked.ratio.ratio > 0:
        return "no ratio to the best"
    single = ", which a single run does not prove" if ranked.interval.n < 2 else ""
    unit = figure_unit(load.metric, load.unit)
    return f"{ratio_text(ranked)} times the best cell's {unit}{single}"
