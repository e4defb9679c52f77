"""What the keys of a study's tables may hold, as data: type, bounds and default of each stand once.

A table with the same keys for all is a frozen record whose fields are made by ``field``. One whose
keys depend on its kind (a program, a backing, a load) has ``Option`` rows; those are kept as text
in canonical spelling, so that ids are stable.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from diskproof.errors import StudyError
from diskproof.study.toml_lines import Location, dotted, find_line, shown, unknown
from diskproof.units import MIB, SCALE, parse_seconds, parse_size, render_bytes

_Value = TypeVar("_Value")
_Table = TypeVar("_Table")
Reader = Callable[[Any], _Value]
"""A value of the file to what it means. Raises ValueError."""

DAY = 86_400
MAX_SEED = 2**31 - 1


class BadValue(ValueError):
    """A mistake in one item of a list: ``value`` is that item."""

    def __init__(self, message: str, value: object) -> None:
        super().__init__(message)
        self.value = value


class Mistakes:
    """Gathers the mistakes of one file, to name all of them at once."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.found: set[tuple[int, str]] = set()

    def add(self, location: Location, message: str, value: object = None) -> None:
        self.found.add((find_line(self.text, location, value) or 0, message))

    @contextmanager
    def noting(self, location: Location, value: object) -> Iterator[None]:
        """A ValueError in the block becomes a mistake of that value."""
        try:
            yield
        except ValueError as error:
            self.add(location, f"{dotted(location)}: {error}", getattr(error, "value", value))

    def raise_any(self) -> None:
        if not self.found:
            return
        lines = [
            f"{self.file}:{line}: {message}" if line else f"{self.file}: {message}"
            for line, message in sorted(self.found)[:20]
        ]
        raise StudyError("\n".join(lines))


def field(
    default: _Value, read: Reader[_Value], *, key: str = "", required: bool = False
) -> _Value:
    """A field that is a key of its table, called ``key`` there (empty: as the field). One that is
    ``required`` has its default only until the mistake is told."""
    said = {"read": read, "key": key, "required": required}
    made: _Value = dataclasses.field(default=default, metadata=said)
    return made


def of(table: type[Any]) -> dict[str, dataclasses.Field[Any]]:
    """The keys of a table by their names in the file."""
    fields = [each for each in dataclasses.fields(table) if "read" in each.metadata]
    return {each.metadata["key"] or each.name: each for each in fields}


def read_table(
    table: type[_Table],
    content: object,
    location: Location,
    mistakes: Mistakes,
    others: Iterable[str] = (),
    **fixed: object,
) -> _Table:
    """The record of a table; mistakes are noted. ``others`` are keys that somebody else reads,
    ``fixed`` the fields that are none."""
    keys, values = of(table), dict(fixed)
    given = read_mapping(content, location, mistakes)
    for key, value in given.items():
        if key in keys:
            with mistakes.noting((*location, key), value):
                values[keys[key].name] = keys[key].metadata["read"](value)
        elif key not in others:
            mistakes.add((*location, key), unknown("key", key, [*keys, *others]))
    for key, each in keys.items():
        if each.metadata["required"] and key not in given:
            mistakes.add(location, f"{dotted(location)}: {key} is missing")
    try:
        return table(**values)
    except ValueError as error:  # keys that do not go together
        named = next((key for key in given if key in str(error)), "")
        mistakes.add((*location, named), f"{dotted(location)}: {error}")
        return table(**fixed)


def read_mapping(content: object, location: Location, mistakes: Mistakes) -> Mapping[str, Any]:
    """The content where a table is wanted; anything else is noted and taken as an empty one."""
    if isinstance(content, dict):
        return content
    mistakes.add(location, f"{dotted(location)}: {shown(content)} is not a table", content)
    return {}


