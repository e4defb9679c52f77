"""Was there a spell of the session in which everything was faster or slower?

Circular binary segmentation (Olshen, Venkatraman, Lucito and Wigler 2004, Biostatistics 5, 557):
of all spans of the session the one that departs most from the rest, held against what chance does
to the same runs in any other order. The order in which cells run is drawn at random, so without
a change any order was as likely.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from diskproof.stats.intervals import Sample

Vector = NDArray[np.float64]
Rows = NDArray[np.float64]

LEAST = 3
"""Runs in a spell, and outside of it: one odd run is an outlier, not a spell."""
_PLACES = 48
"""Where a spell may begin and end, evenly chosen in a longer session."""
_ORDERS = 999
"""Orders to hold it against; p-values come in thousandths."""
_AT_ONCE = 2_000_000
"""Values of reordered sessions that are held in memory together."""


@dataclass(frozen=True)
class Spell:
    """Runs from ``begin`` to ``end`` (exclusive, in order of time) of ``runs``. ``seconds`` from
    the session's first run to the spell's first and last ones. ``ratio``: the
    metric inside over outside. ``p_value`` is that of a session without any change."""

    begin: int
    end: int
    runs: int
    seconds: tuple[float, float]
    ratio: float
    p_value: float


def find_spell(samples: Sequence[Sample], starts: Sequence[Sequence[float]]) -> Spell | None:
    """The span of the session that departs most from the rest of it.

    ``starts``: when each run began in seconds, parallel to the samples' values. Cells with one
    run, or with a value that is not positive, say nothing of time. None below ``2 * LEAST`` runs.
    """
    usable = [c for c, s in enumerate(samples) if len(s.values) > 1 and min(s.values) > 0]
    runs = sum(len(samples[cell].values) for cell in usable)
    if runs < 2 * LEAST:
        return None
    logs = np.log([value for cell in usable for value in samples[cell].values])
    times = np.array([at for cell in usable for at in starts[cell]])
    cells = np.repeat(np.arange(len(usable)), [len(samples[cell].values) for cell in usable])
    order = np.argsort(times, kind="stable")
    logs, times, cells = logs[order], times[order], cells[order]
    members = np.eye(len(usable))[cells]
    left = _beside_means(logs[None, :], members)
    places = np.unique(np.linspace(0, runs, min(runs, _PLACES) + 1).round().astype(int))
    score, begin, end = _furthest(_ranks(left), places)
    rng = np.random.default_rng(0)  # the same study says the same each time
    above = sum(
        int((_furthest(_ranks(_beside_means(mixed, members)), places)[0] >= score[0] - 1e-9).sum())
        for mixed in _reordered(left[0], rng)
    )
    first, last = int(begin[0]), int(end[0])
    inside = np.zeros(runs, dtype=bool)
    inside[first:last] = True
    ratio = math.exp(_difference(logs, cells, inside))
    since = float(times[first] - times[0]), float(times[last - 1] - times[0])
    return Spell(first, last, runs, since, ratio, (1 + above) / (1 + _ORDERS))


def _beside_means(rows: Rows, members: Rows) -> Rows:
    """Each value less the mean of its cell; rows are sessions, ``members`` is runs x cells."""
    left: Rows = rows - rows @ members / members.sum(axis=0) @ members.T
    return left


def _ranks(rows: Rows) -> Rows:
    """Centred, by row. Ranks, so that neither a wild cell nor a wild run stands for all."""
    ranks: Rows = rankdata(rows, axis=1) - (rows.shape[1] + 1) / 2
    return ranks


def _furthest(
    rows: Rows, places: NDArray[np.int64]
) -> tuple[Vector, NDArray[np.int64], NDArray[np.int64]]:
    """For each session: how far its most different span departs, and where that begins and ends."""
    sums = np.concatenate([np.zeros((len(rows), 1)), rows.cumsum(axis=1)], axis=1)[:, places]
    begin, end = np.triu_indices(len(places), 1)
    inside = (places[end] - places[begin]).astype(float)
    fitting = (inside >= LEAST) & (rows.shape[1] - inside >= LEAST)
    begin, end, inside = begin[fitting], end[fitting], inside[fitting]
    scale = np.sqrt(inside * (1 - inside / rows.shape[1]))
    scores = np.abs(sums[:, end] - sums[:, begin]) / scale
    best = scores.argmax(axis=1)
    return scores[np.arange(len(rows)), best], places[begin[best]], places[end[best]]


def _reordered(values: Vector, rng: np.random.Generator) -> "Sequence[Rows]":
    size = max(1, _AT_ONCE // max(len(values), _PLACES**2 // 2))
    whole = [min(size, _ORDERS - done) for done in range(0, _ORDERS, size)]
    return [rng.permuted(np.tile(values, (many, 1)), axis=1) for many in whole]


def _difference(logs: Vector, cells: NDArray[np.int64], inside: NDArray[np.bool_]) -> float:
    """Mean log inside less outside, by cells that have both, each as well as it is known."""
    total = weights = 0.0
    for cell in range(int(cells.max()) + 1):
        mine = logs[(cells == cell) & inside], logs[(cells == cell) & ~inside]
        if all(map(len, mine)):
            weight = 1 / (1 / len(mine[0]) + 1 / len(mine[1]))
            total += weight * float(mine[0].mean() - mine[1].mean())
            weights += weight
    return total / weights if weights else float(logs[inside].mean() - logs[~inside].mean())
