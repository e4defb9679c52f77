"""How steady everything was, for the terminal and for programs: what ``stability`` prints."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from diskproof.report import layout
from diskproof.report import output_analyses as printed
from diskproof.report.analysis import (
    StudyAnalysis,
    WorkloadAnalysis,
    head_json,
    show_studies,
    studies_json,
)
from diskproof.report.labels import change, count, finite, render_figure
from diskproof.report.losses import losses_words
from diskproof.report.stability import words
from diskproof.report.stability.find import FirstRuns, OutlierRun, SteadyRun, WorkloadStability
from diskproof.stats.drift import Drift
from diskproof.stats.outliers import LEAST_RUNS
from diskproof.stats.steady_state import SteadyState, Window

_VERDICTS = ("measured", "unmeasured", "not reached", "too short")


def first_run_name(first: FirstRuns) -> str:
    """``first run``, or ``first run, preallocation=off``."""
    return f"first run, {first.factor}={first.level}" if first.level else "first run"


def first_run_line(first: FirstRuns, higher_is_better: bool) -> str:
    """The metric of first runs against that of later ones, and over how many cells."""
    cells = count(first.effect.cells, "cell")
    judged = ", held against later blocks" if first.effect.judged_by == "blocks" else ""
    return f"{words.first_run_words(first.effect, higher_is_better)} ({cells}{judged})"


def steady_line(load: WorkloadStability) -> str:
    """How many of the looked-at runs reached steady state."""
    counts: Counter[str] = Counter(each.state.verdict for each in load.steady)
    if not counts:
        return "no time series of the load in this store"
    named = {
        "measured": "steady with a measurement after it",
        "unmeasured": "steady only at the end",
        "not reached": "not steady",
        "too short": "too short to judge",
    }
    states = sum(each.states is not None for each in load.steady)
    told = [f"{counts[each]} {named[each]}" for each in _VERDICTS if counts[each]]
    return ", ".join([*told, f"{states} between two states"] if states else told)


def first_boot_line(first: FirstRuns) -> tuple[str, str]:
    """(what, finding): the first boot of a clone against its later ones."""
    level = f", {first.factor}={first.level}" if first.level else ""
    clones = count(first.effect.cells, "clone")
    effect = words.first_run_words(first.effect, higher_is_better=False)
    return f"first {first.kind} boot{level}", f"{effect} ({clones})"


def drift_line(load: WorkloadStability) -> str:
    """What became of the host from the first block to the last; empty without blocks."""
    return words.drift_words(load.drift, load.higher_is_better) if load.drift else ""


def outlier_line(load: WorkloadStability) -> str:
    if load.outliers:
        return f"{len(load.outliers)}, kept in every figure"
    if load.outliers_told:
        return "no run stands out"
    return (
        f"no run stands out; with fewer than {LEAST_RUNS} runs a cell a slow run is hardly told "
        "from a restless cell"
    )


def stability_lines(load: WorkloadStability) -> list[tuple[str, str]]:
    """(what, finding) of one workload, in sentences."""
    better = load.higher_is_better
    lines = [(first_run_name(each), first_run_line(each, better)) for each in load.first_runs]
    lines += [first_boot_line(each) for each in load.first_boots]
    if load.drift is not None:
        lines.append(("host over time", drift_line(load)))
    if load.spell is not None:
        lines.append(("spells", words.spell_words(load.spell, better)))
    if load.losses is not None:
        lines.append(("failed runs", losses_words(load.losses)))
    lines.append(("inside a run", steady_line(load)))
    lines.append(("outliers", outlier_line(load)))
    return [*lines, *(("repeats", line) for line in load.advice)]


def render_stability(studies: Sequence[StudyAnalysis]) -> layout.Shown:
    """First runs, drift, steady state, outliers and variance, workload by workload."""
    return show_studies(studies, lambda load: _load_groups(load.stability))


def _load_groups(load: WorkloadStability) -> Iterator[Sequence[layout.Shown]]:
    yield [_lines_table(load)]
    yield [_outliers_table(load)] if load.outliers else []
    if any(odd(each) for each in load.steady):
        yield [_steady_table(load)]


def odd(each: SteadyRun) -> bool:
    """Whether a run is not steady, or steady in two states."""
    return each.state.verdict != "measured" or each.states is not None


def inside_words(each: SteadyRun) -> str:
    """Steady state and states of one run."""
    said = words.steady_words(each.state)
    return f"{said}; {words.states_words(each.states)}" if each.states else said


def _lines_table(load: WorkloadStability) -> layout.Shown:
    table = layout.start_table(f"{load.name}: {load.metric}", "-", "*")
    table.show_header = False
    said = ""
    for what, finding in stability_lines(load):
        table.add_row("" if what == said else what, finding)
        said = what
    return table


def outlier_row(each: OutlierRun) -> tuple[str, str, str, str]:
    """Cell, run, value and how far out."""
    far = f"{change(each.ratio)} ({abs(each.deviations):.0f} sd)"
    return each.label, each.where, render_figure(each.value), far


def _outliers_table(load: WorkloadStability) -> layout.Shown:
    table = layout.start_table(
        "runs far from the others of their cell",
        *("*cell", ">run"),
        f">{load.metric}",
        ">off the median",
    )
    for each in load.outliers:
        table.add_row(*outlier_row(each))
    return table


def _steady_table(load: WorkloadStability) -> layout.Shown:
    table = layout.start_table(
        "steady state of the median run (SNIA: range and slope over five rounds)",
        *("*cell", "**steady"),
    )
    for each in load.steady:
        if odd(each):
            table.add_row(each.label, inside_words(each))
    return table


def stability_json(
    studies: Sequence[StudyAnalysis],
) -> list[printed.AnalysedJson[printed.StabilityJson]]:
    """Plain JSON. Ratios are of the metric."""
    return studies_json(studies, _findings_json)


def _findings_json(analysis: WorkloadAnalysis) -> printed.StabilityJson:
    load = analysis.stability
    levels = load.variance
    return {
        **head_json(analysis.factors),
        "first_run": [_first_json(each) for each in load.first_runs],
        "first_boot": [{"kind": each.kind, **_first_json(each)} for each in load.first_boots],
        "drift": _drift_json(load.drift) if load.drift else None,
        "spell": asdict(load.spell) if load.spell else None,
        "slow_losses": asdict(load.losses) if load.losses else None,
        "outliers_told": load.outliers_told,
        "outliers": [
            {
                "cell": each.label,
                "where": each.where,
                "run": each.run_id,
                "value": each.value,
                "ratio": finite(each.ratio),
                "deviations": finite(each.deviations),
            }
            for each in load.outliers
        ],
        "steady_state": [
            {
                "cell": each.label,
                "run": each.run_id,
                "series": each.series,
                **_state(each.state),
                "two_states": asdict(each.states) if each.states else None,
            }
            for each in load.steady
        ],
        "variance": {
            "run_cv": levels.run,
            "block_cv": levels.block,
            "inside_cv": levels.inside,
            "inside_share": levels.inside_share,
            "measured_seconds": levels.measured_seconds,
            "other_seconds": levels.other_seconds,
            "best_seconds": finite(levels.best_seconds),
            "advice": load.advice,
        },
        "power": asdict(load.power) if load.power else None,
    }


def _first_json(first: FirstRuns) -> printed.FirstRunJson:
    effect = first.effect
    return {
        "factor": first.factor or None,
        "level": first.level or None,
        "ratio": finite(effect.ratio),
        "low": finite(effect.low),
        "high": finite(effect.high),
        "p": effect.p_value,
        "cells": effect.cells,
        "judged_by": effect.judged_by,
    }


def _drift_json(drift: Drift) -> printed.DriftJson:
    return {
        "ratio": finite(drift.ratio),
        "low": finite(drift.low),
        "high": finite(drift.high),
        "p": drift.p_value,
        "per_hour": finite(drift.per_hour),
        "spread": drift.spread,
        "blocks": [
            {"block": each.block, "hours": each.hours, "ratio": each.ratio} for each in drift.blocks
        ],
    }


def _state(state: SteadyState) -> printed.StateJson:
    return {
        "verdict": state.verdict,
        "rounds": state.rounds,
        "missing": state.missing,
        "window": _window(state.window),
        "measurement": _window(state.measurement),
        "last": _window(state.last),
    }


def _window(window: Window | None) -> printed.WindowJson | None:
    if window is None:
        return None
    return {
        "start": window.start,
        "end": window.end,
        "average": window.average,
        "range": finite(window.range_share),
        "slope": finite(window.slope_share),
    }