def read_tables(
    content: object, location: Location, mistakes: Mistakes, read_name: Reader[str] | None = None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The tables in a table of tables, with their names."""
    for key, each in read_mapping(content, location, mistakes).items():
        place = (*location, key)
        with mistakes.noting(place, None):
            (read_name or name)(key)
        yield key, read_mapping(each, place, mistakes)


# -- readers of values ----------------------------------------------------------------------


def _reader(accept: Callable[[Any], _Value | None], like: str) -> Reader[_Value]:
    """``accept`` gives None for what is not ``like`` that."""

    def read(value: object) -> _Value:
        if (found := accept(value)) is None:
            raise ValueError(f"{shown(value)} is not {like}")
        return found

    return read


def text(most: int = 4096, *, least: int = 0) -> Reader[str]:
    fits = range(least, most + 1)
    like = f"text of {least or 'at most'} {'to ' if least else ''}{most} characters"
    return _reader(lambda v: v if isinstance(v, str) and len(v) in fits else None, like)


def matching(pattern: str, like: str) -> Reader[str]:
    matches = re.compile(pattern).fullmatch
    return _reader(lambda v: v if isinstance(v, str) and matches(v) else None, like)


def choice(*words: str) -> Reader[str]:
    return _reader(lambda v: v if v in words else None, f"one of {', '.join(words)}")


def whole(low: int, high: int) -> Reader[int]:
    fits = range(low, high + 1)
    like = f"a whole number from {low} to {high}"
    return _reader(lambda v: v if type(v) is int and v in fits else None, like)


def duration(low: float) -> Reader[float]:
    """A time of at most a day, in seconds."""

    def accept(value: object) -> float | None:
        found = parse_seconds(value) if isinstance(value, str | int | float) else -1
        return found if low <= found <= DAY else None

    return _reader(accept, f"a time from {low:g} s to 24 h")


def mib(low: int, high: int) -> Reader[int]:
    """A size of whole MiB, in bytes."""

    def accept(value: object) -> int | None:
        found = parse_size(value) if isinstance(value, str | int) else -1
        return found if found % MIB == 0 and low <= found <= high else None

    return _reader(
        accept, f"a whole number of MiB from {render_bytes(low)} to {render_bytes(high)}"
    )


flag = _reader(lambda v: v if isinstance(v, bool) else None, "true or false")
times = _reader(
    lambda v: float(v) if type(v) in (int, float) and 1 < v <= 1000 else None,
    "a number greater than 1 and at most 1000",
)
name = matching(
    r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", "a name of at most 64 letters, digits, '.', '_' and '-'"
)
MAX_STUDY_NAME = 64


def study_name(value: object) -> str:
    """A name in any script, in Unicode's composed form; it becomes a part of file names, of XML
    and of command lines, so that it has no blanks, controls or marks of direction."""
    text_ = unicodedata.normalize("NFC", value) if isinstance(value, str) else ""
    kinds = [unicodedata.category(char)[0] for char in text_]
    inner = all(kind in "LNM" or char in "._-" for char, kind in zip(text_, kinds, strict=True))
    if not text_ or kinds[0] not in "LN" or not inner or len(text_) > MAX_STUDY_NAME:
        raise ValueError(
            f"{shown(value)} is not a name: at most {MAX_STUDY_NAME} letters of any script, "
            "digits, '.', '_' and '-', a letter or digit first"
        )
    return text_


def study_name_of(stem: str) -> str:
    """The name of a study whose file has this one, and says none."""
    kept = "".join(
        char if unicodedata.category(char)[0] in "LNM" or char in "._-" else "-"
        for char in unicodedata.normalize("NFC", stem)
    )[:MAX_STUDY_NAME]
    if unicodedata.category(kept[:1] or " ")[0] == "M":  # it would stand on what comes before
        kept = f"-{kept[1:]}"
    return kept if kept.strip("-._") else "study"


share = matching(SCALE, "a share of the full size: 1 or 1/N")
disk_size = mib(16 * MIB, 1 << 60)


def auto_size(value: object) -> int | None:
    """The size of a disk under test; None: the plan chooses."""
    return None if value == "auto" else disk_size(value)


def level(value: object, most: int = 64) -> str:
    """A level as text: QEMU writes booleans as on and off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return text(most)(str(value) if isinstance(value, int) else value)


def argument(value: object) -> str:
    """A word of a command line."""
    return level(value, 4096)


def some(read: Reader[_Value], most: int, *, least: int = 1) -> Reader[tuple[_Value, ...]]:
    """A list of so many."""

    def read_all(value: object) -> tuple[_Value, ...]:
        if not isinstance(value, list):
            raise ValueError(f"{shown(value)} is not a list")
        if not least <= len(value) <= most:
            raise ValueError(f"it has {len(value)} items; at least {least}, at most {most} can be")
        return tuple(map(_pointing(read), value))

    return read_all


def one_or_some(read: Reader[_Value], most: int) -> Reader[tuple[_Value, ...]]:
    """A list, or what would stand alone in it. What stands there twice is a mistake."""
    several = some(read, most)

    def read_each(value: object) -> tuple[_Value, ...]:
        found = several(value if isinstance(value, list) else [value])
        twice = next((each for place, each in enumerate(found) if each in found[:place]), None)
        if twice is not None:
            raise BadValue(f"{shown(twice)} stands there twice", twice)
        return found

    return read_each


def known(what: str, names: Iterable[str]) -> Reader[tuple[str, ...]]:
    """One or some of these names."""

    def read(value: object) -> str:
        if (found := level(value)) not in names:
            raise ValueError(unknown(what, found, names))
        return found

    return one_or_some(read, 20)


levels = one_or_some(level, 1000)


def _pointing(read: Reader[_Value]) -> Reader[_Value]:
    """The reader, whose errors tell which of the items it was."""

    def read_item(value: object) -> _Value:
        try:
            return read(value)
        except ValueError as error:
            raise BadValue(str(error), value) from None

    return read_item


# -- keys that depend on the kind of a table --------------------------------------------------


@dataclass(frozen=True)
class Option:
    """One key. ``default`` None: it must be given. ``read`` takes text of at most ``most``
    characters and gives its canonical spelling."""

    default: str | None = ""
    read: Reader[str] = text()
    most: int = 4096

    @property
    def default_text(self) -> str:
        """The default in canonical spelling."""
        return self.read(self.default) if self.default else ""

    def parse(self, value: object) -> str:
        """A value of the file in canonical spelling. Raises ValueError."""
        return self.read(level(value, self.most))


def read_options(
    options: Mapping[str, Option],
    given: Mapping[str, object],
    location: Location,
    mistakes: Mistakes,
    what: str,
    others: Iterable[str] = (),
) -> dict[str, str]:
    """All options in canonical spelling, with their defaults where the table is silent; mistakes
    are noted. ``what`` is not known is called so; ``others`` are keys that somebody else reads."""
    found = {key: option.default_text for key, option in options.items()}
    for key, value in given.items():
        if key not in options:
            known_keys = dict.fromkeys([*options, *others])
            mistakes.add((*location, key), unknown(what, key, known_keys))
            continue
        with mistakes.noting((*location, key), value):
            found[key] = options[key].parse(value)
    for key, option in options.items():
        if option.default is None and key not in given:
            mistakes.add(location, f"{dotted(location)}: {key} is missing")
    return found


def one_of(*words: str) -> Option:
    """A key with a few words to choose from, the default first."""
    return Option(words[0], choice(*words))


def like(default: str | None, pattern: str, what: str) -> Option:
    """A key with text of a pattern; ``what`` completes "is not ..."."""
    return Option(default, matching(pattern, what))


def count(default: int, low: int, high: int, of: str = "") -> Option:
    """A key with a number ``of`` something."""

    def accept(value: str) -> str | None:
        fits = re.fullmatch(r"[0-9]{1,9}", value) and low <= int(value) <= high
        return str(int(value)) if fits else None

    return Option(
        str(default), _reader(accept, f"a whole number from {low} to {high} {of}".strip())
    )


def size(default: str) -> Option:
    """A key with a number of bytes."""
    return Option(default, lambda value: str(parse_size(value)))


def time(default: str) -> Option:
    """A key with a number of seconds."""
    return Option(default, lambda value: f"{parse_seconds(value):g}")


def scale(default: str) -> Option:
    """A key with a share of the full size of something."""
    return Option(default, share)


def figure_regex(value: str) -> str:
    """A regular expression with one group, or nothing."""
    try:
        groups = re.compile(value).groups
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{shown(value)} is not a regular expression: {error}") from None
    if value and groups != 1:
        raise ValueError(f"{shown(value)} has {groups} groups; one is to hold the figure")
    return matching(r"[^\x00-\x1f]{0,1000}", "one line")(value)
