"""What a study will prove: told by the ranking itself, on simulated studies."""

import math
from dataclasses import replace

import numpy as np
import pytest

from diskproof.records import Cell, WorkloadSpec
from diskproof.report.proving import KnownScatter, power_line, proving_lines
from diskproof.stats.comparisons import ALPHA
from diskproof.stats.intervals import Sample
from diskproof.stats.power import POWER, Power, Studies, find_power, scatter_of
from diskproof.stats.race_cost import expect_share
from diskproof.stats.ranking import Measured, rank
from diskproof.study.protocol import LikelyRules, RaceRules
from test_lab_race import STUDY

SPEC = WorkloadSpec("simulated", "simulated")


def share_told(scatter: tuple[float, ...], blocks: int, log_ratio: float) -> float:
    """Of pairs of cells that differ by so much, the share that a ranking tells apart."""
    studies = Studies(scatter, ALPHA)
    return sum(studies.told(blocks, log_ratio)) / (studies.count * studies.pairs)


def test_a_larger_difference_and_more_blocks_are_told_more_often() -> None:
    scatter = (0.03,) * 12
    small, large = (share_told(scatter, 5, math.log1p(each)) for each in (0.02, 0.3))
    assert small < 0.2 and large > 0.95
    assert share_told(scatter, 3, 0.08) < share_told(scatter, 20, 0.08)


def test_what_is_foretold_holds_and_all_pairs_are_paid_for() -> None:
    many = find_power((0.03,) * 16, 5)
    assert many.apart is not None and many.wanted_blocks is not None
    assert share_told((0.03,) * 16, 5, math.log1p(1.2 * many.apart)) >= POWER
    assert share_told((0.03,) * 16, 5, math.log1p(0.7 * many.apart)) < POWER
    assert share_told((0.03,) * 2, 9, 0.05) > share_told((0.03,) * 16, 9, 0.05) + 0.2


def test_a_difference_put_in_afterwards_is_told_as_often_as_one_that_was_measured() -> None:
    """Studies whose runs have the difference, through the whole ranking: 64 of 6 cells."""
    rng, told, studies = np.random.default_rng(8), 0, 64
    for _ in range(studies):
        speeds = np.exp(rng.normal([[0.1]] * 3 + [[0.0]] * 3, 0.03, (6, 4))).tolist()
        rows = [
            Measured(Cell((("cell", str(place)),), SPEC), Sample(tuple(row), (0, 1, 2, 3)))
            for place, row in enumerate(speeds)
        ]
        lines = rank(rows, True)
        fast, slow = (
            [x for x in lines if (x.cell.level("cell") < "3") == y] for y in (True, False)
        )
        told += sum(one.is_apart(other) for one in fast for other in slow)
    assert told / (9 * studies) == pytest.approx(share_told((0.03,) * 6, 4, 0.1), abs=0.15)


def test_scatter_comes_from_repeats_and_stands_in_where_there_are_none() -> None:
    assert scatter_of([]) == scatter_of([Sample((1.0,))] * 2) == ()
    repeated = [Sample((1.0, 1.1, 0.9), (0, 1, 2)), Sample((2.0, 1.9, 2.2), (0, 1, 2))]
    found = scatter_of([*repeated, Sample((3.0,), (0,))])
    assert len(found) == 3 and min(found) > 0.01 and sorted(found)[1] == found[2]


def test_words_of_what_blocks_prove_and_cost() -> None:
    power = Power(8, 3, 0.25, 13)
    told = "3 blocks tell cells apart that are 25 % apart; 5 % takes 13, 10 min 0 s more"
    assert power_line(power, 60.0) == told
    assert power_line(replace(power, blocks=13), 60.0).endswith("; 5 % takes 13")
    assert power_line(Power(8, 1, None, 13), 0.0) == "one block proves nothing; 5 % takes 13"
    untold = "2 blocks tell no two cells apart as a rule; 5 % would take more than 1000 blocks"
    assert power_line(Power(8, 2, None, None), 9.0) == untold


def test_a_race_that_costs_more_than_measuring_everything_is_told_before() -> None:
    dear, cheap = (expect_share(RaceRules(), 12, 0.03, apart) for apart in (0.0, 0.2))
    assert cheap < 0.5 < 1 < dear
    assert expect_share(LikelyRules(), 6, 0.1, 0.2) <= 1
    known = {
        "a": KnownScatter(12, (0.03,) * 12, True, 60.0),
        "one": KnownScatter(1, (), False, 1.0),
    }
    (line,) = proving_lines(STUDY, known)
    assert line.startswith("a: the race takes about ") and "more than measuring everything" in line
    assert line.endswith("by the scatter of its own runs, 3.0 %")
