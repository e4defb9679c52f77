"""Sentences on what managers give: is it good?"""

from collections.abc import Iterator

from diskproof.report.durability import short_text
from diskproof.report.ratios import ratio_text
from diskproof.report.view import Line, WorkloadView


def default_sentences(load: WorkloadView) -> Iterator[str]:
    """One for each cell that is a manager's default, best first: its speed, and what it keeps."""
    for line in load.lines:
        if names := line.ranked.cell.names:
            judged = short_text(line.durability)
            kept = "nobody has judged what it keeps" if judged == "-" else f"a crash: {judged}"
            gives = "gives" if len(names) == 1 else "give"
            yield f"What {', '.join(names)} {gives} {_place(line, load)}; {kept}."


def _place(line: Line, load: WorkloadView) -> str:
    ranked = line.ranked
    if line is load.lines[0]:
        return "has the best mean"
    if ranked.tied_with_best and ranked.interval.n > 1:
        return "is not told apart from the best"
    if not ranked.ratio.ratio > 0:
        return "has no ratio to the best"
    single = " (a single run)" if ranked.interval.n < 2 else ""
    return f"has {ratio_text(ranked)} times the best cell's {load.metric}{single}"
