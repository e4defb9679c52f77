"""How much each factor matters: shares of variance, and each level against a base level.

Everything is on the log scale, from the means of the blocked model in ``cell_means``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.cell_means import CellMeans, fit_cell_means
from diskproof.stats.design import Alias, Design, Levels, Term, beyond, find_aliases, orthonormal
from diskproof.stats.holm import holm_adjusted
from diskproof.stats.intervals import RESOLUTION, Sample
from diskproof.stats.level_effects import LevelEffect, level_effects

Vector = NDArray[np.float64]

_ROUNDING = 1e-18
"""A sum of squares of logarithms that is nothing but rounding."""


@dataclass(frozen=True)
class TermShare:
    """What a main effect or an interaction explains on its own of all variance of the logs.

    ``freedom`` are its comparisons that the measured cells show; ``p_value`` of the F test
    against the noise, corrected for all terms by Holm's method, None where there is no noise known.
    ``at_most`` is what it would explain if all that it shares with its peers were its own.
    """

    term: Term
    share: float
    at_most: float
    freedom: int
    p_value: float | None


@dataclass(frozen=True)
class FactorAnalysis:
    """The factors of one workload. Shares are of the sum of squares of all runs' logarithms.

    ``shared_share`` belongs to factors or interactions that the measured cells do not separate
    (it can be a little negative: such effects may hide each other); ``higher_share`` is what lies
    between cells beyond two-way interactions. All shares add up to 1, or are 0 where all values
    are equal. ``noise`` says what intervals rest on.
    """

    factors: Mapping[str, tuple[str, ...]]
    cells: int
    runs: int
    left_out: int
    terms: tuple[TermShare, ...]
    shared_share: float
    higher_share: float
    block_share: float
    noise_share: float
    noise: Literal["repeats", "interactions", "none"]
    run_cv: float | None
    effects: tuple[LevelEffect, ...]
    aliases: tuple[Alias, ...]


def analyse_factors(
    cells: Sequence[tuple[Levels, Sample]], factors: Mapping[str, tuple[str, ...]]
) -> FactorAnalysis | None:
    """Analyse one metric of one workload on one host.

    ``factors`` names the levels in order, the base level first; a cell need not have every factor.
    Cells with a value that is not positive are left out. None when fewer than two cells or no
    factor with two levels is left.
    """
    usable = [(levels, s) for levels, s in cells if s.values and min(s.values) > 0]
    present = {
        name: tuple(x for x in levels if any(cell.get(name) == x for cell, _ in usable))
        for name, levels in factors.items()
    }
    present = {name: levels for name, levels in present.items() if len(levels) > 1}
    if len(usable) < 2 or not present:
        return None
    fitted = fit_cell_means([sample for _, sample in usable])
    design = Design(tuple(levels for levels, _ in usable), present, np.array(fitted.counts))
    split = _split(design, fitted)
    noise = _noise(split, fitted)
    total = split.total if split.total > _ROUNDING else 1.0
    return FactorAnalysis(
        present,
        len(usable),
        len(fitted.residuals),
        len(cells) - len(usable),
        _shares(split, noise, total),
        (split.modelled - sum(square for square, _ in split.terms.values())) / total,
        split.higher / total,
        split.blocks / total,
        split.noise / total,
        "repeats" if fitted.freedom else "interactions" if noise else "none",
        fitted.run_cv if fitted.freedom else None,
        level_effects(design, fitted, None if fitted.freedom else noise),
        find_aliases(design),
    )


@dataclass(frozen=True)
class _Split:
    """Sums of squares; ``terms`` are (sum of squares, degrees of freedom), ``alone`` without
    regard to the term's peers."""

    terms: Mapping[Term, tuple[float, int]]
    alone: Mapping[Term, float]
    modelled: float
    higher: float
    higher_freedom: int
    blocks: float
    noise: float

    @property
    def total(self) -> float:
        return self.modelled + self.higher + self.blocks + self.noise


def _split(design: Design, fitted: CellMeans) -> _Split:
    """Type II sums of squares: a term beyond every other term that does not hold it (Langsrud
    2003). A main effect is so beyond the interactions of other factors, too: where cells are left
    out, what those do would else be taken for its own."""
    away = fitted.means - (design.weights @ fitted.means) / design.weights.sum()
    centred = design.project(away)
    mean = orthonormal(design.weighted())
    main_basis = orthonormal(design.weighted(*design.mains))
    terms, alone = {}, {}
    everything = (*design.mains, *design.pairs)
    for term in everything:
        columns = design.weighted(term)[:, 1:]
        peers = [other for other in everything if not set(term) <= set(other)]
        rest = orthonormal(design.weighted(*peers))
        own = beyond(columns, rest)
        terms[term] = (_square(own, centred), own.shape[1])
        alone[term] = _square(beyond(columns, mean if len(term) == 1 else main_basis), centred)
    whole = orthonormal(design.weighted(*everything))
    modelled = _square(whole, centred)
    blocks = float((fitted.block_effects**2 * fitted.block_sizes).sum())
    return _Split(
        terms,
        alone,
        modelled,
        max(0.0, float(design.weights @ away**2) - modelled),
        len(design.cells) - whole.shape[1],
        blocks,
        float((fitted.residuals**2).sum()),
    )


def _square(basis: Vector, values: Vector) -> float:
    return float(((basis.T @ values) ** 2).sum())


def _noise(split: _Split, fitted: CellMeans) -> tuple[float, int] | None:
    """Variance of a run and its degrees of freedom: from repeats, else from what lies between
    cells beyond two-way interactions, taken for noise."""
    if fitted.freedom:
        return max(fitted.variance, RESOLUTION**2), fitted.freedom
    if split.higher_freedom:
        variance = split.higher / split.higher_freedom
        return max(variance, RESOLUTION**2), split.higher_freedom
    return None


def _shares(split: _Split, noise: tuple[float, int] | None, total: float) -> tuple[TermShare, ...]:
    from scipy.special import fdtrc

    tested = [term for term, (_, freedom) in split.terms.items() if noise and freedom]
    raw = {}
    for term in tested:
        square, freedom = split.terms[term]
        assert noise is not None
        raw[term] = float(fdtrc(freedom, noise[1], square / freedom / noise[0]))
    corrected = dict(zip(tested, holm_adjusted([raw[term] for term in tested]), strict=True))
    found = [
        TermShare(term, square / total, split.alone[term] / total, freedom, corrected.get(term))
        for term, (square, freedom) in split.terms.items()
    ]
    return tuple(sorted(found, key=lambda each: (-each.share, len(each.term), each.term)))
