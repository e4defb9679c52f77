"""Factors: against statsmodels, against known truth, and designs that cannot tell."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.multitest import multipletests

from diskproof.stats.factor_analysis import FactorAnalysis, analyse_factors
from diskproof.stats.holm import holm_adjusted
from diskproof.stats.intervals import Sample, ratio_interval
from diskproof.stats.level_effects import LevelEffect

pytestmark = pytest.mark.long

FACTORS = {"cache": ("none", "writeback", "unsafe"), "format": ("raw", "qcow2"), "bus": ("v", "i")}
Cells = list[tuple[dict[str, str], Sample]]


def full_factorial(factors: Mapping[str, Sequence[str]] = FACTORS) -> list[dict[str, str]]:
    combined = itertools.product(*factors.values())
    return [dict(zip(factors, levels, strict=True)) for levels in combined]


def truth(levels: Mapping[str, str]) -> float:
    """Log speed: main effects and one interaction."""
    effects = {"writeback": math.log(1.5), "unsafe": math.log(2.5), "qcow2": -0.1, "i": -0.7}
    joint = 0.2 if levels.get("cache") == "unsafe" and levels.get("bus") == "i" else 0.0
    return sum(effects.get(level, 0.0) for level in levels.values()) + joint


def simulate(
    cells: Sequence[dict[str, str]], runs: Sequence[int], seed: int, *, blocks: float | None = None
) -> Cells:
    """Noise of 5 %; ``blocks`` is the spread of what all cells of a block share."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0, blocks or 0, max(runs))
    found = []
    for levels, n in zip(cells, itertools.cycle(runs), strict=False):
        logs = [truth(levels) + shared[block] + rng.normal(0, 0.05) for block in range(n)]
        numbers = tuple(range(n)) if blocks is not None else ()
        found.append((levels, Sample(tuple(float(np.exp(x)) for x in logs), numbers)))
    return found


def require(cells: Cells, factors: Mapping[str, tuple[str, ...]] = FACTORS) -> FactorAnalysis:
    found = analyse_factors(cells, factors)
    assert found is not None
    return found


def effect(analysis: FactorAnalysis, level: str) -> LevelEffect:
    return next(each for each in analysis.effects if each.level == level)


def frame(cells: Cells) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {**levels, "y": math.log(value), "block": str(place)}
            for levels, sample in cells
            for place, value in enumerate(sample.values)
        ]
    )


PAIRS = "C(cache,Sum)*C(format,Sum) + C(cache,Sum)*C(bus,Sum) + C(format,Sum)*C(bus,Sum)"


@pytest.mark.parametrize("blocked", [True, False])
def test_shares_are_those_of_the_anova_table(blocked: bool) -> None:
    """Complete blocks, or unequal n without blocks: Type II sums of squares."""
    runs = (4,) if blocked else (2, 5, 3)
    cells = simulate(full_factorial(), runs, 5, blocks=0.1 if blocked else None)
    table = anova_lm(
        smf.ols(f"y ~ {PAIRS}" + (" + block" if blocked else ""), frame(cells)).fit(), typ=2
    )
    logs = frame(cells)["y"]
    total = float(((logs - logs.mean()) ** 2).sum())
    analysis = require(cells)
    _agree(analysis, table, total)
    if blocked:
        assert analysis.block_share == pytest.approx(table.loc["block", "sum_sq"] / total)


def _agree(analysis: FactorAnalysis, table: pd.DataFrame, total: float) -> None:
    """Every term's share and degrees of freedom are those of statsmodels' table."""
    names = {tuple(sorted(p.split(",")[0][2:] for p in n.split(":"))): n for n in table.index[:-1]}
    for each in analysis.terms:
        expected = table.loc[names[tuple(sorted(each.term))]]
        assert each.share == pytest.approx(expected["sum_sq"] / total, rel=1e-6, abs=1e-9)
        assert each.freedom == expected["df"]


