"""All pairs at once: against Tukey's own test, and the compact letter display."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import tukey_hsd

from diskproof.stats.comparisons import adjusted_p, compare_all, letter_groups
from diskproof.stats.intervals import Sample


def study(cells: int, runs: int, seed: int) -> list[Sample]:
    rng = np.random.default_rng(seed)
    logs = rng.normal(0, 0.05, (cells, 1)) + rng.normal(0, 0.05, (cells, runs))
    return [Sample(tuple(np.exp(row))) for row in logs]


@pytest.mark.parametrize(("cells", "granted"), [(8, 1.0), (30, 0.55)])
def test_equal_scatter_gives_nearly_tukeys_own_test(cells: int, granted: float) -> None:
    """Within what the less trusting variance costs: on average a little wider. Many cells are
    granted less of the error."""
    samples = study(cells, 20, 1)
    compared = compare_all(samples)
    peer = tukey_hsd(*(np.log(sample.values) for sample in samples))
    low, high = peer.confidence_interval()
    upper = np.triu_indices(cells, 1)
    ratio = compared.half_widths[upper] / ((high - low) / 2)[upper]
    assert 0.97 <= ratio.mean() < 1.1
    expected = np.minimum(1, peer.pvalue[0, 1:] / granted)
    assert adjusted_p(compared, 0)[1:] == pytest.approx(expected, abs=0.3)


def test_adjusted_p_agrees_with_the_interval() -> None:
    compared = compare_all(study(10, 4, 3))
    for row in range(10):
        p_values = adjusted_p(compared, row)
        assert ((p_values < 0.05) == compared.proved[row]).all()


def test_one_cell_or_none_that_is_known() -> None:
    assert not compare_all([Sample((1, 2))]).proved.any()
    assert not compare_all([Sample((1,)), Sample((2,))]).proved.any()
    assert adjusted_p(compare_all([Sample((1,)), Sample((2,))]), 0).tolist() == [1, 1]


def test_huge_differences_have_a_p_value() -> None:
    samples = [Sample((1e-9, 1.1e-9) * 20), Sample((1e9, 1.1e9) * 20), Sample((5, 5.1) * 20)]
    assert adjusted_p(compare_all(samples), 0)[1] < 2e-3


@settings(deadline=None)
@given(st.integers(1, 9), st.data())
def test_cells_share_a_letter_exactly_if_not_told_apart(count: int, data: st.DataObject) -> None:
    differ = np.zeros((count, count), dtype=bool)
    for i, j in itertools.combinations(range(count), 2):
        differ[i, j] = differ[j, i] = data.draw(st.booleans())
    groups = letter_groups(differ)
    for i in range(count):
        assert groups[i]
        for j in range(count):
            assert bool(set(groups[i]) & set(groups[j])) == (not differ[i, j])


def test_letters_of_a_staircase_are_as_few_as_can_be() -> None:
    bridge = np.array([[i + j in (1, 2) and i != j for j in range(4)] for i in range(4)])
    assert max(max(group) for group in letter_groups(bridge)) == 1
    chain = np.array([[abs(i - j) > 1 for j in range(5)] for i in range(5)])
    assert letter_groups(chain) == [(0,), (0, 1), (1, 2), (2, 3), (3,)]


def ahead_of_equals(cells: int, ahead: float, seed: int) -> list[Sample]:
    """The first cell is ahead of the others, which are equal; CV 5 %, five blocks."""
    logs = np.random.default_rng(seed).normal(0, 0.05, (cells, 5))
    logs[0] += ahead
    return [Sample(tuple(row), tuple(range(5))) for row in np.exp(logs)]


def test_the_best_is_ahead_of_all_others_where_pairs_alone_do_not_tell() -> None:
    found = alone = 0
    for seed in range(20):
        samples = ahead_of_equals(24, 0.15, seed)
        compared = compare_all(samples, higher_is_better=True)
        found += bool(compared.proved[0, 1:].all())
        alone += bool(compare_all(samples).proved[0, 1:].all())
        assert compared.best is not None and compared.best.cell == 0
    assert alone + 5 <= found


@settings(deadline=None)
@given(st.integers(2, 6), st.floats(0, 0.3), st.integers(0, 99), st.booleans())
def test_what_is_said_of_the_best_agrees_with_itself(
    cells: int, ahead: float, seed: int, higher: bool
) -> None:
    """Claims, intervals and p-values; and lower is better of inverse values is the same."""
    samples = ahead_of_equals(cells, ahead, seed)
    compared = compare_all(samples, higher_is_better=True)
    for row in range(cells):
        assert ((adjusted_p(compared, row) <= 0.05) == compared.proved[row]).all()
    if compared.best and compared.best.p_value <= 0.05:
        best = compared.best.cell
        assert compared.proved[best].sum() == cells - 1 and compared.best.lead > 0
        low = (compared.differences - compared.half_widths)[best]
        assert (np.delete(low, best) >= compared.best.lead - 1e-9).all()
    inverse = [Sample(tuple(1 / np.array(each.values)), each.blocks) for each in samples]
    assert (compare_all(inverse, higher_is_better=False).proved == compared.proved).mean() > 0.8
    moved = compared.reordered(list(range(cells))[::-1])
    assert (moved.proved == compared.proved[::-1, ::-1]).all()
    assert not moved.best or (compared.best and moved.best.cell == cells - 1 - compared.best.cell)


@pytest.mark.long
def test_two_that_are_equally_good_have_no_winner() -> None:
    """The worst case for who is best: two of a kind, far ahead of equal ones; all claims that are
    false together."""
    rng, wrong = np.random.default_rng(13), 0
    for _ in range(60):
        logs = rng.normal(0, 0.05, (12, 3)) + np.where(np.arange(12) < 2, 1.0, 0.0)[:, None]
        samples = [Sample(tuple(row), (0, 1, 2)) for row in np.exp(logs)]
        proved = compare_all(samples, higher_is_better=True).proved
        wrong += bool(proved[0, 1] or proved[2:, 2:].any())
    assert wrong <= 8  # more is unlikely (one in a hundred) at 5 %
