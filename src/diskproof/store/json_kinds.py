"""Kinds of columns that hold JSON: lists of records, pairs and objects, bounded in every way."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Text

from diskproof.records import Check, Dropped
from diskproof.records.verdicts import TraceEvent
from diskproof.store.budget import current_budget
from diskproof.store.kinds import (
    MAX_FREE_TEXT,
    MAX_LEVEL,
    MAX_PARTS,
    MAX_PER_RUN,
    MAX_TEXT,
    NAME,
    SMALL,
    TEXT_ONLY,
    ColumnKind,
    Find,
    Written,
    flaw_of_count,
    flaw_of_name,
    flaw_of_reals,
)

MAX_JSON = 32 << 20
MAX_DEPTH = 32
Pairs = tuple[tuple[str, str], ...]


def render_json(content: object) -> str:
    """Plain ASCII JSON (no text can break a database's encoding). Raises ValueError for NaN."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(content: Any) -> object:
    """Records in JSON are lists of their fields."""
    return dict(content) if isinstance(content, Mapping) else dataclasses.astuple(content)


def _json(decode: Callable[[Any], Any], find_flaw: Find, most: int = MAX_JSON) -> ColumnKind:
    """``most``: so many characters a database may have of it."""

    def parse(text: str) -> Any:
        if len(text) > most:
            raise ValueError(f"is longer than {most} characters")
        if len(text) > SMALL:
            # The worst JSON, empty objects, takes this many bytes a character.
            current_budget().require(24 * len(text))
        content = _DECODER.decode(text)
        return decode(_written_out(content) if _HALF_A_LETTER.search(text) else content)

    kept = Written(Text(), render_json)
    return ColumnKind(kept, TEXT_ONLY, find_flaw, parse, most_bytes=most)


def _written_out(content: Any) -> Any:
    """Halves of characters, which only escapes can spell, are replaced: no page can hold one."""
    return json.loads(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))


_HALF_A_LETTER = re.compile(r"\\u[dD]")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"holds {name}")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _list(
    decode: Callable[[Any], Any],
    most: int,
    find_flaw: Find,
) -> ColumnKind:
    """A list of at most so many records; ``find_flaw`` is asked of each."""

    def find(items: Sequence[Any]) -> str | None:
        if len(items) > most:
            return f"more than {most}"
        return next(filter(None, map(find_flaw, items)), None)

    return _json(lambda content: tuple(map(decode, content)), find)


def _flaw_of_object(content: Mapping[str, object]) -> str | None:
    try:
        text = render_json(content)
    except (TypeError, ValueError, RecursionError) as error:
        return f"not plain JSON: {error}"
    if _depth(content) > MAX_DEPTH:
        return f"deeper than {MAX_DEPTH} levels"
    return None if len(text) <= MAX_TEXT else f"longer than {MAX_TEXT} characters"


def _depth(content: object) -> int:
    """How deep lists and objects lie in each other, reckoned to just beyond MAX_DEPTH."""
    depth, level = 0, [content]
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            inner
            for outer in level
            if isinstance(outer, (Mapping, list, tuple))
            for inner in (outer.values() if isinstance(outer, Mapping) else outer)
        ]
    return depth


def _flaw_of_tally(tally: Mapping[str, int]) -> str | None:
    flaws = (flaw_of_name(name) or flaw_of_count(count) for name, count in tally.items())
    return next(filter(None, flaws), None)


def _flaw_of_check(check: Check) -> str | None:
    length = sum(map(len, (check.name, check.requested, check.effective, check.source)))
    return None if length <= MAX_FREE_TEXT else f"one is longer than {MAX_FREE_TEXT} characters"


def _flaw_of_text(text: str) -> str | None:
    return None if len(text) <= MAX_FREE_TEXT else f"one is longer than {MAX_FREE_TEXT} characters"


def _flaw_of_dropped(dropped: Dropped) -> str | None:
    return _flaw_of_text(dropped.reason) or flaw_of_count(dropped.count)


def _text(content: Any) -> str:
    if type(content) is not str:
        raise TypeError("holds something else where a text was written")
    return content


def _number(content: Any) -> float:
    if type(content) not in (int, float):
        raise TypeError("holds something else where a number was written")
    return float(content)


def _integer(content: Any) -> int:
    if type(content) is not int:
        raise TypeError("holds something else where a whole number was written")
    return content


def _pairs(most: int) -> ColumnKind:
    def decode(content: Any) -> Pairs:
        pairs = tuple(map(tuple, content))
        if not set(map(len, pairs)) <= {2} or not set(map(type, chain(*pairs))) <= TEXT_ONLY:
            raise TypeError("holds something else where pairs of texts were written")
        return pairs

    def find(pairs: Pairs) -> str | None:
        if not pairs:
            return None
        names, levels = zip(*pairs, strict=True)
        if len(pairs) > MAX_PER_RUN:
            return f"more than {MAX_PER_RUN}"
        if not NAME.are_good(names):
            return next(filter(None, map(flaw_of_name, names)), None)
        longest = max(levels, key=len)
        if len(longest) > most:
            return f"{names[levels.index(longest)]!r} is longer than {most} characters"
        chars = sum(map(len, chain(names, levels)))
        return "together longer than a column may be" if 6 * chars + MAX_TEXT > chars_kept else None

    chars_kept = MAX_JSON if most > MAX_LEVEL else 8 << 20
    return _json(decode, find, chars_kept)


def _phase(content: Any) -> tuple[str, float]:
    name, seconds = content
    return _text(name), _number(seconds)


def _event(content: Any) -> TraceEvent:
    seconds, *texts = content
    return TraceEvent(_number(seconds), *map(_text, texts))


def _check(content: Any) -> Check:
    name, requested, effective, source, ok = content
    return Check(_text(name), _text(requested), _text(effective), _text(source), ok is True)


def _example(content: Any) -> Pairs:
    return tuple((_text(name), _text(level)) for name, level in content)


def _dropped(content: Any) -> Dropped:
    reason, count, example = content
    return Dropped(_text(reason), _integer(count), _example(example))


LEVELS, OPTIONS = _pairs(MAX_LEVEL), _pairs(MAX_TEXT)
PHASES = _list(_phase, MAX_PER_RUN, lambda phase: flaw_of_reals(phase[1:]))
CHECKS = _list(_check, MAX_PARTS, _flaw_of_check)
EVENTS = _list(_event, MAX_PARTS, lambda event: flaw_of_reals((event.seconds,)))
NUMBERS = _list(_integer, MAX_PARTS, flaw_of_count)
DROPPED = _list(_dropped, MAX_PARTS, _flaw_of_dropped)
TEXTS = _list(_text, MAX_PARTS, _flaw_of_text)
TALLY = _json(
    lambda content: {name: _integer(number) for name, number in content.items()}, _flaw_of_tally
)
OBJECT = _json(lambda content: dict(content.items()), _flaw_of_object)
