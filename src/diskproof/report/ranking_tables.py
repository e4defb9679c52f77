"""The rankings alone, for the terminal and for programs: what ``rank`` prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diskproof.report.durability import durability_json
from diskproof.report.labels import group_name
from diskproof.report.race_words import race_json
from diskproof.report.score_tables import interval_json, render_scores, scores_json
from diskproof.report.scores import StudyScores
from diskproof.report.table_style import plain
from diskproof.report.tables import race_lines, render_ranking
from diskproof.report.view import Line, StudyView
from diskproof.report.words import (
    accelerator,
    accelerator_note,
    headline,
    warnings,
    winner_sentence,
)

if TYPE_CHECKING:
    from rich.console import Group, RenderableType


Ranking = tuple[StudyView, StudyScores | None]


def ranking_json(view: StudyView, found: StudyScores | None, best: int) -> dict[str, object]:
    """One study on one host; ``best`` cuts each ranking, 0 does not."""
    return {
        "study": view.study.name,
        "id": view.study.id,
        "host": view.host.name,
        "accel": accelerator(view),
        "failed_runs": len(view.failures),
        "rankings": [
            {
                "workload": load.name,
                "metric": load.metric,
                "unit": load.unit,
                "higher_is_better": load.higher_is_better,
                "cells": [_line_json(line) for line in load.lines[: best or None]],
                "race": race_json(view.races[load.name]) if load.name in view.races else None,
            }
            for load in view.workloads
        ],
        **scores_json(view.study, found, best),
    }


def _line_json(line: Line) -> dict[str, object]:
    ranked = line.ranked
    return {
        "rank": ranked.rank,
        "shared": ranked.shared,
        "tie": group_name(ranked.groups),
        "cell": ranked.cell.levels_dict(),
        "label": line.label,
        "n": ranked.interval.n,
        "mean": ranked.interval.mean,
        "ci95": ranked.interval.half_width,
        "ratio_to_best": ranked.ratio.ratio,
        "ratio_simultaneous95": interval_json(ranked.ratio.low, ranked.ratio.high),
        "ratio_ci95": interval_json(ranked.alone.low, ranked.alone.high),
        "latencies": dict(line.latencies),
        "durability": durability_json(line.durability),
    }


def render_rankings(rankings: Sequence[Ranking], best: int, *, best_scores: int = 0) -> Group:
    """Who wins in a sentence, then the table; workload by workload, then all together.

    ``best`` cuts each table, ``best_scores`` that of the scores; 0 does not."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for view, found in rankings:
        parts += [Text()] if parts else []
        parts.append(Text(plain(headline(view)), style="bold"))
        told = [accelerator_note(view), *warnings(view)]
        parts += [Text(f"note: {plain(text)}", style="yellow") for text in told if text]
        for load in view.workloads:
            parts += [Text(), Text(plain(winner_sentence(load))), render_ranking(load, best=best)]
            parts += race_lines(view, load)
        for table in render_scores(view.study, found, best or best_scores) if found else ():
            parts += [Text(), table]
    return Group(*parts)
