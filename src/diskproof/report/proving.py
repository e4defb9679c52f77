"""What a study will be able to prove, before it is run, and what a race costs beside it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from diskproof.records import StudyRecord
from diskproof.report.labels import count, percent
from diskproof.stats.comparisons import ALPHA
from diskproof.stats.power import MOST_BLOCKS, WANTED, Power, find_power
from diskproof.stats.race_cost import APART, expect_share
from diskproof.stats.study_race import race_rules
from diskproof.study.protocol import EXHAUSTIVE, RaceRules
from diskproof.units import render_seconds

USUAL = (0.03, 0.08)
"""Scatter from run to run of a quiet host and of a restless one, where this one's is not known."""

UNTOLD_APART = 9.0
"""A share apart that is no answer any more: a factor of ten."""


@dataclass(frozen=True)
class KnownScatter:
    """Standard deviations of a run's logarithm by planned cell, from the study's ``own`` runs or
    those of the same load in another; ``seconds`` are a block's. Empty where there are none."""

    cells: int
    scatter: tuple[float, ...]
    own: bool
    seconds: float


def proving_lines(study: StudyRecord, known: Mapping[str, KnownScatter]) -> list[str]:
    """A line a workload, by its name; those of which the same is to be said have one together."""
    rules, said = race_rules(study), dict[str, list[str]]()
    for name, each in known.items():
        if each.cells > 1:
            granted = ALPHA / len(known)
            told = _race_line(each, rules) if rules else _blocks_line(each, study.blocks, granted)
            said.setdefault(told, []).append(name)
    return [f"{', '.join(names)}: {told}" for told, names in said.items()]


def _blocks_line(known: KnownScatter, blocks: int, alpha: float) -> str:
    found = [find_power(each, blocks, alpha) for each in _scatters(known)]
    told = [power_line(each, known.seconds) for each in found]
    return f"{_join(known, told)} {how_simulated(found[0])}"


def _scatters(known: KnownScatter) -> list[tuple[float, ...]]:
    return [known.scatter] if known.scatter else [(usual,) * known.cells for usual in USUAL]


def _race_line(known: KnownScatter, rules: RaceRules) -> str:
    """By races that are simulated with the typical scatter."""
    told = [_race_cost(rules, known.cells, median(each)) for each in _scatters(known)]
    return _join(known, told)


def _race_cost(rules: RaceRules, cells: int, scatter: float) -> str:
    """By simulation, where it is cheap and where nothing can be dropped."""
    apart = expect_share(rules, cells, scatter, APART)
    whole = f"of the runs of {EXHAUSTIVE} blocks"
    told = (
        f"the race takes about {100 * apart:.0f} % {whole} where cells lie {100 * APART:g} % apart"
    )
    if rules.likely:
        return f"{told}, and never more than 100 %"
    equal = expect_share(rules, cells, scatter, 0.0)
    dear = ", more than measuring everything" if equal > 1 else ""
    return f"{told}, {100 * equal:.0f} % where all are equal{dear}"


def _join(known: KnownScatter, told: list[str]) -> str:
    if known.scatter:
        whose = "its own runs" if known.own else "runs of this load here"
        return f"{told[0]}, by the scatter of {whose}, {percent(math.expm1(median(known.scatter)))}"
    parts = [f"at {100 * usual:g} %, {each}" for usual, each in zip(USUAL, told, strict=True)]
    return f"how far runs scatter is not known here yet: {'; '.join(parts)}"


def power_line(power: Power, seconds_a_block: float) -> str:
    """What the blocks there are prove, and what 5 % would take."""
    blocks = count(power.blocks, "block")
    told = f"{blocks} tell no two cells apart as a rule"
    if power.blocks < 2:
        told = "one block proves nothing"
    elif power.apart is not None and power.apart < UNTOLD_APART:
        told = f"{blocks} tell cells apart that are {percent(power.apart)} apart"
    return f"{told}; {_wanted(power, seconds_a_block)}"


def how_simulated(power: Power) -> str:
    """What the line before rests on."""
    return f"(nine pairs in ten of {power.cells} cells, all pairs corrected, by simulation)"


def _wanted(power: Power, seconds_a_block: float) -> str:
    wanted = power.wanted_blocks
    if wanted is None:
        return f"{100 * WANTED:g} % would take more than {MOST_BLOCKS} blocks"
    if wanted <= power.blocks:
        return f"{100 * WANTED:g} % takes {wanted}"
    cost = f", {render_seconds((wanted - power.blocks) * seconds_a_block)} more"
    return f"{100 * WANTED:g} % takes {wanted}{cost if seconds_a_block else ''}"
