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


def test_equal_scatter_gives_nearly_tukeys_own_test() -> None:
    """Within what the less trusting variance costs: on average a little wider."""
    samples = study(30, 20, 1)
    compared = compare_all(samples)
    peer = tukey_hsd(*(np.log(sample.values) for sample in samples))
    low, high = peer.confidence_interval()
    upper = np.triu_indices(30, 1)
    ratio = compared.half_widths[upper] / ((high - low) / 2)[upper]
    assert 0.97 <= ratio.mean() < 1.1
    assert adjusted_p(compared, 0)[1:] == pytest.approx(peer.pvalue[0, 1:], abs=0.3)


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
