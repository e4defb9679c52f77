"""The ``[backings.NAME]`` tables of a study: each becomes one backing for every combination of
the values in its lists."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from diskproof.records import BackingSpec
from diskproof.study.backing_rules import KINDS
from diskproof.study.keys import Option
from diskproof.study.toml_lines import Mistakes, unknown

if TYPE_CHECKING:
    from diskproof.study.file import BackingTable

MAX_BACKINGS = 100
FOLDER = BackingSpec("directory", "directory", (("path", "diskproof-images"),))
"""Where backings are made that are not on another one, and disks of studies without a table."""

Tables = Mapping[str, "BackingTable"]


def read_backings(tables: Tables, mistakes: Mistakes) -> dict[str, tuple[BackingSpec, ...]]:
    """Table name -> the backings it makes, in the order of the file; mistakes are noted."""
    made: dict[str, tuple[BackingSpec, ...]] = {}
    for name in tables:
        _make(name, tables, made, (), mistakes)
    names = [spec.name for specs in made.values() for spec in specs]
    if len(names) > MAX_BACKINGS:
        mistakes.add(("backings",), f"backings: more than {MAX_BACKINGS} combinations")
    for name in sorted({name for name in names if names.count(name) > 1}):
        mistakes.add(("backings",), f"backings: two backings have the name {name}")
    return {name: made[name] for name in tables if name in made}


def chain(spec: BackingSpec) -> tuple[BackingSpec, ...]:
    """A backing and those it is made on, the lowest last."""
    return (spec, *(chain(spec.on) if spec.on else ()))


def _make(
    name: str,
    tables: Tables,
    made: dict[str, tuple[BackingSpec, ...]],
    above: tuple[str, ...],
    mistakes: Mistakes,
) -> tuple[BackingSpec, ...]:
    """The backings of one table, and before them those of the table below."""
    if name in made:
        return made[name]
    table = tables[name]
    bases: tuple[BackingSpec | None, ...] = (None,)
    if table.kind not in KINDS:
        mistakes.add(("backings", name, "kind"), unknown("backing kind", table.kind, KINDS))
        return ()
    if table.on is not None and not KINDS[table.kind].nests:
        mistakes.add(("backings", name, "on"), f"on: a {table.kind} is not made on another backing")
    elif table.on is not None and table.on not in tables:
        mistakes.add(("backings", name, "on"), unknown("backing", table.on, tables), table.on)
    elif table.on is not None and not _carries(tables[table.on]):
        what = f"on: {table.on} is reached over a network, and nothing is made on it here"
        mistakes.add(("backings", name, "on"), what, table.on)
    elif table.on is not None and table.on in (*above, name):
        mistakes.add(("backings", name, "on"), f"on: {name} stands on itself", table.on)
    elif table.on is not None:
        bases = _make(table.on, tables, made, (*above, name), mistakes)
    elif KINDS[table.kind].nests:
        bases = (FOLDER,)
    values = dict(_values(name, table, mistakes))
    made[name] = tuple(_combine(name, table.kind, values, bases))
    return made[name]


def _carries(table: BackingTable) -> bool:
    """An unknown kind is a mistake of its own."""
    return table.kind not in KINDS or KINDS[table.kind].carries


def _values(
    name: str, table: BackingTable, mistakes: Mistakes
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each option with its values, defaults included, in the order of the kind."""
    given, options = table.model_extra or {}, KINDS[table.kind].options
    for key in given.keys() - options.keys():
        known = [*options, "kind", *(["on"] if KINDS[table.kind].nests else [])]
        mistakes.add(("backings", name, key), unknown(f"key of a {table.kind}", key, known))
    for key, option in options.items():
        if key in given:
            texts = (_parse(option, (name, key), text, mistakes) for text in given[key])
            yield key, tuple(dict.fromkeys(texts))
        elif option.default is None:
            mistakes.add(("backings", name), f"backings.{name}: {key} is missing")
        else:
            yield key, (option.default_text,)


def _parse(option: Option, where: tuple[str, str], text: str, mistakes: Mistakes) -> str:
    try:
        return option.parse(text)
    except ValueError as error:
        mistakes.add(("backings", *where), f"{where[1]}: {error}", text)
        return ""


def _combine(
    name: str,
    kind: str,
    values: Mapping[str, tuple[str, ...]],
    bases: tuple[BackingSpec | None, ...],
) -> Iterator[BackingSpec]:
    """Names tell the values of those options that have several, and the base if there are."""
    for base, combination in itertools.product(bases, itertools.product(*values.values())):
        options = tuple(zip(values, combination, strict=True))
        parts = [_as_name(value) for key, value in options if len(values[key]) > 1]
        if len(bases) > 1 and base:
            parts += ["on", base.name]
        yield BackingSpec("-".join([name, *parts])[:64], kind, options, base)


def _as_name(value: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", value).strip("-") or "default"
