"""Sentences on what managers give: is it good?"""

from collections.abc import Iterator

from diskproof.records.metrics import figure_unit
from diskproof.report.durability import short_text
from diskproof.report.ratios import ratio_text
from diskproof.report.view import Line, WorkloadView


def default_sentences(load: WorkloadView) -> Iterator[str]:
    """One for each manager whose default was measured, best first: its speed, and what it keeps. Of
    several such disks (with other numbers of processors, say) it is the best."""
    told: set[tuple[str, ...]] = {()}
    for line in load.lines:
        if (names := line.ranked.cell.names) not in told:
            told.add(names)
            judged = short_text(line.durability)
            kept = "nobody has judged what it keeps" if judged == "-" else f"a crash: {judged}"
            yield f"Default of {', '.join(names)}: {_place(line, load)}; {kept}."


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
