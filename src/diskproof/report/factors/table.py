"""Factors in the terminal, in sentences and as JSON: what ``factors`` prints."""

from collections.abc import Iterator, Sequence

from diskproof.records.metrics import HIGHER
from diskproof.report import layout
from diskproof.report import output_analyses as printed
from diskproof.report.analysis import (
    StudyAnalysis,
    WorkloadAnalysis,
    head_json,
    show_studies,
    studies_json,
)
from diskproof.report.factors import words
from diskproof.report.labels import finite
from diskproof.stats.factor_analysis import FactorAnalysis
from diskproof.stats.level_effects import LevelEffect


def render_analyses(studies: Sequence[StudyAnalysis]) -> layout.Shown:
    """Shares, effects, what cannot be separated and where variance lies, for the terminal."""
    return show_studies(studies, _load_groups)


def _load_groups(load: WorkloadAnalysis) -> Iterator[Sequence[layout.Shown]]:
    found = load.factors
    head = f"{found.name}: {found.metric}, {HIGHER[found.higher_is_better]}"
    analysis = found.analysis
    if analysis is None:
        why = "fewer than two cells with different levels, no factor to judge"
        yield [layout.line(f"{head}: {why}")]
        return
    yield [
        layout.line(f"{head}; {words.summary_words(analysis, found.first_blocks)}"),
        _shares_table(analysis),
    ]
    yield [_effects_table(analysis, found.higher_is_better)]
    inseparable = map(words.alias_words, analysis.aliases)
    for title, lines in (
        ("These cells cannot separate", inseparable),
        ("Where repeats pay", load.advice),
    ):
        if told := [layout.line(f"  {line}") for line in lines]:
            yield [layout.line(title, style="bold"), *told]


def _shares_table(analysis: FactorAnalysis) -> layout.Shown:
    table = layout.start_table(
        "what explains the differences, share of the variance of log(value)",
        *("*factor or interaction", ">on its own", ">at most", ">p"),
    )
    for each in words.shown_terms(analysis):
        own = words.share_text(each.share) if each.freedom else "-"
        table.add_row(
            words.term_name(each.term),
            own,
            words.share_text(each.at_most),
            words.p_text(each.p_value),
            style="bold" if each.p_value is not None and each.p_value <= words.ALPHA else None,
        )
    for name, share in words.other_shares(analysis):
        table.add_row(name, words.share_text(share), "", "", style="dim")
    table.caption = "p is corrected for all rows together; bold is proved at 5 %"
    return table


def _effects_table(analysis: FactorAnalysis, higher_is_better: bool) -> layout.Shown:
    table = layout.start_table(
        "each level against a base level, the others averaged, with 95 % interval",
        *("-level", "***effect", "**from"),
    )
    for effect in analysis.effects:
        proved = effect.p_corrected is not None and effect.p_corrected <= words.ALPHA
        table.add_row(
            f"{effect.factor}: {effect.level}",
            f"is {words.effect_words(effect, higher_is_better)}",
            words.effect_basis(effect, higher_is_better),
            style="bold" if proved else None,
        )
    table.caption = "faster and slower: proved at 5 %, corrected for all rows together"
    return table


def analyses_json(
    studies: Sequence[StudyAnalysis],
) -> list[printed.AnalysedJson[printed.FactorsJson | printed.NoFactorsJson]]:
    """Plain JSON. ``ratio`` is of the metric, level over base."""
    return studies_json(studies, _factors_json)


def _factors_json(load: WorkloadAnalysis) -> printed.FactorsJson | printed.NoFactorsJson:
    analysis, higher_is_better = load.factors.analysis, load.factors.higher_is_better
    head = head_json(load.factors)
    if analysis is None:
        return {**head, "terms": [], "effects": [], "inseparable": []}
    return {
        **head,
        **_analysis_json(analysis),
        "first_blocks": load.factors.first_blocks,
        "effects": [_effect_json(effect, higher_is_better) for effect in analysis.effects],
        "advice": load.advice,
    }


def _analysis_json(analysis: FactorAnalysis) -> printed.FactorTermsJson:
    return {
        "cells": analysis.cells,
        "runs": analysis.runs,
        "left_out": analysis.left_out,
        "noise": analysis.noise,
        "run_cv": finite(analysis.run_cv),
        "terms": [
            {
                "term": list(each.term),
                "share": each.share,
                "at_most": each.at_most,
                "freedom": each.freedom,
                "p_corrected": each.p_value,
            }
            for each in analysis.terms
        ],
        "shares": {
            "shared": analysis.shared_share,
            "higher": analysis.higher_share,
            "blocks": analysis.block_share,
            "runs": analysis.noise_share,
        },
        "inseparable": [
            {
                "term": list(alias.term),
                "missing": alias.missing,
                "freedom": alias.freedom,
                "with": [list(partner) for partner in alias.partners],
            }
            for alias in analysis.aliases
        ],
    }


def _effect_json(effect: LevelEffect, higher_is_better: bool) -> printed.EffectJson:
    told = words.effect_words(effect, higher_is_better)
    return {
        "factor": effect.factor,
        "level": effect.level,
        "base": effect.base,
        "method": effect.method,
        "ratio": finite(effect.ratio),
        "low": finite(effect.low),
        "high": finite(effect.high),
        "p_corrected": effect.p_corrected,
        "pairs": effect.pairs,
        "text": f"{effect.factor}: {effect.level} is {told}",
    }
