"""The rules of a race: ``[protocol]`` with ``stop = "decided"``.

They say when a study stops, not what shapes a run: they are no part of its id, and the text of a
stored study tells them to whoever replays the race.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from diskproof.units import parse_share

MAX_DELTA = 0.5
MIN_CONFIDENCE, MAX_CONFIDENCE = 0.5, 0.9999
MAX_TOP = 1000
FIRST_LOOK = 2
"""One block tells nothing of the scatter: no cell is judged before the second."""
MAX_RACE_BLOCKS = 1000

_SHARES = frozenset({"delta", "confidence"})
_COUNTS = frozenset({"top", "min_blocks", "max_blocks"})


@dataclass(frozen=True)
class RaceRules:
    """``delta``: relative difference that does not matter. ``confidence``: that neither a dropped
    cell nor the announced best were wrong, over the whole race. ``top``: how many best cells are
    looked for. No cell is judged before ``min_blocks``; the race ends at ``max_blocks`` undecided.
    Raises ValueError for what is out of bounds.
    """

    delta: float = 0.02
    confidence: float = 0.95
    top: int = 1
    min_blocks: int = FIRST_LOOK
    max_blocks: int = 40

    def __post_init__(self) -> None:
        if not 0 < self.delta <= MAX_DELTA:
            raise ValueError(f"delta must be above 0 and at most {MAX_DELTA:.0%}")
        if not MIN_CONFIDENCE <= self.confidence <= MAX_CONFIDENCE:
            raise ValueError(
                f"confidence must be {MIN_CONFIDENCE:.0%} to {100 * MAX_CONFIDENCE:g}%"
            )
        if not 1 <= self.top <= MAX_TOP:
            raise ValueError(f"top must be 1 to {MAX_TOP}")
        if not FIRST_LOOK <= self.min_blocks <= self.max_blocks <= MAX_RACE_BLOCKS:
            raise ValueError(
                f"{FIRST_LOOK} <= min_blocks <= max_blocks <= {MAX_RACE_BLOCKS} must hold"
            )

    @property
    def margin(self) -> float:
        """``delta`` on the log scale: a cell this far behind is at 1 - delta of the other."""
        return -math.log1p(-self.delta)


def find_rules(text: str) -> RaceRules | None:
    """The rules in a study's text; None where it is no race (or no study file at all: what was
    imported keeps a text of its own, and a store may come from anywhere)."""
    import tomllib

    try:
        protocol = tomllib.loads(text).get("protocol")
        if not isinstance(protocol, dict) or protocol.get("stop") != "decided":
            return None
        read: dict[str, Any] = {
            key: parse_share(protocol[key]) for key in protocol.keys() & _SHARES
        }
        read |= {key: _whole(protocol[key]) for key in protocol.keys() & _COUNTS}
        return replace(RaceRules(), **read)
    except (tomllib.TOMLDecodeError, ValueError, TypeError, RecursionError):
        return None


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value
