"""What ``--json`` prints of the causes of a loss."""

from typing import TypedDict


class PlaceJson(TypedDict):
    """A call in a program; ``offset`` is the address in the file ``module``, of a script a number.
    Without a ``line`` ``function`` is a symbol, with the bytes behind its begin; what is not known
    is empty."""

    module: str
    offset: int
    function: str
    file: str
    line: int | None


class CallerJson(TypedDict):
    """A thread; ``name`` is its own. ``place`` is the innermost of the program's own calls that
    led to what it asked, ``frames`` are these, at most five, with those of a script's standard
    library; null and empty where nobody knows."""

    process: int
    thread: int
    name: str
    place: PlaceJson | None
    frames: list[PlaceJson]


class ChangeJson(TypedDict):
    """A change of the recorded folder; ``to`` is the second path of a rename or link, ``by`` null
    where nobody knows who made it."""

    record: int
    operation: str
    path: str
    to: str
    offset: int | None
    bytes: int | None
    torn: bool
    by: CallerJson | None


class CauseJson(TypedDict):
    number: int
    text: str
    operations: list[ChangeJson]
    verdict: str
    lost: int
    age_seconds: float
    state: str
    states: int
    alike: int
    cure: str
    cures: bool


class NeedlessJson(TypedDict):
    operation: str
    path: str
    count: int
    seconds: float
    needless: int
    needless_seconds: float
    needless_alone: int
    unknown: int


class CausesJson(TypedDict):
    found: list[CauseJson]
    finished: bool
    cured: bool | None
    flushes: NeedlessJson
    flushes_by_path: list[NeedlessJson]
    failure: str
