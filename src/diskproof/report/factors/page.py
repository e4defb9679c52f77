"""Which setting matters: each level against its base, and two factors that act together."""

from collections.abc import Iterator, Mapping

from diskproof.report.chapter import Chapter, Draw, Figure, Source
from diskproof.report.factors import words as factor_words
from diskproof.report.factors.chart import effects_chart, interaction_chart, interaction_factors
from diskproof.report.factors.find import WorkloadFactors, find_factors
from diskproof.report.view import StudyView
from diskproof.stats.factor_analysis import FactorAnalysis


def _find(source: Source) -> Mapping[str, WorkloadFactors]:
    """Find the factors of workloads with two cells of different levels."""
    found = {name: find_factors(source.study, rows) for name, rows in source.by_load.items()}
    return {name: load for name, load in found.items() if load.analysis is not None}


def _page(load: WorkloadFactors, view: StudyView, draw: Draw) -> Mapping[str, object]:
    analysis = load.analysis
    return {
        "found": analysis,
        "first_blocks": load.first_blocks,
        "higher_is_better": load.higher_is_better,
        "figures": [*_figures(load, analysis, draw)] if analysis else [],
        "told": factor_words,
    }


def _figures(load: WorkloadFactors, analysis: FactorAnalysis, draw: Draw) -> Iterator[Figure]:
    text = "Each level's speed over its base level's, with 95 % intervals; coloured: proved."
    yield draw(effects_chart(load, analysis), text, 1)
    pair = interaction_factors(analysis)
    if pair is not None:
        caption = (
            f"{pair[0]} and {pair[1]}, the other settings averaged (geometric mean): lines that "
            "are not parallel mean that the one acts differently with the other."
        )
        yield draw(interaction_chart(load, analysis, *pair), caption, 2)


CHAPTER = Chapter("factors", _find, _page, on_each_workload=True)
