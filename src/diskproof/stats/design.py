"""The columns of a factorial design, and which effects the measured cells cannot separate.

Factors are coded as deviations from their mean (Wu & Hamada 2009, chapter 3): a main effect is then
one over the average of all other levels. A cell that lacks a factor (a bare-metal baseline
has no cache mode) stands at its average: 0 in each of its columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

Levels = Mapping[str, str]
Term = tuple[str, ...]
"""A main effect (one factor) or a two-way interaction (two)."""

SAME = 1 - 1e-7
"""Cosine of the angle from which two effects are one and the same in the measured cells."""
_TINY = 1e-8


@dataclass(frozen=True)
class Alias:
    """An effect that the measured cells do not show on its own.

    ``missing`` of its ``freedom`` independent comparisons are not to be had. ``partners`` are the
    effects it is mixed with; empty for an interaction whose combinations were not measured.
    """

    term: Term
    missing: int
    freedom: int
    partners: tuple[Term, ...]


@dataclass(frozen=True)
class Design:
    """``factors``: the levels of each, in order, at least two. ``weights``: runs of each cell."""

    cells: tuple[Levels, ...]
    factors: Mapping[str, tuple[str, ...]]
    weights: Matrix

    @property
    def mains(self) -> tuple[Term, ...]:
        return tuple((factor,) for factor in self.factors)

    @property
    def pairs(self) -> tuple[Term, ...]:
        return tuple(combinations(self.factors, 2))

    def columns(self, term: Term) -> Matrix:
        """The term's columns, a row a cell; those that are nought in all cells are left out."""
        coded = [self._coded[factor] for factor in term]
        if len(coded) == 1:
            return coded[0]
        product = coded[0][:, :, None] * coded[1][:, None, :]
        flat = product.reshape(len(self.cells), -1)
        return flat[:, np.abs(flat).max(axis=0) > 0] if len(flat) else flat

    @cached_property
    def _coded(self) -> dict[str, Matrix]:
        return {factor: self._coding(factor) for factor in self.factors}

    def _coding(self, factor: str) -> Matrix:
        names = self.factors[factor]
        rows = np.zeros((len(self.cells), len(names) - 1))
        for row, cell in zip(rows, self.cells, strict=True):
            if factor in cell:
                row[:] = self.level_code(factor, cell[factor])
        return rows

    def level_code(self, factor: str, level: str) -> Matrix:
        """A level's entries in the factor's columns: a one, or all minus one for the last."""
        place = self.factors[factor].index(level)
        size = len(self.factors[factor]) - 1
        return np.eye(size)[place] if place < size else -np.ones(size)

    @cached_property
    def _factored(self) -> tuple[Matrix, Matrix, dict[Term, slice]]:
        """QR factors of the mean's column and those of all terms, each cell by the root of its
        runs, and where each term's columns stand. All later algebra is done on the small R."""
        parts, places, start = [np.ones((len(self.cells), 1))], {}, 1
        for term in (*self.mains, *self.pairs):
            parts.append(self.columns(term))
            places[term] = slice(start, start + parts[-1].shape[1])
            start = places[term].stop
        scaled = np.hstack(parts) * np.sqrt(self.weights)[:, None]
        basis, columns = np.linalg.qr(scaled)
        return basis, columns, places

    def weighted(self, *terms: Term) -> Matrix:
        """The mean's column and those of the terms, in the coordinates of ``project``."""
        _, columns, places = self._factored
        return np.hstack([columns[:, :1], *(columns[:, places[term]] for term in terms)])

    def project(self, values: Matrix) -> Matrix:
        """A value a cell, by the root of its runs, in the coordinates of all terms together."""
        projected: Matrix = self._factored[0].T @ (values * np.sqrt(self.weights))
        return projected


def orthonormal(columns: Matrix) -> Matrix:
    """An orthonormal basis of what the columns span."""
    if columns.shape[1] == 0:
        return columns
    left, size, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, size > _TINY * max(1.0, float(size[0]))]


def beyond(columns: Matrix, basis: Matrix) -> Matrix:
    """An orthonormal basis of what the columns span beyond an orthonormal ``basis``."""
    return orthonormal(columns - basis @ (basis.T @ columns))


def find_aliases(design: Design) -> tuple[Alias, ...]:
    """Main effects that are not separate from each other, interactions that the measured
    combinations do not show, and pairs of effects that are one and the same in these cells."""
    scaled = {term: design.weighted(term)[:, 1:] for term in (*design.mains, *design.pairs)}
    found = [alias for term in design.mains if (alias := _main_alias(design, term, scaled))]
    found += _pair_aliases(design, scaled)
    return tuple(found)


def _main_alias(design: Design, term: Term, scaled: Mapping[Term, Matrix]) -> Alias | None:
    """A main effect mixed with other main effects, or with an interaction of two others."""
    others = [other for other in design.mains if other != term]
    own = beyond(scaled[term], orthonormal(design.weighted(*others)))
    freedom = len(design.factors[term[0]]) - 1
    missing = freedom - own.shape[1]
    if missing:
        plain = orthonormal(design.weighted())
        apart = {other: beyond(scaled[other], plain) for other in others}
        mixed = [o for o in others if _touch(beyond(scaled[term], plain), apart[o])]
        return Alias(term, missing, freedom, tuple(mixed or others))
    rest = orthonormal(design.weighted(*others))
    mixed = [
        pair
        for pair in design.pairs
        if term[0] not in pair and _touch(own, beyond(scaled[pair], rest))
    ]
    return Alias(term, 0, freedom, tuple(mixed)) if mixed else None


def _pair_aliases(design: Design, scaled: Mapping[Term, Matrix]) -> list[Alias]:
    basis = orthonormal(design.weighted(*design.mains))
    apart = {pair: beyond(scaled[pair], basis) for pair in design.pairs}
    found = []
    for pair in design.pairs:
        freedom = _pair_freedom(design, pair)
        missing = freedom - apart[pair].shape[1]
        mixed = tuple(o for o in design.pairs if o != pair and _touch(apart[pair], apart[o]))
        if missing or mixed:
            found.append(Alias(pair, missing, freedom, mixed))
    return found


def _pair_freedom(design: Design, pair: Term) -> int:
    """Comparisons of an interaction, among the levels that can meet: a bare-metal baseline has
    no cache mode, which is no gap in the study."""
    meeting = [cell for cell in design.cells if all(factor in cell for factor in pair)]
    levels = [len({cell[factor] for cell in meeting}) for factor in pair]
    return max(0, levels[0] - 1) * max(0, levels[1] - 1)


def _touch(one: Matrix, other: Matrix) -> bool:
    """Whether two subspaces have a direction in common."""
    if not one.shape[1] or not other.shape[1]:
        return False
    return bool(np.linalg.norm(one.T @ other, 2) > SAME)