@pytest.mark.filterwarnings("ignore:The design matrix is rank-deficient")
@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([9, 10, 11, 12]), st.booleans())
def test_shares_of_incomplete_designs_are_those_of_the_anova_table(
    seed: int, measured: int, repeated: bool
) -> None:
    """Cells left out at random, as long as all terms can still be told apart."""
    everything = full_factorial()
    places = np.random.default_rng(seed).permutation(len(everything))[:measured]
    cells = simulate([everything[place] for place in places], (3,) if repeated else (2, 4), seed)
    model = smf.ols(f"y ~ {PAIRS}", frame(cells)).fit()
    assume(np.linalg.matrix_rank(model.model.exog) == model.model.exog.shape[1])
    logs = frame(cells)["y"]
    _agree(require(cells), anova_lm(model, typ=2), float(((logs - logs.mean()) ** 2).sum()))


@pytest.mark.parametrize("measured", [19, 29, 38])
def test_an_interaction_is_not_taken_for_the_factors_beside_it(measured: int) -> None:
    """Two factors without any effect, beside two that interact, in 40, 60 and 80 % of 48 cells.

    They were claimed in 69 to 82 % of studies while main effects were taken beyond the other main
    effects only."""
    factors = {"a": tuple("0123"), "b": tuple("012"), "c": tuple("01"), "d": tuple("01")}
    everything, studies, claimed, found = full_factorial(factors), 100, 0, 0
    for seed in range(studies):
        rng = np.random.default_rng(seed)
        joint = rng.normal(0, 0.3, (4, 3))
        cells: Cells = []
        for place in rng.permutation(len(everything))[:measured]:
            levels = everything[place]
            centre = joint[int(levels["a"]), int(levels["b"])]
            values = np.exp(centre + rng.normal(0, 0.05, 3))
            cells.append((levels, Sample(tuple(map(float, values)), (0, 1, 2))))
        analysis = require(cells, factors)
        proved = [t.term for t in analysis.terms if t.p_value is not None and t.p_value <= 0.05]
        claimed += any({"c", "d"} & set(term) for term in proved)
        found += ("a", "b") in proved
    assert claimed <= 11, f"{claimed} of {studies}"  # 5 expected; more than 11 in 1 of 200 tries
    assert found >= 75


def test_effect_is_the_marginal_one_of_a_linear_model() -> None:
    cells = simulate(full_factorial(), (4,), 6, blocks=0.1)
    model = smf.ols("y ~ cache*format*bus + block", frame(cells)).fit()
    grid = pd.DataFrame(full_factorial()).assign(block="0")
    predicted = grid.assign(y=model.predict(grid)).groupby("cache")["y"].mean()
    found = effect(require(cells), "writeback")
    assert found.method == "matched" and found.pairs == 4
    assert math.log(found.ratio) == pytest.approx(predicted["writeback"] - predicted["none"])
    assert found.low is not None and found.low < found.ratio


def test_two_cells_are_the_paired_test() -> None:
    cells = simulate([{"cache": "none"}, {"cache": "unsafe"}], (5,), 3, blocks=0.2)
    found = effect(require(cells), "unsafe")
    paired = ratio_interval(cells[1][1], cells[0][1])
    assert paired.method == "paired"
    expected = (paired.ratio, paired.low, paired.high, paired.p_value)
    assert (found.ratio, found.low, found.high, found.p_corrected) == pytest.approx(expected)


def test_shares_add_up_and_the_largest_is_named_first() -> None:
    analysis = require(simulate(full_factorial(), (3, 4), 8, blocks=0.05))
    total = sum(each.share for each in analysis.terms) + analysis.shared_share
    total += analysis.higher_share + analysis.block_share + analysis.noise_share
    assert total == pytest.approx(1)
    assert analysis.terms[0].term in (("cache",), ("bus",))
    joint = next(each for each in analysis.terms if set(each.term) == {"cache", "bus"})
    assert joint.p_value is not None and joint.p_value < 1e-3
    assert analysis.aliases == ()
    assert analysis.run_cv == pytest.approx(0.05, rel=0.3)


def test_single_runs_use_higher_interactions_as_noise() -> None:
    analysis = require(simulate(full_factorial(), (1,), 9))
    assert analysis.noise == "interactions" and analysis.run_cv is None
    found = effect(analysis, "unsafe")
    assert found.low is not None and found.high is not None
    two = require(simulate([{"cache": "none"}, {"cache": "unsafe"}], (1,), 9))
    assert two.noise == "none" and effect(two, "unsafe").low is None
    assert two.terms[0].p_value is None


