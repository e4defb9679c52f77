"""What changed between two texts of one study."""

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from diskproof.study.toml_lines import Location, dotted, shown

_SHAPES_NO_RUN = (
    ("description",),
    ("crash",),
    ("tiles",),
    *(("protocol", key) for key in ("blocks", "max_blocks", "stop", "delta", "confidence")),
)
"""Keys that may change without making another study of it (``Study.id``)."""


def find_changes(before: str, after: str) -> tuple[str, ...]:
    """The keys that differ, with both values, in the order of the files; none where the texts are
    no TOML, or differ in what shapes no run."""
    try:
        old, new = (dict(_values(tomllib.loads(text))) for text in (before, after))
    except (ValueError, RecursionError):
        return ()
    places = [place for place in {**new, **old} if old.get(place) != new.get(place)]
    return tuple(
        f"{dotted(place)} ({_shown(old, place)} -> {_shown(new, place)})"
        for place in places
        if not any(place[: len(key)] == key for key in _SHAPES_NO_RUN)
    )


def _shown(values: Mapping[Location, Any], place: Location) -> str:
    return shown(values[place]) if place in values else "not there"


def _values(content: object, place: Location = ()) -> Iterator[tuple[Location, object]]:
    """Every value that is no table, with where it stands."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _values(value, (*place, key))
    elif isinstance(content, list) and any(isinstance(item, dict) for item in content):
        for number, item in enumerate(content, 1):
            yield from _values(item, (*place, number))
    else:
        yield place, content
