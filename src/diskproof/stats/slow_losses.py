"""Do runs fail where the host is slow? Those that are left then look faster than they are.

What a failed run would have given is not known, but what the runs around it gave is. Within each
cell any of its runs could have been the one that failed; a permutation test over them needs no
assumption on the scatter, and none on how often a cell fails.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.cell_means import fit_cell_means
from diskproof.stats.intervals import Sample

Vector = NDArray[np.float64]

AROUND = 2
"""Runs before and after a place in the session, the nearest ones, that tell how slow it was."""
_CHOICES = 1999
"""Ways in which runs could have failed instead; p-values come in two-thousandths."""


@dataclass(frozen=True)
class SlowLosses:
    """``failed`` runs of cells that have others, and the metric around them over that around the
    other runs of the same cells. ``p_value`` is one-sided, of no connection with slowness."""

    failed: int
    ratio: float
    p_value: float


def find_slow_losses(
    samples: Sequence[Sample],
    starts: Sequence[Sequence[float]],
    failed: Sequence[Sequence[float]],
    *,
    higher_is_better: bool,
) -> SlowLosses | None:
    """Test whether failed runs lie among slow ones.

    ``starts`` are when the runs of each sample began, ``failed`` when those that failed did,
    both by cell. None where none failed, or no other run tells how it was.
    """
    usable = [c for c, s in enumerate(samples) if s.values and min(s.values) > 0 and len(starts[c])]
    lost = [np.array(failed[cell], dtype=float) for cell in usable]
    if not any(map(len, lost)) or sum(len(samples[cell].values) for cell in usable) < 2 * AROUND:
        return None
    fitted = fit_cell_means([samples[cell] for cell in usable])
    logs = np.log([value for cell in usable for value in samples[cell].values])
    beside = logs - fitted.means[fitted.cell_of]
    times = np.array([at for cell in usable for at in starts[cell]])
    order = np.argsort(times, kind="stable")
    there, gone = [], []
    for place, own in enumerate(lost):
        if len(own):
            others = order[fitted.cell_of[order] != place]
            around = times[others], beside[others]
            there.append(_levels(*around, times[fitted.cell_of == place]))
            gone.append(_levels(*around, own))
    if not all(np.isfinite(each).all() for each in (*there, *gone)):
        return None
    return _tested(there, gone, -1.0 if higher_is_better else 1.0)


def _levels(times: Vector, beside: Vector, at: Vector) -> Vector:
    """The mean of the nearest runs of other cells before and after each moment."""
    places = np.searchsorted(times, at)
    spans = [beside[max(0, place - AROUND) : place + AROUND] for place in places]
    return np.array([float(span.mean()) if len(span) else math.nan for span in spans])


def _tested(there: Sequence[Vector], gone: Sequence[Vector], slower: float) -> SlowLosses:
    """Hold the slowness around failed runs against that of any as many runs of the same cells."""
    rng = np.random.default_rng(0)  # the same study says the same each time
    excess, chance = 0.0, np.zeros(_CHOICES)
    for present, absent in zip(there, gone, strict=True):
        every = slower * np.concatenate([absent, present])
        middle = len(absent) * float(every.mean())
        excess += float(every[: len(absent)].sum()) - middle
        mixed = rng.permuted(np.tile(every, (_CHOICES, 1)), axis=1)
        chance += mixed[:, : len(absent)].sum(axis=1) - middle
    beyond = int((chance >= excess - 1e-12).sum())
    levels = [float(np.concatenate(each).mean()) for each in (gone, there)]
    count = sum(map(len, gone))
    return SlowLosses(count, math.exp(levels[0] - levels[1]), (1 + beyond) / (1 + _CHOICES))