def test_what_a_half_fraction_cannot_separate_is_named() -> None:
    two = dict.fromkeys(("A", "B", "C"), ("a", "b"))
    half = [cell for cell in full_factorial(two) if list(cell.values()).count("b") % 2]
    analysis = require(simulate(half, (3,), 2), two)
    found = {alias.term: alias for alias in analysis.aliases}
    assert found["A",].partners == (("B", "C"),)
    assert found["C",].partners == (("A", "B"),)
    assert found["A", "B"].missing == 1 and found["A", "B"].partners == ()


def test_factors_that_vary_together_are_inseparable() -> None:
    cells = [{"cache": c, "format": f} for c, f in (("none", "raw"), ("unsafe", "qcow2"))]
    analysis = require(simulate(cells, (4,), 2))
    assert {each.method for each in analysis.effects} == {"inseparable"}
    assert all(each.share == pytest.approx(0, abs=1e-9) for each in analysis.terms)
    assert analysis.shared_share > 0.9
    named = {alias.term: alias.partners for alias in analysis.aliases}
    assert named["cache",] == (("format",),) and named["format",] == (("cache",),)


def test_a_factor_that_some_cells_lack() -> None:
    """A bare-metal baseline has no cache mode; a mode means nothing to raw."""
    cells = [{"frontend": "host"}]
    cells += [{"frontend": "daemon", **levels} for levels in full_factorial()]
    analysis = require(simulate(cells, (3,), 4), {"frontend": ("host", "daemon"), **FACTORS})
    daemon = effect(analysis, "daemon")
    mean = sum(truth(levels) for levels in cells[1:]) / 12
    assert daemon.ratio == pytest.approx(math.exp(mean), rel=0.1)
    assert effect(analysis, "writeback").ratio == pytest.approx(1.5, rel=0.08)
    assert analysis.aliases == ()  # what cannot meet is no gap


def test_what_has_no_logarithm_is_left_out_and_counted() -> None:
    cells = [*simulate(full_factorial(), (3,), 4)]
    cells[0] = (cells[0][0], Sample((0.0, 1.0, 2.0)))
    assert require(cells).left_out == 1
    assert analyse_factors(cells[:1], FACTORS) is None
    assert analyse_factors([], FACTORS) is None
    assert analyse_factors([({"cache": "none"}, Sample((1.0,)))] * 2, FACTORS) is None


def test_a_host_gone_mad_overflows_nothing() -> None:
    wild = [(levels, Sample((1e-300, 1e300, 1.0))) for levels in full_factorial()]
    analysis = require(wild)
    assert analysis.run_cv is not None and math.isfinite(analysis.run_cv)
    assert all(each.p_corrected == pytest.approx(1) for each in analysis.effects)
    assert all((each.high or 0) > 1e200 for each in analysis.effects)


def test_equal_values_are_not_infinite_proof() -> None:
    same = [(levels, Sample((5.0, 5.0, 5.0), (0, 1, 2))) for levels in full_factorial()]
    analysis = require(same)
    assert all(
        each.low is not None and each.low < 1 < (each.high or 0) for each in analysis.effects
    )
    assert all(each.p_value == pytest.approx(1) for each in analysis.terms)


@pytest.mark.parametrize(("kept", "wild"), [(24, False), (24, True), (13, False)])
def test_intervals_hold_the_truth(kept: int, wild: bool) -> None:
    """400 studies of 3 runs; also where one level scatters six times as much as the others, and
    where half of the combinations are missing."""
    cells = full_factorial({**FACTORS, "aio": ("threads", "native")})
    factors = {**FACTORS, "aio": ("threads", "native")}
    rng = np.random.default_rng(77)
    hits = tries = 0
    for _ in range(400):
        chosen = [cells[i] for i in sorted(rng.permutation(24)[:kept])]
        found: Cells = []
        shared = rng.normal(0, 0.05, 3)
        for levels in chosen:
            sd = 0.18 if wild and levels["cache"] == "unsafe" else 0.03
            main = math.log(1.5) * (levels["cache"] == "writeback")
            values = tuple(float(math.exp(main + s + rng.normal(0, sd))) for s in shared)
            found.append((levels, Sample(values, (0, 1, 2))))
        for each in require(found, factors).effects:
            if each.low is not None and each.high is not None:
                expected = 1.5 if each.level == "writeback" else 1.0
                tries += 1
                hits += each.low <= expected <= each.high
    assert tries > 1900
    assert 0.93 <= hits / tries <= 0.985


