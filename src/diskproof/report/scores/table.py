"""Scores over all workloads, for the terminal and for programs: the second half of ``rank``."""

from collections.abc import Mapping, Sequence

from diskproof.records import StudyRecord
from diskproof.report import layout
from diskproof.report.barred import DROPS_FLUSHES, MARK, Bars, is_unfit
from diskproof.report.labels import (
    cell_label,
    group_name,
    interval_json,
    render_figure,
    varying_factors,
)
from diskproof.report.outputs import ScoredCellJson, ScoresJson, WeightedJson
from diskproof.report.ratios import ratio_text
from diskproof.report.scores.chart import front_cells
from diskproof.report.scores.find import StudyScores
from diskproof.stats.pareto import FrontPoint
from diskproof.stats.score import Levels, Scored, Scores
from diskproof.stats.weighted_speed import WeightedSpeed, WeightedSpeeds

TOP = 5
TABLE_OPEN = 12
"""Lines up to which the page shows the score table unfolded; the chart above it has the best 24."""


def score_labels(study: StudyRecord) -> dict[Levels, str]:
    """The names of a study's cells by their levels, the same in every workload."""
    factors = varying_factors(study.cells)
    return {cell.levels: cell_label(cell, factors) for cell in study.cells}


def marked_labels(study: StudyRecord) -> dict[Levels, str]:
    """The same, with a mark behind those that drop flushes."""
    factors, bars = varying_factors(study.cells), Bars(study)
    return {
        cell.levels: cell_label(cell, factors) + MARK * is_unfit(cell, bars) for cell in study.cells
    }


def render_scores(study: StudyRecord, found: StudyScores, best: int) -> list[layout.Shown]:
    """The score table, then the article's top five if the study has what they need."""
    labels = marked_labels(study)
    parts: list[layout.Shown] = [_score_table(found, labels, best)]
    if found.weighted is not None:
        parts.append(_weighted_table(found.weighted, labels))
    return parts


def score_sentence(scores: Scores, labels: Mapping[Levels, str]) -> str:
    """Who has the best score, and how far it hangs on the weights."""
    if not scores.lines:
        return "No cell has results in all workloads that count, so there is no score."
    names = [labels.get(line.levels, "?") for line in scores.lines]
    first = names[0]
    if first.endswith(MARK):
        fit = next((name for name in names if not name.endswith(MARK)), "none")
        return f"{first} has the best score and drops flushes; of those that do not, it is {fit}."
    if scores.holds_within is None:
        return f"{first} is the only cell with results in all workloads that count."
    tied = sum(line.tied_with_best for line in scores.lines[1:])
    proof = {0: "proved better than every other", 1: "one other is not told apart from it"}
    held = (
        "whatever the weights"
        if scores.holds_within >= 1
        else f"as long as no weight is off by more than {scores.holds_within:.0%} of itself"
    )
    told = proof.get(tied, f"{tied} others are not told apart from it")
    return f"{first} has the best score, {told}. It stays first {held}."


def front_caption(front: Sequence[FrontPoint], labels: Mapping[Levels, str]) -> str:
    """What the chart of the front shows, and who its numbers are."""
    named = "; ".join(
        f"{number} {labels.get(point.levels, '?')}"
        for number, point in enumerate(front_cells(front), 1)
    )
    return (
        f"Reads against writes. On the front, where no other cell is faster in both: {named}. "
        "Hollow: another cell seems faster in both, but that is not proved."
    )


def weighted_words(found: WeightedSpeeds) -> str:
    """How the article's figures are made, with its factors."""
    factors = [
        f"{value:.3g}" if value else "?" for value in (found.read_factor, found.write_factor)
    ]
    return (
        f"weighted = mean(sequential, f x random 4k), f of the host: {factors[0]} for reads, "
        f"{factors[1]} for writes; total = mean of read and write; by means, nothing is proved"
    )


def weights_words(scores: Scores) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in scores.weights.items())


def _score_table(found: StudyScores, labels: Mapping[Levels, str], best: int) -> layout.Shown:
    scores, front = found.scores, {point.levels: point for point in found.front}
    table = layout.start_table(
        f"score: speeds multiplied up by weight ({weights_words(scores)})",
        *("!#", "*cell"),
        *([">score", ">tie", ">wins"] + ([">read", ">write", ">front"] if front else [])),
    )
    for line in scores.lines[: best or None]:
        row = [line.label, labels.get(line.levels, "?"), ratio_text(line.ratio)]
        row += [group_name(line.groups), f"{line.wins:.0%}"]
        row += front_row(front.get(line.levels)) if front else []
        table.add_row(*row, style="bold" if line.rank == 1 else None)
    table.caption = layout.plain(_score_caption(found, labels, best))
    return table


