"""Races in sentences: who left and why, who leads, how sure that is."""

import math

from diskproof.records import Cell, StudyRecord
from diskproof.report.barred import Bars, is_unfit
from diskproof.report.labels import cell_label, finite, varying_factors
from diskproof.report.outputs import ChanceJson, RaceJson
from diskproof.stats.racing import Drop
from diskproof.stats.study_race import RaceState

MAX_NAMED = 3
"""Cells that a sentence names; the rest is counted."""
MAX_CHANCES = 6


def drop_sentence(race: RaceState, drop: Drop, study: StudyRecord) -> str:
    """``raw none native after block 3: at 71 % of raw unsafe native, surely below 84 %``."""
    label = _label(race.cells[drop.cell], study)
    when = f"{label} after block {drop.block + 1}"
    if drop.reason == "failed":
        return f"{when}: no run of it has worked"
    rival = _label(race.cells[drop.rival], study)
    return f"{when}: at {drop.ratio:.1%} of the speed of {rival}, surely below {_below(drop)}"


def _below(drop: Drop) -> str:
    """Rounded up, for it is a bound."""
    return f"{math.ceil(1000 * drop.at_most) / 10:.1f}%"


def fate(race: RaceState, place: int, study: StudyRecord) -> str:
    """What became of one cell."""
    for drop in race.course.drops:
        if drop.cell == place:
            return f"left after {drop_sentence(race, drop, study).split(' after ', 1)[1]}"
    verdict = race.verdict
    if verdict is None or place in verdict.open:
        return "open"
    if place in verdict.leaders:
        return f"leads: {likely_text(race)}" if race.rules.likely else "leads"
    delta = f"{100 * race.rules.delta:g} %"
    sure = "unlikely to be more than" if race.rules.likely else "surely no more than"
    return f"rests: {sure} {delta} better"


def likely_text(race: RaceState) -> str:
    """How likely the answer of a race for the likely best is: ``97 % likely that no other is more
    than 2 % better``."""
    chance = _chance(race.verdict.probability if race.verdict else 0.0)
    return f"{chance} likely that no other is more than {100 * race.rules.delta:g} % better"


def chances_sentence(race: RaceState) -> str:
    """The cells that are most likely among the best, where a race asks for that; else empty."""
    known = race.course.likely
    if known is None:
        return ""
    order = sorted(range(len(race.cells)), key=lambda place: -known.chances[place])
    factors = varying_factors(race.cells)
    shown = [place for place in order[:MAX_CHANCES] if known.chances[place] >= 0.005]
    told = [f"{cell_label(race.cells[p], factors)} {_chance(known.chances[p])}" for p in shown]
    return f"likely within {100 * race.rules.delta:g} % of the best: {', '.join(told)}"


def timeline_sentence(race: RaceState, shown: int) -> str:
    """What the picture of a race says, and how many cells left when."""
    left: dict[int, int] = {}
    for drop in race.course.drops:
        left[drop.block + 1] = left.get(drop.block + 1, 0) + 1
    told = ", ".join(f"{count} after block {block}" for block, count in sorted(left.items()))
    text = (
        "A dot is a run. Blue leads; orange may be better by more than delta; green surely is not "
        "and rests; grey is surely worse and has left"
        if not race.rules.likely
        else "A dot is a run. Blue likely leads; orange may be better by more than delta; green is "
        "unlikely to be and rests; grey has failed"
    )
    text += f" ({told})." if told else "."
    hidden = len(race.cells) - shown
    return f"{text} The {shown} that stayed longest." if hidden > 0 else text


