"""Cells that no other beats in everything at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]


def pareto_front(points: Array) -> list[bool]:
    """Which rows of ``points`` (cells x aims, more is better) are on the Pareto front.

    A row is off it if another is at least as good in every aim and better in one. A row with an
    aim that is not a number is neither on the front nor takes another off it.
    """
    import numpy as np

    every, some = np.logical_and.reduce, np.logical_or.reduce
    whole: Flags = every(~np.isnan(points), axis=1)
    held = np.where(whole[:, None], points, -np.inf)
    no_worse: Flags = every(held[:, None, :] >= held[None, :, :], axis=2)
    better: Flags = some(held[:, None, :] > held[None, :, :], axis=2)
    beaten: Flags = some(no_worse & better & whole[:, None], axis=0)
    return [bool(good and not lost) for good, lost in zip(whole, beaten, strict=True)]


def proved_off(better_by_aim: list[Flags]) -> list[bool]:
    """Which cells some one other cell is proved better than in every aim.

    ``better_by_aim[a][i, j]``: cell i is proved better than j in aim a. Each table holds at a
    family-wise error of 5 %, and a claim here needs all of them, so it holds at 5 % as well.
    """
    import numpy as np

    every = np.logical_and.reduce(better_by_aim)
    return [bool(lost) for lost in every.any(axis=0)]