def front_row(point: FrontPoint | None) -> list[str]:
    if point is None:
        return ["-", "-", "-"]
    mark = "yes" if point.on_front else "no" if point.proved_off else "(no)"
    return [*(f"{value:.2f}" for value in point.scores), mark]


def _score_caption(found: StudyScores, labels: Mapping[Levels, str], best: int) -> str:
    scores = found.scores
    parts = [score_sentence(scores, labels)]
    parts += [column_words(found)]
    shown = scores.lines[: best or None]
    if any(labels.get(line.levels, "").endswith(MARK) for line in shown):
        parts += [f"{DROPS_FLUSHES}."]
    hidden = len(scores.lines) - best if best else 0
    parts += [f"{hidden} more are not shown."] if hidden > 0 else []
    parts += [missing_text(scores, labels)] if scores.missing else []
    return " ".join(parts)


def column_words(found: StudyScores) -> str:
    """What the columns of the score table mean."""
    text = (
        "Score: ratio to the best, with its interval; wins: share of all weights under which "
        "this cell is first."
    )
    if found.raced:
        text = f"{text} A cell that a race stopped early looks slower than it is."
    if not found.front:
        return text
    return (
        f"{text} read and write: ratio to the best there; front: no other is faster in both, "
        "(no): another seems so, but that is not proved."
    )


def missing_text(scores: Scores, labels: Mapping[Levels, str], shown: int = 3) -> str:
    named = [
        f"{labels.get(levels, '?')} (lacks {', '.join(lacked)})"
        for levels, lacked in list(scores.missing.items())[:shown]
    ]
    more = len(scores.missing) - len(named)
    text = "Without a score: " + "; ".join(named)
    return f"{text}; {more} more." if more > 0 else f"{text}."


def _weighted_table(found: WeightedSpeeds, labels: Mapping[Levels, str]) -> layout.Shown:
    columns = ("total", "read", "write")
    heads = [head for name in columns for head in (f"*by {name}", f">{name}")]
    table = layout.start_table("weighted speeds in MiB/s, the best five of each", "!#", *heads)
    tops = [found.top(name, TOP) for name in columns]
    for place in range(max(map(len, tops))):
        row = [str(place + 1)]
        for name, top in zip(columns, tops, strict=True):
            line = top[place] if place < len(top) else None
            row += [labels.get(line.levels, "?") if line else ""]
            row += [render_figure(getattr(line, name)) if line else ""]
        table.add_row(*row)
    table.caption = weighted_words(found)
    return table


def scores_json(study: StudyRecord, found: StudyScores | None, best: int) -> ScoresJson:
    """``score`` (None for a study of one workload) and ``weighted_speed`` (None without f)."""
    if found is None:
        return {"score": None, "weighted_speed": None}
    labels, scores = score_labels(study), found.scores
    front = {point.levels: point for point in found.front}
    return {
        "score": {
            "weights": dict(scores.weights),
            "holds_within": scores.holds_within,
            "cells": [
                _score_json(line, labels, front.get(line.levels))
                for line in scores.lines[: best or None]
            ],
            "missing": [
                {"cell": dict(levels), "lacks": list(lacked)}
                for levels, lacked in scores.missing.items()
            ],
        },
        "weighted_speed": _weighted_json(found.weighted, labels),
        "no_weighted_speed": found.unweighted or None,
    }


def _score_json(
    line: Scored, labels: Mapping[Levels, str], point: FrontPoint | None
) -> ScoredCellJson:
    return {
        "rank": line.rank,
        "shared": line.shared,
        "tie": group_name(line.groups),
        "cell": dict(line.levels),
        "label": labels.get(line.levels, ""),
        "score": line.ratio.ratio,
        "simultaneous95": interval_json(line.ratio.low, line.ratio.high),
        "speeds": dict(line.speeds),
        "wins": line.wins,
        "read": point.scores[0] if point else None,
        "write": point.scores[1] if point else None,
        "on_front": point.on_front if point else None,
        "proved_off_front": point.proved_off if point else None,
    }


def _weighted_json(
    found: WeightedSpeeds | None, labels: Mapping[Levels, str]
) -> WeightedJson | None:
    if found is None:
        return None
    lines: Sequence[WeightedSpeed] = found.lines
    return {
        "read_factor": found.read_factor,
        "write_factor": found.write_factor,
        "cells": [
            {
                "cell": dict(line.levels),
                "label": labels.get(line.levels, ""),
                "read": line.read,
                "write": line.write,
                "total": line.total,
            }
            for line in lines
        ],
    }
