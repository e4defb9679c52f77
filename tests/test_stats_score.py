"""Scores over workloads: the order, what the weights do to it, what is missing; Pareto fronts."""

import itertools
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.stats.intervals import Sample
from diskproof.stats.pareto import pareto_front, proved_off
from diskproof.stats.score import Levels, ScoredLoad, holds_within, score, winning_shares
from diskproof.stats.weighted_speed import Pair, weigh_speeds


def levels(name: str) -> Levels:
    return (("cache", name),)


def load(
    name: str, speeds: dict[str, float], weight: float = 1, *, higher: bool = True, seed: int = 1
) -> ScoredLoad:
    rng = random.Random(f"{name}{seed}")
    samples = {
        levels(cell): Sample(
            tuple(speed * math.exp(rng.gauss(0, 0.01)) for _ in range(5)), tuple(range(5))
        )
        for cell, speed in speeds.items()
    }
    return ScoredLoad(name, higher, samples, weight)


def test_score_is_the_weighted_geometric_mean() -> None:
    reads = load("r", {"a": 100, "b": 200}, 3)
    writes = load("w", {"a": 100, "b": 10}, 1)
    found = score([reads, writes])
    assert found.weights == {"r": 0.75, "w": 0.25}
    best, other = found.lines
    assert best.levels == levels("a") and best.label == "1" and other.label == "2"
    expected = 2**0.75 * 10**-0.25
    assert other.ratio.ratio == pytest.approx(expected, rel=0.03)
    assert other.ratio.low is not None and other.ratio.high is not None
    assert other.ratio.low < expected < other.ratio.high < 1
    assert other.speeds == {"r": pytest.approx(2, rel=0.05), "w": pytest.approx(0.1, rel=0.05)}


def test_lower_is_better_is_turned_round() -> None:
    seconds = load("boot", {"a": 10, "b": 20}, higher=False)
    found = score([seconds, load("r", {"a": 100, "b": 100})])
    assert found.lines[0].levels == levels("a")
    assert found.lines[1].speeds["boot"] == pytest.approx(0.5, rel=0.05)


def test_equal_scores_are_ties() -> None:
    found = score([load("r", {"a": 100, "b": 100, "c": 50}), load("w", {"a": 9, "b": 9, "c": 9})])
    assert [line.label for line in found.lines] == ["1=", "1=", "3"]


def test_missing_workloads_are_named_and_nothing_is_guessed() -> None:
    found = score([load("r", {"a": 1, "b": 2}), load("w", {"a": 1, "c": 0.5})])
    assert [line.levels for line in found.lines] == [levels("a")]
    assert found.missing == {levels("b"): ("w",), levels("c"): ("r",)}
    assert found.holds_within is None
    none = score([load("r", {"a": 1}), load("w", {"b": 1})])
    assert none.lines == () and set(none.missing) == {levels("a"), levels("b")}


def test_a_workload_without_weight_is_not_asked_for() -> None:
    found = score([load("r", {"a": 1, "b": 2}), load("w", {"a": 1}, 0)])
    assert len(found.lines) == 2 and found.weights == {"r": 1.0}
    with pytest.raises(ValueError, match="positive weight"):
        score([load("r", {"a": 1}, 0)])


def test_single_runs_have_a_score_without_a_place() -> None:
    single = ScoredLoad("r", True, {levels("a"): Sample((5.0,)), levels("b"): Sample((4.0,))}, 1)
    assert [line.label for line in score([single]).lines] == ["?", "?"]


@given(
    st.lists(st.lists(st.floats(-2, 2), min_size=3, max_size=3), min_size=2, max_size=6),
    st.lists(st.floats(0.1, 1), min_size=3, max_size=3),
)
def test_the_winner_holds_within_what_is_said(rows: list[list[float]], given: list[float]) -> None:
    shares = np.array(given) / sum(given)
    speeds = np.array(sorted(rows, key=lambda row: -float(np.array(row) @ shares)))
    bound = holds_within(speeds, shares)
    assert bound is not None and 0 <= bound <= 1
    for signs in itertools.product((-1, 1), repeat=3):
        moved = shares * (1 + 0.999 * bound * np.array(signs))
        assert (speeds[0] - speeds) @ moved == pytest.approx(
            np.maximum((speeds[0] - speeds) @ moved, 0), abs=1e-9
        )


def test_shares_of_weights_that_a_cell_wins() -> None:
    """Two workloads, mirrored speeds: each wins half of the weights; the third none."""
    wins = winning_shares(np.array([[1.0, 0.0], [0.0, 1.0], [0.3, 0.3]]))
    assert wins == pytest.approx([0.5, 0.5, 0.0], abs=0.03)


def test_front() -> None:
    points = np.array([[3, 1], [2, 2], [1, 3], [1, 1], [2, 2], [np.nan, 9]], dtype=float)
    assert pareto_front(points) == [True, True, True, False, True, False]


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), min_size=1, max_size=12))
def test_front_is_who_nobody_beats(points: list[tuple[int, int, int]]) -> None:
    def beats(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        return all(x >= y for x, y in zip(a, b, strict=True)) and a != b

    expected = [not any(beats(other, point) for other in points) for point in points]
    assert pareto_front(np.array(points, dtype=float)) == expected


def test_off_the_front_only_by_proof_in_every_aim() -> None:
    reads = np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=bool)
    writes = np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    assert proved_off([reads, writes]) == [False, True, False]


def test_weighted_speeds_of_the_article() -> None:
    host, raw, thin = levels("host"), levels("raw"), levels("thin")
    read = Pair({host: 500, raw: 400, thin: 400}, {host: 25, raw: 20, thin: 10})
    write = Pair({host: 300, raw: 250}, {host: 60, raw: 30})
    found = weigh_speeds(read, write, host)
    assert (found.read_factor, found.write_factor) == (20, 5)
    by_levels = {line.levels: line for line in found.lines}
    assert (by_levels[host].read, by_levels[host].write) == (500, 300)
    assert (by_levels[raw].read, by_levels[raw].write) == (400, 200)
    assert by_levels[raw].total == 300 and by_levels[thin].total is None
    assert [line.levels for line in found.lines] == [host, raw, thin]
    assert [line.levels for line in found.top("read", 2)] == [host, raw]
    assert [line.levels for line in found.top("write")] == [host, raw]


def test_without_a_baseline_there_is_no_factor() -> None:
    found = weigh_speeds(Pair({levels("a"): 1}, {levels("a"): 1}), Pair({}, {}), levels("host"))
    assert found.read_factor is None and found.lines[0].read is None
