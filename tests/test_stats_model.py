"""The additive model against statsmodels, and against what must hold for any data."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import polygamma
from scipy.stats import t

from diskproof.stats.comparisons import compare_all
from diskproof.stats.intervals import RESOLUTION, Sample
from diskproof.stats.model import fit_cells, inverse_trigamma
from diskproof.stats.scatter import draw_variances, scales


def study(cells: int, blocks: int, seed: int, missing: int = 0) -> list[Sample]:
    """Cells of equal scatter with effects of cells and blocks; some runs failed."""
    rng = np.random.default_rng(seed)
    logs = (
        rng.normal(size=(cells, 1)) + rng.normal(size=blocks) + rng.normal(0, 0.1, (cells, blocks))
    )
    present = np.ones((cells, blocks), dtype=bool)
    present.flat[rng.choice(present.size, missing, replace=False)] = False
    return [
        Sample(tuple(np.exp(row[there])), tuple(np.flatnonzero(there).tolist()))
        for row, there in zip(logs, present, strict=True)
    ]


def peer(samples: list[Sample], weights: np.ndarray) -> object:
    rows = [
        {"y": np.log(value), "cell": cell, "block": block, "w": weights[cell]}
        for cell, sample in enumerate(samples)
        for value, block in zip(sample.values, sample.blocks, strict=True)
    ]
    frame = pd.DataFrame(rows)
    return smf.wls("y ~ 0 + C(cell) + C(block)", frame, weights=frame["w"]).fit()


@pytest.mark.parametrize("missing", [0, 5])
def test_weighted_least_squares_is_statsmodels(missing: int) -> None:
    samples = study(9, 5, 3, missing)
    fit = fit_cells(samples)
    found = peer(samples, 1 / np.maximum(fit.variances, np.median(fit.variances)))
    for i in range(1, 9):
        contrast = np.zeros(len(found.params))
        contrast[0], contrast[i] = -1, 1
        assert fit.centres[i] - fit.centres[0] == pytest.approx(contrast @ found.params, abs=3e-3)
        drawn = np.quantile(np.abs(fit.draws[:, i] - fit.draws[:, 0]), 0.683)
        assert drawn == pytest.approx((contrast @ found.cov_params() @ contrast) ** 0.5, rel=0.4)


def test_two_cells_are_a_paired_t_test() -> None:
    samples = study(2, 6, 1)
    compared = compare_all(samples)
    logs = np.log(np.array(samples[0].values) / np.array(samples[1].values))
    half = t.ppf(0.975, 5) * logs.std(ddof=1) / 6**0.5
    assert compared.half_widths[0, 1] == pytest.approx(half, rel=0.07)


def test_no_cell_loses_its_freedom_where_three_share_three_blocks() -> None:
    """One cell that hardly scatters would else be what the blocks are taken from."""
    rng = np.random.default_rng(5)
    for _ in range(40):
        logs = rng.normal(0, [[0.3], [0.03], [0.0001]], (3, 3)) + rng.normal(size=3)
        samples = [Sample(tuple(np.exp(row)), (0, 1, 2)) for row in logs]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compared = compare_all(samples)
        assert np.isfinite(compared.half_widths[np.triu_indices(3, 1)]).all()
        assert compared.half_widths[0, 1] < 15


def test_blocks_go_out_of_a_cell_that_lacks_one() -> None:
    """A cell that ran in good blocks only does not profit from it."""
    rng = np.random.default_rng(4)
    effects = np.array([0.0, 0.0, 0.0, -2.0])
    logs = effects + rng.normal(0, 0.01, (6, 4))
    samples = [Sample(tuple(np.exp(row)), (0, 1, 2, 3)) for row in logs]
    samples[0] = Sample(samples[0].values[:3], (0, 1, 2))
    assert fit_cells(samples).centres == pytest.approx([-0.5] * 6, abs=0.05)


def test_cells_without_a_common_block_are_not_compared() -> None:
    samples = [Sample((1, 2), (0, 1)), Sample((1, 2), (0, 1)), Sample((5, 6), (2, 3))]
    errors = fit_cells(samples).errors
    assert np.isfinite(errors[0, 1]) and np.isinf(errors[0, 2]) and np.isinf(errors[1, 2])


def test_what_has_no_logarithm_or_one_run_is_left_out() -> None:
    fit = fit_cells([Sample((1, 2, 3)), Sample((0, 1, 2)), Sample((4,)), Sample((2, 2, 2))])
    assert np.isfinite(fit.variances).tolist() == [True, False, False, True]
    assert np.isinf(fit.errors[0, 1]) and np.isinf(fit.errors[2, 3]) and fit.errors[0, 3] > 0


def test_noisy_and_quiet_cells_keep_their_own_scatter() -> None:
    rng = np.random.default_rng(6)
    sd = np.where(np.arange(24) < 4, 0.3, 0.03)
    logs = sd[:, None] * rng.normal(size=(24, 10))
    fit = fit_cells([Sample(tuple(np.exp(row)), tuple(range(10))) for row in logs])
    assert fit.variances[:4].mean() > 20 * fit.variances[4:].mean()


def test_equal_scatter_is_pooled() -> None:
    rng = np.random.default_rng(7)
    freedom = np.full(40, 9.0)
    drawn = draw_variances(2.0 * rng.chisquare(9, 40), freedom, 2000, rng)
    assert scales(drawn, 0.02) == pytest.approx(2.0, rel=0.35)
    assert scales(drawn, 0.02).std() < 0.2


def test_a_wild_cell_stands_alone_and_the_others_stay_together() -> None:
    """Among 80, where one estimate of how alike they are would pool it away."""
    rng = np.random.default_rng(8)
    squares = rng.chisquare(2, 80)
    squares[0] = 100 * 2.0
    middle = np.median(draw_variances(squares, np.full(80, 2.0), 2000, rng), axis=0)
    assert middle[0] > 30 and middle[1:].max() < 5


def test_draws_know_what_is_normal() -> None:
    """One variance with f degrees of freedom gives Student's t."""
    rng = np.random.default_rng(9)
    drawn = draw_variances(np.array([4.0]), np.array([4.0]), 20_000, rng)[:, 0]
    errors = rng.standard_normal(20_000) * np.sqrt(drawn)
    assert np.quantile(np.abs(errors), 0.95) < 1.25 * t.ppf(0.975, 4)


def test_the_order_of_the_cells_does_not_matter() -> None:
    samples = study(6, 3, 10)
    ahead, back = compare_all(samples), compare_all(samples[::-1])
    assert ahead.half_widths == pytest.approx(back.half_widths[::-1, ::-1], rel=1e-9)


def test_identical_values_are_not_infinite_proof() -> None:
    fit = fit_cells([Sample((5, 5, 5)), Sample((7, 7, 7)), Sample((6, 6, 6))])
    assert (fit.variances >= RESOLUTION**2).all()


@given(st.floats(1e-8, 1e8))
def test_trigamma_is_inverted(value: float) -> None:
    assert float(polygamma(1, inverse_trigamma(value))) == pytest.approx(value, rel=1e-5)


@settings(deadline=None)
@given(
    st.lists(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=5), min_size=1, max_size=8),
    st.booleans(),
)
def test_any_data_gives_finite_centres(rows: list[list[float]], blocked: bool) -> None:
    samples = [Sample(tuple(row), tuple(range(len(row))) if blocked else ()) for row in rows]
    fit = fit_cells(samples)
    assert np.isfinite(fit.centres).all()
    assert (fit.errors >= 0).all() and not np.isnan(fit.errors).any()
    assert fit.errors == pytest.approx(fit.errors.T)