@pytest.mark.parametrize("runs", [(3,), (2, 5), (1,)])
def test_equal_levels_are_not_told_apart(runs: tuple[int, ...]) -> None:
    """A/A: a study claims any effect, or any share, in at most 5 % of cases each."""
    rng = np.random.default_rng(41)
    tries, effects, terms = 300, 0, 0
    for _ in range(tries):
        cells = [
            (levels, Sample(tuple(float(x) for x in np.exp(rng.normal(0, 0.05, n)))))
            for levels, n in zip(full_factorial(), itertools.cycle(runs), strict=False)
        ]
        found = require(cells)
        effects += any(p <= 0.05 for p in [e.p_corrected for e in found.effects] if p is not None)
        terms += any(p <= 0.05 for p in [t.p_value for t in found.terms] if p is not None)
    assert max(effects, terms) <= 0.05 * tries + 3 * math.sqrt(tries * 0.05 * 0.95)


def test_a_twelfth_of_the_cells_proves_the_three_largest_factors() -> None:
    """24 random cells of 288, three runs each. The factor without an effect stays unproved."""
    factors = {
        "cache": ("none", "writeback", "writethrough", "unsafe"),
        "format": ("raw", "qcow2", "qed"),
        "bus": ("virtio-blk", "ide", "ahci"),
        "aio": ("threads", "native"),
        "prealloc": ("off", "full"),
        "iothread": ("off", "on"),
    }
    effects = {"writeback": 0.5, "writethrough": -0.8, "unsafe": 0.9, "ide": -0.9, "ahci": -0.5}
    effects |= {"qcow2": -0.25, "qed": -0.4, "native": 0.08, "full": 0.05}
    cells = full_factorial(factors)
    rng = np.random.default_rng(19)
    proved = dict.fromkeys(factors, 0)
    for _ in range(60):
        chosen: Cells = []
        for place in rng.permutation(len(cells))[:24]:
            log = sum(effects.get(level, 0.0) for level in cells[place].values())
            runs = tuple(float(x) for x in np.exp(log + rng.normal(0, 0.05, 3)))
            chosen.append((cells[place], Sample(runs)))
        for each in require(chosen, factors).terms:
            if len(each.term) == 1 and each.p_value is not None:
                proved[each.term[0]] += each.p_value <= 0.05
    assert min(proved[name] for name in ("cache", "bus", "format")) >= 48
    assert proved["iothread"] <= 8


positive = st.floats(min_value=0.5, max_value=2.0)


@settings(max_examples=30)
@given(st.lists(positive, min_size=24, max_size=24), st.floats(1e-3, 1e3), st.randoms())
def test_units_order_and_direction_change_nothing(
    values: list[float], unit: float, random: object
) -> None:
    cells = [
        (levels, Sample(tuple(values[2 * i : 2 * i + 2])))
        for i, levels in enumerate(full_factorial())
    ]
    scaled = [(levels, Sample(tuple(unit * v for v in s.values))) for levels, s in cells][::-1]
    inverse = [(levels, Sample(tuple(1 / v for v in s.values))) for levels, s in cells]
    one, other, turned = require(cells), require(scaled), require(inverse)
    for a, b, c in zip(one.effects, other.effects, turned.effects, strict=True):
        assert (a.factor, a.level) == (b.factor, b.level)
        assert (a.ratio, a.low, a.high) == pytest.approx((b.ratio, b.low, b.high))
        assert a.low is not None and a.high is not None
        assert (a.ratio, a.low, a.high) == pytest.approx((1 / c.ratio, 1 / c.high, 1 / c.low))
    shares = {each.term: each.share for each in other.terms}
    assert all(each.share == pytest.approx(shares[each.term], abs=1e-6) for each in one.terms)


@settings(max_examples=25)
@given(st.lists(st.floats(0, 1), max_size=20))
def test_adjusted_p_values_are_holms(p_values: list[float]) -> None:
    expected = multipletests(p_values, 0.05, "holm")[1].tolist() if p_values else []
    assert holm_adjusted(p_values) == pytest.approx(expected)
