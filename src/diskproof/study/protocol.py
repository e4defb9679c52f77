"""``[protocol]``: how runs are made, and the rules of a race (``stop = "decided"``, ``"likely"``).

The rules say when a study stops, not what shapes a run: they are no part of its id, and the text of
a stored study tells them to whoever replays the race.
"""

import math
from dataclasses import dataclass, replace

from diskproof.study import keys
from diskproof.study.toml_lines import shown
from diskproof.units import parse_share

MAX_DELTA = 0.5
MIN_CONFIDENCE, MAX_CONFIDENCE = 0.5, 0.9999
MAX_TOP = 1000
FIRST_LOOK = 2
"""One block tells nothing of the scatter: no cell is judged before the second."""
MAX_RACE_BLOCKS = 1000
DEFAULT_BLOCKS = 3
EXHAUSTIVE = 10
"""Complete blocks that a study would have which measures everything: a race is held against it."""


def _share(value: object) -> float:
    if isinstance(value, str | int | float):
        return parse_share(value)
    raise ValueError(f"{shown(value)} is not a share")


def _read_delta(value: object) -> float:
    if not 0 < (share := _share(value)) <= MAX_DELTA:
        raise ValueError(f"delta must be above 0 and at most {MAX_DELTA:.0%}")
    return share


def _read_confidence(value: object) -> float:
    if not MIN_CONFIDENCE <= (share := _share(value)) <= MAX_CONFIDENCE:
        bounds = f"{MIN_CONFIDENCE:.0%} to {100 * MAX_CONFIDENCE:g}%"
        raise ValueError(f"confidence must be {bounds}")
    return share


@dataclass(frozen=True)
class RaceRules:
    """``delta``: relative difference that does not matter. ``confidence``: that neither a dropped
    cell nor the announced best were wrong, over the whole race. ``top``: how many best cells are
    looked for. No cell is judged before ``min_blocks``; the race ends at ``max_blocks`` undecided.
    Raises ValueError for what is out of bounds.
    """

    delta: float = keys.field(0.02, _read_delta)
    confidence: float = keys.field(0.95, _read_confidence)
    top: int = keys.field(1, keys.whole(1, MAX_TOP))
    min_blocks: int = keys.field(FIRST_LOOK, keys.whole(FIRST_LOOK, MAX_RACE_BLOCKS))
    max_blocks: int = keys.field(40, keys.whole(FIRST_LOOK, MAX_RACE_BLOCKS))

    def __post_init__(self) -> None:
        for name, each in keys.of(type(self)).items():
            each.metadata["read"](getattr(self, name))
        if self.min_blocks > self.max_blocks:
            raise ValueError("min_blocks <= max_blocks must hold")

    @property
    def margin(self) -> float:
        """``delta`` on the log scale: a cell this far behind is at 1 - delta of the other."""
        return -math.log1p(-self.delta)

    def most_runs(self, cells: int) -> int:
        """What a race of so many cells costs at most."""
        return self.max_blocks * cells

    @property
    def likely(self) -> bool:
        """Whether the answer is to be likely, not sure."""
        return False


@dataclass(frozen=True)
class LikelyRules(RaceRules):
    """``confidence``: how likely the announced best are to be among the best within ``delta``, by a
    posterior. Every cell runs in ``min_blocks``. It costs no more than EXHAUSTIVE complete blocks.
    """

    min_blocks: int = keys.field(1, keys.whole(1, MAX_RACE_BLOCKS))

    def most_runs(self, cells: int) -> int:
        return min(self.max_blocks, EXHAUSTIVE) * cells

    @property
    def likely(self) -> bool:
        return True


RULES: dict[str, type[RaceRules]] = {"decided": RaceRules, "likely": LikelyRules}
"""The kinds of races by what they stop at."""


@dataclass(frozen=True)
class Protocol:
    """``[protocol]``. ``size`` None: the plan chooses. ``seed`` 0: from the study's content."""

    stop: str = keys.field("blocks", keys.choice("blocks", "decided", "likely"))
    blocks: int = keys.field(DEFAULT_BLOCKS, keys.whole(1, 10_000))
    seed: int = keys.field(0, keys.whole(1, keys.MAX_SEED))
    size: int | None = keys.field(None, keys.auto_size)
    runtime: float = keys.field(10.0, keys.duration(1))
    ramp: float = keys.field(2.0, keys.duration(0))
    run_timeout: float = keys.field(1800.0, keys.duration(1))
    race: RaceRules | None = None


def read_protocol(content: object, mistakes: keys.Mistakes) -> Protocol:
    """``blocks`` and what rules a race exclude each other: which of two limits is meant should not
    have to be guessed. Mistakes are noted."""
    place = ("protocol",)
    given = keys.read_mapping(content, place, mistakes)
    rules = {name: value for name, value in given.items() if name in keys.of(RaceRules)}
    protocol = keys.read_table(Protocol, given, place, mistakes, keys.of(RaceRules))
    if protocol.stop not in RULES:
        for name in rules:
            message = f'{name}: this goes with stop = "decided" or "likely"'
            mistakes.add((*place, name), message)
        return protocol
    if "blocks" in given:
        message = "blocks: a race has min_blocks and max_blocks instead"
        mistakes.add((*place, "blocks"), message)
    race = keys.read_table(RULES[protocol.stop], rules, place, mistakes)
    return replace(protocol, blocks=race.max_blocks, race=race)


def find_rules(text: str) -> RaceRules | None:
    """The rules in a study's text; None where it is no race (or no study file at all: what was
    imported keeps a text of its own, and a store may come from anywhere)."""
    import tomllib

    try:
        protocol = tomllib.loads(text).get("protocol")
    except (ValueError, RecursionError):
        return None
    if not isinstance(protocol, dict):
        return None
    kind = RULES.get(str(protocol.get("stop")))
    if kind is None:
        return None
    mistakes = keys.Mistakes("", "")
    rules = {name: protocol[name] for name in protocol.keys() & keys.of(RaceRules).keys()}
    race = keys.read_table(kind, rules, ("protocol",), mistakes)
    return None if mistakes.found else race
