"""Parts of one search, made in several processes, as the search that they are together. Pure.

Each part builds all states and checks those that fall to it by their content and promise
(``docs/crash-model.md``, Shards), so that no state is counted twice: the sum of what the parts
checked is what one search checks, and the worst of their worst is its worst.
"""

from collections.abc import Sequence
from dataclasses import replace

from diskproof.crash.verdict import Coverage, Explored


def merge_parts(parts: Sequence[Explored]) -> Explored:
    """The search that the parts make up, in any order and grouping.

    A part that failed makes the whole fail, after what the others found. Raises ValueError
    without parts, or for parts of different searches.
    """
    if len({(part.fault, part.promises, part.seed) for part in parts}) != 1:
        raise ValueError("these are no parts of one search")
    worst = max(parts, key=_rank)
    return replace(
        parts[0],
        states_checked=sum(part.states_checked for part in parts),
        states_total=_total(parts),
        estimated=any(part.estimated for part in parts),
        cuts=max(part.cuts for part in parts),
        seconds=max(part.seconds for part in parts),
        worst=worst.worst,
        smallest=worst.smallest,
        failure="; ".join(sorted({part.failure for part in parts} - {""})),
        covered=_least([part.covered for part in parts]),
        equal=sum(part.equal for part in parts),
        unsteady=any(part.unsteady for part in parts),
    )


def _least(parts: Sequence[Coverage | None]) -> Coverage | None:
    """What every part came to: each checks its own states of all that are built."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return Coverage(
        min(part.acknowledgements for part in known), min(part.changes for part in known)
    )


def _rank(part: Explored) -> tuple[object, ...]:
    """The worst loss last; of equals what one search would have come to first."""
    if part.worst is None:
        return (False,)
    return True, part.worst.severity, tuple(-number for number in part.worst.order)


def _total(parts: Sequence[Explored]) -> int | None:
    """A finished part knows how many states are its own, another how many there may be in all."""
    if any(part.states_total is None for part in parts):
        return None
    totals = [part.states_total or 0 for part in parts]
    if not any(part.estimated for part in parts):
        return sum(totals)
    return max(*totals, sum(part.states_checked for part in parts))
