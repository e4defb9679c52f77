"""Racing: which cells are surely not among the best, and when the best are known.

A sequential version of multiple comparisons with the best (Hsu 1981, doi 10.1214/aos/1176345448;
racing after Maron & Moore 1997 and Birattari et al. 2010). After each complete block every pair of
cells still in the race is compared, at a boundary that holds over all blocks and all cells
together; see ``boundaries`` for what a look costs and ``race_fit`` for the estimates.

Two families of statements, each kept at 1 - confidence. The answer (nothing is better than the
leaders by more than delta) can only go wrong by pairs with a truly best cell, in one direction.
That a cell is surely worse, and out, is said of any pair, so all of them are paid for. That takes
more; but a cell that can no longer touch the answer need not run until it is proved: it rests.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.boundaries import (
    Boundary,
    any_pair_alpha,
    find_boundary,
    pair_alpha,
    sure_scores,
)
from diskproof.stats.race_fit import RaceFit, fit_race
from diskproof.study.protocol import RaceRules

Array = NDArray[np.float64]
Places = NDArray[np.int64]


_ANY = 1e3
"""An error on the log scale that means: anything."""


@dataclass(frozen=True)
class Drop:
    """A cell that left the race after ``block`` (from 0).

    ``slower``: ``rival`` is one of ``top`` cells that are surely better; the cell was at ``ratio``
    of its speed, surely at less than ``at_most``. ``failed``: it gave no value in any block.
    """

    cell: int
    block: int
    reason: Literal["slower", "failed"]
    rival: int = -1
    ratio: float = math.nan
    at_most: float = math.nan


@dataclass(frozen=True)
class RaceVerdict:
    """What the blocks so far tell. Cells are numbers of columns.

    ``leaders`` are the best by estimate, best first. ``open`` are cells that may be better than a
    leader by more than delta; ``tied`` those that surely are not, and that are not surely worse
    either: they rest. ``settled``: none is open, so the leaders are among the best within delta.
    ``lead_at_least``: the speed of any leader over any other cell's is surely at least this
    (at least 1 - delta when settled; nought when nothing is known). ``probability`` that the
    leaders are right within delta, by the estimates and their errors as they stand.
    ``blocks_needed``: about how many blocks settle it if the estimates stay as they are, more
    than there were; nought when it is settled or nothing is known.
    """

    racing: tuple[int, ...]
    dropped: tuple[Drop, ...]
    leaders: tuple[int, ...]
    open: tuple[int, ...]
    tied: tuple[int, ...]
    settled: bool
    lead_at_least: float
    probability: float
    blocks_needed: int = 0

    @property
    def entry(self) -> tuple[int, ...]:
        """Who runs in the next block: the leaders and who may be better than they. The tied come
        back when the lead goes to a cell that they may be better than."""
        return tuple(sorted((*self.leaders, *self.open)))


def judge(table: Array, racing: Sequence[int], rules: RaceRules) -> RaceVerdict:
    """Judge the blocks so far.

    ``table`` (blocks x cells) holds logarithms, larger is better, nan where there is no value (the
    run failed, or the cell had left or rested). ``racing`` are the cells that had not left before
    the last block.
    """
    blocks = len(table)
    if blocks < rules.min_blocks:
        return _nothing_known(table, racing, (), rules)
    valued = np.isfinite(table).sum(axis=0) > 0
    failed = tuple(Drop(cell, blocks - 1, "failed") for cell in racing if not valued[cell])
    alive = np.array([cell for cell in racing if valued[cell]], dtype=np.int64)
    fit = fit_race(table)
    if len(alive) <= rules.top or not math.isfinite(fit.common):
        return _nothing_known(table, [int(cell) for cell in alive], failed, rules)
    ahead = np.subtract.outer(fit.centres[alive], fit.centres[alive])
    boundary = _answer_boundary(table.shape[1], rules)
    halves = half_widths(fit, alive, boundary)
    apart = half_widths(fit, alive, _apart_boundary(table.shape[1], rules))
    slower = _slower(alive, ahead, apart, blocks, rules)
    gone = {drop.cell for drop in slower}
    kept = np.array([place for place, cell in enumerate(alive) if int(cell) not in gone])
    pairs = np.ix_(kept, kept)
    errors = fit.squared_errors(alive)[pairs]
    spread = np.add.outer(fit.variances[alive], fit.variances[alive])[pairs]
    needed = boundary.at(blocks) ** 2 * spread / np.maximum(rules.margin - ahead[pairs], 1e-9) ** 2
    found = (ahead[pairs], halves[pairs], errors, np.maximum(needed, blocks + 1))
    return _settle(alive[kept], _Pairs(*found), (*failed, *slower), rules)


def _answer_boundary(field: int, rules: RaceRules) -> Boundary:
    """For each pair of a truly best cell and another, where ``field`` cells started."""
    others = max(1, field - rules.top)
    return find_boundary(pair_alpha(1 - rules.confidence, others, rules.top))


def _apart_boundary(field: int, rules: RaceRules) -> Boundary:
    """For any two of ``field`` cells."""
    return find_boundary(any_pair_alpha(1 - rules.confidence, field))


def half_widths(fit: RaceFit, cells: Places, boundary: Boundary) -> Array:
    """What a difference must exceed to be sure, for all pairs.

    Each pair is at the boundary of the one of its two cells that has more of it to pay.
    """
    factors = sure_scores(fit.runs[cells], fit.freedom[cells], boundary)
    halves: Array = np.maximum.outer(factors, factors) * np.sqrt(fit.squared_errors(cells))
    return halves


def _slower(
    alive: Places, ahead: Array, halves: Array, blocks: int, rules: RaceRules
) -> list[Drop]:
    """Cells that at least ``top`` others surely beat. ``ahead`` is row minus column."""
    beaten = ahead > halves
    drops = []
    for place in (beaten.sum(axis=0) >= rules.top).nonzero()[0]:
        # The rival that says most: of the top surest ones, the one that is least far ahead.
        sure = ahead[:, place] - halves[:, place]
        rival = int((-sure).argsort(kind="stable")[rules.top - 1])
        drops.append(
            Drop(
                int(alive[place]),
                blocks - 1,
                "slower",
                int(alive[rival]),
                math.exp(-ahead[rival, place]),
                math.exp(-sure[rival]),
            )
        )
    return drops


@dataclass(frozen=True)
class _Pairs:
    """Tables of all pairs of cells in the race: row minus column, half widths, squared errors, and
    about how many blocks it takes until the row is surely no more than delta ahead."""

    ahead: Array
    halves: Array
    errors: Array
    needed: Array


def _settle(
    cells: Places, pairs: _Pairs, dropped: tuple[Drop, ...], rules: RaceRules
) -> RaceVerdict:
    order: Places = (-pairs.ahead[:, 0]).argsort(kind="stable").astype(np.int64)
    leaders, others = order[: rules.top], order[rules.top :]
    racing = tuple(int(cell) for cell in cells)
    named = tuple(int(cell) for cell in cells[leaders])
    if not len(others):
        return RaceVerdict(racing, dropped, named, (), (), True, math.inf, 1.0)
    chosen = np.ix_(others, leaders)
    # How far each other cell may be ahead of any leader.
    threat = (pairs.ahead + pairs.halves)[chosen].max(axis=1)
    is_open = threat > rules.margin
    return RaceVerdict(
        racing,
        dropped,
        named,
        tuple(int(cell) for cell in cells[others[is_open]]),
        tuple(int(cell) for cell in cells[others[~is_open]]),
        not is_open.any(),
        math.exp(-float(threat.max())),
        _probability(pairs.ahead, pairs.errors, leaders, others, rules.margin),
        math.ceil(min(1e6, float(pairs.needed[chosen].max()))) if is_open.any() else 0,
    )


def _probability(
    ahead: Array, errors: Array, leaders: Places, others: Places, margin: float
) -> float:
    """Probability that no other cell is better than the last leader by more than ``margin``.

    By normal errors around the estimates, independent given the last leader's own (a quadrature
    over it); half of a difference's squared error counts as the leader's.
    """
    from scipy.special import ndtr

    last = int(leaders[-1])
    scores = np.linspace(-6.0, 6.0, 241)
    density = np.exp(-(scores**2) / 2)
    spread = np.minimum(np.sqrt(errors[others, last] / 2), _ANY)
    lead = ahead[last, others] + margin
    inside = ndtr((lead[None, :] + scores[:, None] * spread[None, :]) / spread[None, :])
    return float((density * inside.prod(axis=1)).sum() / density.sum())


def _nothing_known(
    table: Array, racing: Sequence[int], dropped: tuple[Drop, ...], rules: RaceRules
) -> RaceVerdict:
    """Before anything may be judged the means lead, and nothing is sure; unless no more cells are
    left than are looked for."""
    seen = np.isfinite(table)
    means = np.where(seen, table, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    order = sorted(racing, key=lambda cell: (not seen[:, cell].any(), -means[cell]))
    named, others = tuple(order[: rules.top]), tuple(order[rules.top :])
    if others or len(table) < rules.min_blocks:
        return RaceVerdict(tuple(racing), dropped, named, others, (), False, 0.0, 0.0)
    return RaceVerdict(tuple(racing), dropped, named, (), (), True, math.inf, 1.0)
