"""Factors in the terminal, in sentences and as JSON: what ``factors`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diskproof.report.analysis import StudyAnalysis, WorkloadAnalysis, studies_json
from diskproof.report.factors.words import (
    ALPHA,
    alias_words,
    effect_basis,
    effect_words,
    finite,
    other_shares,
    p_text,
    share_text,
    shown_terms,
    summary_words,
    term_name,
)
from diskproof.report.ranking.words import HIGHER
from diskproof.report.stability.words import variance_lines
from diskproof.report.table_style import plain, start_table
from diskproof.stats.factors import FactorAnalysis
from diskproof.stats.level_effects import LevelEffect

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table


def render_analyses(studies: Sequence[StudyAnalysis]) -> Group:
    """Shares, effects, what cannot be separated and where variance lies, for the terminal."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for study in studies:
        parts += [Text()] if parts else []
        head = f"study {study.study.name}, host {study.host.name}"
        parts.append(Text(plain(head), style="bold"))
        for load in study.loads:
            parts += [Text(), *_load_parts(load)]
    return Group(*parts)


def _load_parts(load: WorkloadAnalysis) -> list[RenderableType]:
    from rich.text import Text

    found, advice = load.factors, _advice(load)
    head = f"{found.name}: {found.metric}, {HIGHER[found.higher_is_better]}"
    analysis = found.analysis
    if analysis is None:
        return [Text(f"{head}: fewer than two cells with different levels, no factor to judge")]
    parts: list[RenderableType] = [
        Text(f"{head}; {summary_words(analysis)}"),
        _shares_table(analysis),
        Text(),
        _effects_table(analysis, found.higher_is_better),
    ]
    if analysis.aliases:
        parts += [Text(), Text("These cells cannot separate", style="bold")]
        parts += [Text(f"  {plain(alias_words(alias))}") for alias in analysis.aliases]
    if advice:
        parts += [Text(), Text("Where repeats pay", style="bold")]
        parts += [Text(f"  {line}") for line in advice]
    return parts


def _advice(load: WorkloadAnalysis) -> list[str]:
    return variance_lines(load.stability.variance, load.stability.mostly_steady)


def _shares_table(analysis: FactorAnalysis) -> Table:
    table = start_table("what explains the differences, share of the variance of log(value)")
    table.add_column("factor or interaction", ratio=1, overflow="fold")
    for name in ("on its own", "at most", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in shown_terms(analysis):
        own = share_text(each.share) if each.freedom else "-"
        table.add_row(
            plain(term_name(each.term)),
            own,
            share_text(each.at_most),
            p_text(each.p_value),
            style="bold" if each.p_value is not None and each.p_value <= ALPHA else None,
        )
    for name, share in other_shares(analysis):
        table.add_row(name, share_text(share), "", "", style="dim")
    table.caption = "p is corrected for all rows together; bold is proved at 5 %"
    return table


def _effects_table(analysis: FactorAnalysis, higher_is_better: bool) -> Table:
    table = start_table("each level against a base level, the others averaged, with 95 % interval")
    table.add_column("level", overflow="fold")
    table.add_column("effect", ratio=3, overflow="fold")
    table.add_column("from", ratio=2, overflow="fold")
    for effect in analysis.effects:
        proved = effect.p_corrected is not None and effect.p_corrected <= ALPHA
        table.add_row(
            plain(f"{effect.factor}: {effect.level}"),
            plain(f"is {effect_words(effect, higher_is_better)}"),
            effect_basis(effect, higher_is_better),
            style="bold" if proved else None,
        )
    table.caption = "faster and slower: proved at 5 %, corrected for all rows together"
    return table


def analyses_json(studies: Sequence[StudyAnalysis]) -> list[dict[str, object]]:
    """Plain JSON. ``ratio`` is of the metric, level over base."""
    return studies_json(studies, _factors_json)


def _factors_json(load: WorkloadAnalysis) -> dict[str, object]:
    analysis, higher_is_better = load.factors.analysis, load.factors.higher_is_better
    if analysis is None:
        return {"terms": [], "effects": [], "inseparable": []}
    return {
        **_analysis_json(analysis),
        "effects": [_effect_json(effect, higher_is_better) for effect in analysis.effects],
        "advice": _advice(load),
    }


def _analysis_json(analysis: FactorAnalysis) -> dict[str, object]:
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


def _effect_json(effect: LevelEffect, higher_is_better: bool) -> dict[str, object]:
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
        "text": f"{effect.factor}: {effect.level} is {effect_words(effect, higher_is_better)}",
    }