def race_json(race: RaceState) -> RaceJson:
    """A race for programs; probabilities and ratios as they stand after its last block."""
    verdict = race.verdict
    return {
        "blocks": len(race.course.verdicts),
        "cells": len(race.cells),
        "racing": race.racing,
        "resting": race.resting,
        "stop": "likely" if race.rules.likely else "decided",
        "over": race.course.over,
        "settled": race.course.settled,
        "leaders": [cell.levels_dict() for cell in race.leaders],
        "tied": [cell.levels_dict() for cell in race.tied],
        "open": [cell.levels_dict() for cell in race.open],
        "probability": verdict.probability if verdict else 0.0,
        "chances": _chances_json(race),
        "lead_at_least": finite(verdict.lead_at_least) if verdict else None,
        "blocks_needed": verdict.blocks_needed if verdict else 0,
        "dropped": [
            {
                "cell": race.cells[drop.cell].levels_dict(),
                "after_block": drop.block + 1,
                "reason": drop.reason,
                "rival": race.cells[drop.rival].levels_dict() if drop.rival >= 0 else None,
                "ratio": finite(drop.ratio),
                "at_most": finite(drop.at_most),
            }
            for drop in race.course.drops
        ],
    }


def _chances_json(race: RaceState) -> list[ChanceJson] | None:
    """Of every cell, how likely it is within delta of the best."""
    if race.course.likely is None:
        return None
    pairs = zip(race.cells, race.course.likely.chances, strict=True)
    return [{"cell": cell.levels_dict(), "chance": chance} for cell, chance in pairs]


def verdict_sentence(race: RaceState, study: StudyRecord) -> str:
    """The answer of a race, or what it lacks."""
    verdict, rules = race.verdict, race.rules
    if verdict is None or not verdict.leaders:
        return "no complete block yet" if verdict is None else "no cell gave a value"
    names = _names(race.leaders, study)
    if not verdict.lead_at_least:
        return f"{names} leads; nothing is judged before block {rules.min_blocks}"
    percent = f"{100 * rules.delta:g} %"
    if rules.likely:
        so_far = "" if verdict.settled else f", short of {100 * rules.confidence:g} %"
        return f"likely fastest is {names}: {likely_text(race)}{so_far}"
    if verdict.settled:
        sure = f"at {100 * rules.confidence:g} % no other is more than {percent} better"
        return f"fastest is {names}; {sure}{_tied(race, study)}"
    return (
        f"fastest so far is {names}: {_chance(verdict.probability)} probable that nothing is more "
        f"than {percent} better, but of {_names(race.open, study)} alone that is not "
        f"{100 * rules.confidence:g} % sure: {_advantage(verdict.lead_at_least)}better"
        f"{_needed(race, study)}"
    )


def _needed(race: RaceState, study: StudyRecord) -> str:
    """What it would take once a race is out of blocks."""
    if not race.course.over or race.verdict is None:
        return ""
    so_far = len(race.course.verdicts)
    about = race.verdict.blocks_needed
    most = f", more than the {study.blocks} of max_blocks" if about > study.blocks else ""
    return f"; {so_far} blocks did not decide it, about {about} would{most}"


def _tied(race: RaceState, study: StudyRecord) -> str:
    return f"; not surely worse: {_names(race.tied, study)}" if race.tied else ""


def _chance(probability: float) -> str:
    return "over 99.9 %" if probability > 0.999 else f"{100 * probability:.3g} %"


def _advantage(lead_at_least: float) -> str:
    """How much better the open cells may be; beyond a factor of two, no figure means anything."""
    if lead_at_least > 0.5:
        return f"it may be up to {100 * (1 / lead_at_least - 1):.1f} % "
    return "it may be far "


def _names(cells: tuple[Cell, ...], study: StudyRecord) -> str:
    named = [_label(cell, study) for cell in cells[:MAX_NAMED]]
    rest = len(cells) - len(named)
    return ", ".join([*named, *([f"{rest} more"] if rest else [])])


def _label(cell: Cell, study: StudyRecord) -> str:
    drops = " (drops flushes)" if is_unfit(cell, Bars(study)) else ""
    return cell_label(cell, varying_factors(study.cells)) + drops
