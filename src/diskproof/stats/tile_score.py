"""What a number of tiles gets done: a sum over tiles, and how the worst off fares beside it.

The sum is VMmark's: in each tile the geometric mean over its workloads of throughput over that of
a tile alone, added up over the tiles. A sum can be had by starving one guest for the others; so
the minimum over all tiles and workloads stands beside it, as TPC-VMS takes the minimum over its
virtual machines. Neither counts when the service level was missed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diskproof.stats.intervals import CONFIDENCE, Interval, mean_interval


@dataclass(frozen=True)
class TileScore:
    """One run. ``sum``: n tiles that do not hinder each other score n. ``minimum``: of throughput
    over one-tile throughput, found at ``slowest`` (tile, workload); 1 when nobody lost anything.
    ``per_tile``: each tile's part of the sum. ``holds``: the service level was kept; without it
    the score is no result."""

    sum: float
    minimum: float
    slowest: tuple[int, str]
    per_tile: Mapping[int, float]
    holds: bool


@dataclass(frozen=True)
class TileScoreIntervals:
    """Several runs of one number of tiles: means with Student's t intervals, one value a run.
    ``holds``: every run kept the service level."""

    sum: Interval
    minimum: Interval
    holds: bool


def tile_score(
    throughputs: Mapping[tuple[int, str], float], baseline: Mapping[str, float], *, holds: bool
) -> TileScore:
    """The score of one run: ``throughputs`` by (tile, workload), ``baseline`` those of a tile
    alone, in the same unit (of several one-tile runs: their median).

    Raises ValueError when a tile lacks a workload of the baseline or has one that is not in it
    (nothing is guessed), when a throughput is negative or not finite, or a baseline not positive.
    """
    tiles = sorted({tile for tile, _ in throughputs})
    wanted = {(tile, work) for tile in tiles for work in baseline}
    if not throughputs or wanted != set(throughputs):
        odd = sorted(wanted ^ set(throughputs))
        raise ValueError(f"a score needs each workload of each tile: {odd or 'there is none'}")
    if not all(math.isfinite(value) and value > 0 for value in baseline.values()):
        raise ValueError("the throughput of one tile alone must be above 0")
    if not all(math.isfinite(value) and value >= 0 for value in throughputs.values()):
        raise ValueError("a throughput must be a number, 0 or more")
    shares = {(tile, work): throughputs[tile, work] / baseline[work] for tile, work in wanted}
    per_tile = {
        tile: _geometric_mean([shares[tile, work] for work in sorted(baseline)]) for tile in tiles
    }
    slowest = min(sorted(shares), key=shares.__getitem__)
    return TileScore(math.fsum(per_tile.values()), shares[slowest], slowest, per_tile, holds)


def _geometric_mean(values: Sequence[float]) -> float:
    if min(values) == 0:
        return 0.0
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))


def score_intervals(
    scores: Sequence[TileScore], confidence: float = CONFIDENCE
) -> TileScoreIntervals:
    """The mean score of runs with the same number of tiles. A single run has no interval.

    Raises ValueError for no runs, or runs of different numbers of tiles.
    """
    if len({len(score.per_tile) for score in scores}) != 1:
        raise ValueError("scores are averaged over runs with the same number of tiles")
    return TileScoreIntervals(
        mean_interval([score.sum for score in scores], confidence),
        mean_interval([score.minimum for score in scores], confidence),
        all(score.holds for score in scores),
    )
