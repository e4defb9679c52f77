"""A study in the terminal: all that a run ends with, and what ``rank`` prints."""

from collections.abc import Sequence
from typing import Any

from diskproof.report import layout
from diskproof.report.advice.choose import Recommendation, settle
from diskproof.report.advice.own_wish import find_own_wish
from diskproof.report.advice.words import answer_sentences
from diskproof.report.chapter import Chapter
from diskproof.report.chapters import CHAPTERS
from diskproof.report.durability import durability_json
from diskproof.report.head import Head, find_head
from diskproof.report.labels import group_name, interval_json
from diskproof.report.losses import hidden_lines, losses_json
from diskproof.report.outputs import RankingJson, RankLineJson, WhatToUseJson
from diskproof.report.race.words import race_json
from diskproof.report.scores.find import StudyScores
from diskproof.report.scores.table import render_scores, scores_json
from diskproof.report.view import Line, StudyView
from diskproof.stats.intervals import mean_interval

Ranking = tuple[StudyView, StudyScores | None]


def render_study(
    view: StudyView, *, best: int = 0, chapters: Sequence[Chapter[Any]] = CHAPTERS
) -> layout.Shown:
    """All a run ends with: rankings, failures, what was left out. ``best`` cuts each ranking."""
    return layout.paragraphs(
        [
            *_opening(find_head(view, chapters)),
            *(_tables(view, load.name, best, chapters) for load in view.workloads),
            *([table] for table in _tables(view, "", best, chapters)),
        ]
    )


def _opening(head: Head) -> list[Sequence[layout.Shown]]:
    """The answers first, as one would tell a colleague; then what was measured, and what distorts
    it."""
    told = [f"note: {head.note}"] if head.note else []
    told += [f"warning: {text}" for text in head.warnings]
    about = [layout.line(head.line, "bold"), *(layout.line(text, "yellow") for text in told)]
    answers = [[_answer_line(name, answer)] for name, answer in head.answers]
    return [*answers, about]


def _answer_line(name: str, answer: str) -> layout.Shown:
    """What to use stands out of what is said of it."""
    text = layout.line(name if name.endswith(".") else f"{name}:", "bold")
    return text.append(f" {layout.printable(answer)}", "not bold")


def _tables(
    view: StudyView, load: str, best: int, chapters: Sequence[Chapter[Any]] = CHAPTERS
) -> list[layout.Shown]:
    """The tables of all chapters on one workload, or (without a name) on the whole study."""
    return [
        table
        for chapter in chapters
        if chapter.table is not None
        for name, part in chapter.parts(view).items()
        if name == load
        for table in chapter.table(part, view, best)
    ]


def ranking_json(view: StudyView, found: StudyScores | None, best: int) -> RankingJson:
    """One study on one host; ``best`` cuts each ranking, 0 does not."""
    head, races = find_head(view), view.parts.get("race", {})
    hidden = view.parts["runs"].hidden if "runs" in view.parts else {}
    return {
        "study": view.study.name,
        "id": view.study.id,
        "host": view.host.name,
        "accel": head.accelerator,
        "answer": [_advice_json(found) for found in settle(view, find_own_wish(view))],
        "failed_runs": len(view.parts["runs"].failures) if "runs" in view.parts else 0,
        "rankings": [
            {
                "workload": load.name,
                "metric": load.metric,
                "unit": load.unit,
                "higher_is_better": load.higher_is_better,
                "cells": [_line_json(line) for line in load.lines[: best or None]],
                "skewed": load.skewed,
                "slow_losses": losses_json(hidden.get(load.name)),
                "race": race_json(races[load.name]) if load.name in races else None,
            }
            for load in view.workloads
        ],
        **scores_json(view.study, found, best),
    }


def _advice_json(found: Recommendation) -> WhatToUseJson:
    """What to use; ``advise --json`` tells all of it."""
    chosen = found.chosen.cell.levels_dict() if found.chosen else None
    return {
        "workload": found.load.name,
        "sentences": list(answer_sentences(found)),
        "chosen": chosen,
        "proved": found.proved and not found.is_likely,
        "likely": found.proved and found.is_likely,
        "keeps": found.keeps,
    }


def _line_json(line: Line) -> RankLineJson:
    """``mean`` is arithmetic, as in ``show`` and exports; ranks and ratios go by ``geomean``."""
    ranked, plain = line.ranked, mean_interval(line.values)
    return {
        "rank": ranked.rank,
        "shared": ranked.shared,
        "tie": group_name(ranked.groups),
        "cell": ranked.cell.levels_dict(),
        "label": line.label,
        "default_of": list(ranked.cell.names),
        "n": ranked.interval.n,
        "stopped": ranked.stopped,
        "mean": plain.mean,
        "ci95": plain.half_width,
        "geomean": ranked.interval.mean,
        "geomean_ci95": ranked.interval.half_width,
        "ratio_to_best": ranked.ratio.ratio,
        "ratio_simultaneous95": interval_json(ranked.ratio.low, ranked.ratio.high),
        "ratio_ci95": interval_json(ranked.alone.low, ranked.alone.high),
        "latencies": {name: each.value for name, each in line.latencies.items()},
        "latencies_ci95": {
            name: interval_json(each.low, each.high) for name, each in line.latencies.items()
        },
        "latencies_missing": {
            name: each.reason for name, each in line.latencies.items() if each.reason
        },
        "durability": durability_json(line.durability),
    }


def render_rankings(
    rankings: Sequence[Ranking], best: int, *, best_scores: int = 0
) -> layout.Shown:
    """What to use in sentences, then the tables; workload by workload, then all together.

    ``best`` cuts each table, ``best_scores`` that of the scores; 0 does not."""
    groups: list[Sequence[layout.Shown]] = []
    for view, found in rankings:
        groups += _opening(find_head(view))
        groups += [_tables(view, load.name, best) for load in view.workloads]
        told = hidden_lines(view.parts["runs"].hidden) if "runs" in view.parts else []
        groups += [[layout.line(text, "yellow")] for text in told]
        scores = render_scores(view.study, found, best or best_scores) if found else []
        groups += [[table] for table in scores]
    return layout.paragraphs(groups)
