"""The score of tiles: the sum, the minimum beside it, and what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import gmean
from scipy.stats import t as student

from diskproof.stats.tile_score import TileScore, score_intervals, tile_score

ALONE = {"copy": 20.0, "mail": 5.0, "web": 300.0}
speeds = st.floats(1e-6, 1e6)
names = st.text("abcd", min_size=1, max_size=3)
baselines = st.dictionaries(names, speeds, min_size=1, max_size=4)


def at_share(tiles: int, share: float) -> dict[tuple[int, str], float]:
    return {(tile, work): share * ALONE[work] for tile in range(1, tiles + 1) for work in ALONE}


@given(baselines, st.integers(1, 20))
def test_tiles_at_full_speed_score_their_number_and_nobody_loses(
    alone: dict[str, float], tiles: int
) -> None:
    full = {(tile, work): alone[work] for tile in range(1, tiles + 1) for work in alone}
    score = tile_score(full, alone, holds=True)
    assert score.sum == pytest.approx(tiles) and score.minimum == 1 and score.holds


@given(baselines, st.data())
def test_score_against_another_way_to_reckon(alone: dict[str, float], data: st.DataObject) -> None:
    tiles = data.draw(st.integers(1, 4))
    got = {(tile, work): data.draw(speeds) for tile in range(1, tiles + 1) for work in alone}
    score = tile_score(got, alone, holds=False)
    shares = [[got[tile, work] / alone[work] for work in alone] for tile in range(1, tiles + 1)]
    assert score.per_tile == pytest.approx(
        {tile: gmean(each) for tile, each in enumerate(shares, 1)}
    )
    assert score.sum == pytest.approx(sum(gmean(each) for each in shares))
    assert score.minimum == min(map(min, shares)) and not score.holds
    tile, work = score.slowest
    assert got[tile, work] / alone[work] == score.minimum
    # The worst off never fares better than the average tile.
    assert score.minimum * tiles <= score.sum * (1 + 1e-9)


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1.0))
def test_units_cancel_and_a_share_is_a_share(unit: float, share: float) -> None:
    got = {key: value * unit for key, value in at_share(3, share).items()}
    score = tile_score(got, {work: each * unit for work, each in ALONE.items()}, holds=True)
    assert score.sum == pytest.approx(3 * share) and score.minimum == pytest.approx(share)


def test_one_starved_guest_shows_in_the_minimum() -> None:
    got = at_share(4, 1.0)
    got[3, "mail"] = 0.05 * ALONE["mail"]
    score = tile_score(got, ALONE, holds=True)
    assert score.minimum == pytest.approx(0.05) and score.slowest == (3, "mail")
    assert score.sum == pytest.approx(3 + 0.05 ** (1 / 3))


def test_a_workload_that_did_nothing_takes_its_tile_with_it() -> None:
    score = tile_score(at_share(2, 1.0) | {(2, "web"): 0.0}, ALONE, holds=False)
    assert score.per_tile == {1: pytest.approx(1.0), 2: 0.0} and score.minimum == 0


@pytest.mark.parametrize(
    ("changed", "alone", "why"),
    [
        ({(1, "web"): math.nan}, ALONE, "a number"),
        ({(1, "web"): -1.0}, ALONE, "0 or more"),
        ({(1, "web"): math.inf}, ALONE, "a number"),
        ({(2, "web"): 1.0}, ALONE, "(2, 'copy'), (2, 'mail')"),
        ({(1, "dns"): 1.0}, ALONE, "(1, 'dns')"),
        ({}, ALONE | {"dns": 1.0}, "(1, 'dns')"),
        ({}, ALONE | {"web": 0.0}, "above 0"),
    ],
)
def test_nothing_is_guessed(
    changed: dict[tuple[int, str], float], alone: dict[str, float], why: str
) -> None:
    with pytest.raises(ValueError) as refused:
        tile_score(at_share(1, 1.0) | changed, alone, holds=True)
    assert why in str(refused.value)


def test_no_throughput_is_no_score() -> None:
    with pytest.raises(ValueError, match="there is none"):
        tile_score({}, {}, holds=True)


def run_at(share: float, *, holds: bool = True) -> TileScore:
    return tile_score(at_share(2, share), ALONE, holds=holds)


def test_runs_are_averaged_with_students_t() -> None:
    found = score_intervals([run_at(0.8), run_at(0.9), run_at(1.0)])
    half = student.ppf(0.975, 2) * 0.1 / math.sqrt(3)
    assert found.minimum.mean == pytest.approx(0.9) and found.sum.mean == pytest.approx(1.8)
    assert found.minimum.half_width == pytest.approx(half)
    assert found.sum.half_width == pytest.approx(2 * half) and found.holds


def test_one_run_has_no_interval_and_one_that_missed_its_level_spoils_all() -> None:
    assert score_intervals([run_at(0.9)]).sum.half_width is None
    assert not score_intervals([run_at(0.9), run_at(0.4, holds=False)]).holds


def test_runs_of_different_numbers_are_not_averaged() -> None:
    with pytest.raises(ValueError, match="same number of tiles"):
        score_intervals([run_at(1.0), tile_score(at_share(3, 1.0), ALONE, holds=True)])
    with pytest.raises(ValueError, match="same number of tiles"):
        score_intervals([])
