"""Cells that no other beats in everything at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from diskproof.stats.score import Levels, ScoredLoad, compare_scores, join_levels

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class FrontPoint:
    """A cell's scores by aim, each as a ratio to the best cell in that aim.

    ``on_front`` goes by these figures; ``proved_off``: some other cell is proved better in every
    aim. A cell with neither is off the front by less than the scatter can tell.
    """

    levels: Levels
    scores: tuple[float, ...]
    on_front: bool
    proved_off: bool


def find_front(aims: Sequence[Sequence[ScoredLoad]]) -> tuple[FrontPoint, ...]:
    """The cells that have every workload of every aim (reads, writes), the first aim's best first.
    Empty when an aim has no workload of positive weight."""
    counted = [[load for load in loads if load.weight > 0] for loads in aims]
    levels, _ = join_levels([load for loads in counted for load in loads])
    if not all(counted) or not levels:
        return ()
    compared = [compare_scores(loads, levels)[0] for loads in counted]
    points = np.array([each.fit.centres for each in compared]).T
    on_front = pareto_front(points)
    off = proved_off([each.proved & (each.differences > 0) for each in compared])
    relative = np.exp(points - points.max(axis=0))
    found = [
        FrontPoint(each, tuple(float(value) for value in relative[i]), on_front[i], off[i])
        for i, each in enumerate(levels)
    ]
    return tuple(sorted(found, key=lambda point: -point.scores[0]))


def pareto_front(points: Array) -> list[bool]:
    """Which rows of ``points`` (cells x aims, more is better) are on the Pareto front.

    A row is off it if another is at least as good in every aim and better in one. A row with an
    aim that is not a number is neither on the front nor takes another off it.
    """
    every, some = np.logical_and.reduce, np.logical_or.reduce
    whole: Flags = every(~np.isnan(points), axis=1)
    held = np.where(whole[:, None], points, -np.inf)
    no_worse: Flags = every(held[:, None, :] >= held[None, :, :], axis=2)
    better: Flags = some(held[:, None, :] > held[None, :, :], axis=2)
    beaten: Flags = some(no_worse & better & whole[:, None], axis=0)
    return [bool(good and not lost) for good, lost in zip(whole, beaten, strict=True)]


def proved_off(better_by_aim: Sequence[Flags]) -> list[bool]:
    """Which cells some one other cell is proved better than in every aim.

    ``better_by_aim[a][i, j]``: cell i is proved better than j in aim a. Each table holds at a
    family-wise error of 5 %, and a claim here needs all of them, so it holds at 5 % as well.
    """
    every = np.logical_and.reduce(better_by_aim)
    return [bool(lost) for lost in every.any(axis=0)]
