"""All workloads together: the score of each cell, and the front of reads and writes."""

from collections.abc import Mapping

from diskproof.report.chapter import Chapter, Draw, Source
from diskproof.report.ratios import ratio_chart, ratio_text
from diskproof.report.scores import table as score_tables
from diskproof.report.scores.chart import pareto_chart
from diskproof.report.scores.find import StudyScores, score_study
from diskproof.report.view import StudyView


def _find(source: Source) -> StudyScores | None:
    return score_study(source.study, source.primary, {})


def _page(found: StudyScores, view: StudyView, draw: Draw) -> Mapping[str, object]:
    labels = score_tables.marked_labels(view.study)
    places = [(labels.get(line.levels, "?"), line) for line in found.scores.lines]
    chart = ratio_chart(places, "score over the best one's")
    figures = [draw(chart.spec, chart.caption, 1)] if chart else []
    if len(found.front) > 1:
        text = score_tables.front_caption(found.front, labels)
        figures.append(draw(pareto_chart(found.front, labels), text, 1))
    return {
        "found": found,
        "labels": labels,
        "front": {point.levels: point for point in found.front},
        "figures": figures,
        "told": score_tables,
        "ratio_text": ratio_text,
    }


CHAPTER = Chapter("scores", _find, _page, question="Which cell is best over all workloads?")
