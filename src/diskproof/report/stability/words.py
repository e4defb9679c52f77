"""Sentences about how steady a host, a cell and a run were, and where more effort pays."""

import math

from diskproof.report.labels import change, count, percent, render_figure
from diskproof.stats.drift import Drift
from diskproof.stats.first_run import FirstRunEffect
from diskproof.stats.intervals import CONFIDENCE
from diskproof.stats.speed_verdict import MOST_RUNS
from diskproof.stats.spells import Spell
from diskproof.stats.steady_state import MAX_RANGE, MAX_SLOPE, WINDOW, SteadyState, Window
from diskproof.stats.two_states import TwoStates
from diskproof.stats.variance import VarianceLevels
from diskproof.units import render_seconds

ALPHA = 1 - CONFIDENCE
_WORTH_SAYING = 0.9
"""A change of the run's length that saves less than a tenth is not worth a sentence."""
_MANY_BLOCKS = 20


def variance_lines(levels: VarianceLevels, mostly_steady: bool = True) -> list[str]:
    """Where results scatter, and which repeats narrow intervals most for their time.

    Shorter runs are not advised where most runs are not steady as it is.
    """
    if levels.run is None:
        return ["no cell has a repeat: run more blocks before anything else"] if levels.runs else []
    lines = [
        f"from run to run a cell scatters by {percent(levels.run)} (image, boot and run together)"
    ]
    if levels.block is not None:
        lines.append(
            f"what all cells of a block share scatters by {percent(levels.block)}; "
            "cells are compared inside blocks, so this costs nothing"
            if levels.block >= 0.001
            else "blocks do not differ by more than runs do"
        )
    return lines + _length_lines(levels, mostly_steady) + [_repeat_line(levels.run)]


def _length_lines(levels: VarianceLevels, mostly_steady: bool) -> list[str]:
    share, measured = levels.inside_share, levels.measured_seconds
    if share is None or measured is None or levels.inside is None:
        return []
    lines = [
        f"{share:.0%} of that variance lies inside a run (its mean is sure to "
        f"{percent(levels.inside)} after {measured:.0f} s)"
    ]
    best, saving = levels.best_seconds, levels.saving
    if best is None or saving is None or saving > _WORTH_SAYING:
        return [*lines, "the length of a run is about right"]
    if best >= measured:
        wanted = f"about {best:.0f} s" if math.isfinite(best) else "one long run a block"
        advice = f"longer runs pay: {wanted} instead of more blocks, {saving:.0%} of the time"
    elif mostly_steady:
        length = f"about {max(1.0, best):.0f} s"
        advice = f"shorter runs pay: {length} each and more blocks need {saving:.0%} of the time"
    else:
        advice = "more blocks pay, shorter runs do not: most runs are not steady as it is"
    return [*lines, advice]


def _repeat_line(cv: float) -> str:
    """How many blocks tell 5 % apart: two-sided 5 %, power 90 %, normal approximation; and what a
    number that people do run tells apart, where that takes more than anybody would."""
    error = (1.960 + 1.282) * math.sqrt(2 * math.log1p(cv * cv))
    runs = max(2, math.ceil((error / math.log(1.05)) ** 2) + 1)
    if runs <= MOST_RUNS:
        return f"two cells 5 % apart are told apart with {runs} blocks (nine times in ten)"
    times = math.exp(error / math.sqrt(_MANY_BLOCKS - 1))
    return (
        f"{_MANY_BLOCKS} blocks tell two cells {times:.2g} times apart from each other (nine times "
        f"in ten); 5 % are lost in this scatter, more than {MOST_RUNS} would be needed"
    )


def first_run_words(effect: FirstRunEffect, higher_is_better: bool) -> str:
    """The first run beside later ones, as a change of the metric."""
    text = change(effect.ratio)
    if effect.low is None or effect.high is None or effect.p_value is None:
        return f"{text} (too few runs to judge)"
    text = f"{text} [{change(effect.low)}, {change(effect.high)}]"
    if effect.p_value > ALPHA:
        return f"{text}: not told apart from later runs"
    return f"{text}: {'faster' if (effect.ratio > 1) == higher_is_better else 'slower'}"


def drift_words(drift: Drift, higher_is_better: bool) -> str:
    """The host over the whole study."""
    text = f"{change(drift.ratio)} from the first block to the last"
    if drift.low is None or drift.high is None or drift.p_value is None:
        return f"{text} (two blocks make no line)"
    text = f"{text} [{change(drift.low)}, {change(drift.high)}]"
    if drift.p_value > ALPHA:
        return f"{text}: no drift is proved"
    # A rate for an hour that a study of minutes has not seen would be a guess.
    timed = drift.per_hour is not None and max(level.hours for level in drift.blocks) >= 0.5
    rate = f", {change(drift.per_hour)} an hour" if timed and drift.per_hour is not None else ""
    faster = (drift.ratio > 1) == higher_is_better
    return f"{text}{rate}: the host became {'faster' if faster else 'slower'}"


def spell_words(spell: Spell, higher_is_better: bool) -> str:
    """Whether a part of the session stood out."""
    if spell.p_value > ALPHA:
        return "no part of it is told apart from the rest"
    faster = (spell.ratio > 1) == higher_is_better
    begin, end = map(render_seconds, spell.seconds)
    many = f"{spell.end - spell.begin} of {spell.runs} runs"
    return (
        f"from {begin} to {end} after the first run ({many}) "
        f"everything was {'faster' if faster else 'slower'}: {change(spell.ratio)} beside the rest"
    )


def states_words(states: TwoStates) -> str:
    """Between which two states a run goes to and fro."""
    low, high = map(render_figure, (states.low, states.high))
    slow, fast = states.rounds
    return f"goes to and fro between {low} ({count(slow, 'round')}) and {high} ({fast})"


def steady_words(state: SteadyState) -> str:
    """The verdict with its figures."""
    if state.verdict == "too short":
        return f"too short to judge: {state.rounds} rounds, a window has {WINDOW}"
    if state.verdict == "not reached" or state.window is None:
        return f"not reached; in the last window {_criteria(state.last)}"
    text = f"from round {state.window.start + 1} of {state.rounds} ({_criteria(state.window)})"
    if state.measurement is None:
        more = "1 more round is" if state.missing == 1 else f"{state.missing} more rounds are"
        return f"{text}; {more} needed to measure after it"
    return text


def _criteria(window: Window | None) -> str:
    if window is None:
        return "nothing was measured"
    return (
        f"range {percent(window.range_share)} of {percent(MAX_RANGE)}, "
        f"slope {percent(window.slope_share)} of {percent(MAX_SLOPE)}"
    )
