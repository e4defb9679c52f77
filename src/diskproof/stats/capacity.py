"""How many tiles a host carries: what to run next, and the answer with its interval.

A number of tiles *holds* when its typical (median) run keeps every service level. That more tiles
are never easier than fewer is assumed, and said when the runs speak against it. See
``boundary_belief`` for the probabilities.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from diskproof.stats.boundary_belief import Belief, Trial, find_belief
from diskproof.stats.intervals import CONFIDENCE

__all__ = [
    "Capacity",
    "CapacityComparison",
    "Trial",
    "compare_capacity",
    "find_capacity",
    "next_trial",
    "trial_limit",
]

SPARE = 3
"""Trials beyond those of a search without noise: one more on each side of the answer, and one for
a number that lies on the limit."""

_DIGITS = 9
"""Probabilities that are the same to so many digits are equal."""


@dataclass(frozen=True)
class Capacity:
    """The largest number of tiles that holds, among those that were run; 0: not even one.

    ``low`` .. ``high``: the numbers that the runs cannot exclude as the true one (95 %).
    ``open_above``: ``high`` is the most that was to be tried, and the true one may be larger.
    ``confidence``: the probability that ``tiles`` is the true one (or, if it is the most to try,
    that it holds). ``decided``: that is 95 % or more. ``monotone``: no number was seen to hold
    while a smaller one did not. ``reason`` says it in a sentence.
    """

    tiles: int
    low: int
    high: int
    confidence: float
    decided: bool
    reason: str
    open_above: bool = False
    monotone: bool = True


@dataclass(frozen=True)
class CapacityComparison:
    """What B carries against A. ``more`` and ``fewer`` only when the intervals have no number in
    common; all else is a ``tie``: not told apart, which is not proof of being equal."""

    verdict: Literal["more", "fewer", "tie"]
    reason: str


def trial_limit(most: int) -> int:
    """The most trials that a search takes beside its baseline runs: ceil(log2(most)) + 3."""
    return (most - 1).bit_length() + SPARE


def next_trial(trials: Sequence[Trial], most: int, runs: int) -> int | None:
    """The number of tiles to run next, 1 .. ``most``; None when the search is over.

    The baseline (one tile, ``runs`` times) comes first. Then the number about which it is most
    open whether it holds: the middle of what is left while nothing is near the limit, and the
    same number again where it is. No number runs more than ``runs`` times.

    Raises ValueError when ``most`` or ``runs`` is below 1 or a trial has more than ``most`` tiles.
    """
    if most < 1 or runs < 1:
        raise ValueError("a search needs at least one tile to try and one run of each")
    capacity = find_capacity(trials, most)
    baseline = sum(trial.tiles == 1 for trial in trials)
    if baseline < runs and not (capacity.decided and capacity.tiles == 0):
        return 1
    if capacity.decided or len(trials) - baseline >= trial_limit(most):
        return None
    belief = find_belief(trials, most)
    return _most_open(belief, most, runs)


def _most_open(belief: Belief, most: int, runs: int) -> int | None:
    """Find the number that may run again whose probability to hold is nearest to a half
    (of equals the one with fewer runs); None when none of them matters any more."""
    ranked = []
    for tiles in range(1, most + 1):
        holds, count = belief.at_least(tiles), belief.runs.get(tiles, 0)
        doubt = round(min(holds, 1 - holds), _DIGITS)
        if count < runs and doubt > (1 - CONFIDENCE) / 2:
            ranked.append((-doubt, count, tiles))
    return min(ranked)[2] if ranked else None


def find_capacity(trials: Sequence[Trial], most: int) -> Capacity:
    """The largest number of tiles that holds, by all trials so far, whatever their order.

    Raises ValueError when ``most`` is below 1 or a trial has more than ``most`` tiles.
    """
    if most < 1:
        raise ValueError("a search needs at least one tile to try")
    belief = find_belief(trials, most)
    held = [each for each in belief.runs if round(belief.at_least(each), _DIGITS) >= 0.5]
    tiles = max(held, default=0)
    low, high = _interval(belief.chances, tiles)
    against = _contradiction(belief)
    if against:
        low, high = min(low, against[0] - 1), max(high, against[1])
    confidence = belief.chances[tiles]
    decided = confidence >= CONFIDENCE and not against
    open_above = high == most
    reason = _reason(tiles, (low, high), decided, open_above, against)
    return Capacity(tiles, low, high, confidence, decided, reason, open_above, not against)


def _interval(chances: Sequence[float], tiles: int) -> tuple[int, int]:
    """The fewest neighbouring numbers around ``tiles`` that hold 95 % of the probability, and of
    equally many those that hold most of it."""
    sums = [0.0]
    for chance in chances:
        sums.append(sums[-1] + chance)
    best = (len(chances) - 1, 0.0, 0)
    low = 0
    for high in range(tiles, len(chances)):
        while low < tiles and sums[high + 1] - sums[low + 1] >= CONFIDENCE:
            low += 1
        inside = sums[high + 1] - sums[low]
        if inside >= CONFIDENCE:
            best = min(best, (high - low, -inside, low))
    return best[2], best[2] + best[0]


def _contradiction(belief: Belief) -> tuple[int, int] | None:
    """A number that does not hold below one that does, each by its own runs, both together at
    95 %; that takes two runs of each. The widest apart, so that the interval covers all of it."""
    numbers = sorted(belief.alone)
    pairs = [
        (high - low, low, high)
        for i, low in enumerate(numbers)
        for high in numbers[i + 1 :]
        if (1 - belief.alone[low]) * belief.alone[high] >= CONFIDENCE
    ]
    return max(pairs)[1:] if pairs else None


def _reason(
    tiles: int,
    interval: tuple[int, int],
    decided: bool,
    open_above: bool,
    against: tuple[int, int] | None,
) -> str:
    low, high = interval
    reach = f"between {low} and {high}{' or more' if open_above else ''}"
    if against:
        return (
            f"{_count(against[0])} did not hold, but {against[1]} did: "
            f"more tiles should not be easier, so the answer is {reach}"
        )
    if not decided:
        return f"the runs cannot tell: {reach}"
    if open_above:
        return f"{_count(tiles)} held, and that is the most that was to be tried"
    if tiles == 0:
        return "one tile alone does not hold"
    return f"{_count(tiles)} held, {tiles + 1} did not"


def _count(tiles: int) -> str:
    return "1 tile" if tiles == 1 else f"{tiles} tiles"


def compare_capacity(a: Capacity, b: Capacity) -> CapacityComparison:
    """Whether B carries more or fewer tiles than A: are their intervals disjoint?

    Two 95 % intervals without a number in common differ at more than 95 %. A side whose interval
    is open above is not proved to carry fewer than anything.
    """
    for side, name in ((a, "first"), (b, "second")):
        if not side.monotone:
            return CapacityComparison("tie", f"the {name} is not to be compared: {side.reason}")
    if b.low > a.high and not a.open_above:
        return CapacityComparison("more", f"{b.low} or more against {a.high} or fewer")
    if a.low > b.high and not b.open_above:
        return CapacityComparison("fewer", f"{b.high} or fewer against {a.low} or more")
    if a.open_above or b.open_above:
        reached = a.high if a.open_above else b.high
        return CapacityComparison(
            "tie", f"not told apart: no more than {reached} were tried, which may hold"
        )
    common = (max(a.low, b.low), min(a.high, b.high))
    return CapacityComparison("tie", f"not told apart: both may carry {_range(*common)}")


def _range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low} to {high}"
