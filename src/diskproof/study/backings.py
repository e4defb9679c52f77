"""The ``[backings.NAME]`` tables of a study: the keys of each kind as data, and how a table becomes
one backing for every combination of the values in its lists."""

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from diskproof.records import BackingSpec
from diskproof.study import keys
from diskproof.study.factors import FACTOR_BY_NAME
from diskproof.study.toml_lines import unknown

MAX_BACKINGS = 100
FOLDER = BackingSpec("directory", "directory", (("path", "diskproof-images"),), make=True)
"""Where backings are made that are not on another one, and disks of studies without a table."""

OVER_NETWORK = ("nbd", "iscsi")
"""Kinds that QEMU has a client for; no device of the host is made."""
SERVED = (*OVER_NETWORK, "lio")
"""Kinds that a server of the study's own hands out, unless they name another one."""
NOT_OWN = ("directory", "device", "nbd", "iscsi")
"""Kinds that may not be filled up: others use them, or the study has not made them."""


@dataclass(frozen=True)
class Kind:
    """``nests``: the table may say ``on = "NAME"``, the backing that it is made on, or where the
    logs of its runs go; without it, that is a folder in the current one. ``carries``: others can
    be made on it."""

    options: Mapping[str, keys.Option]
    nests: bool = True
    carries: bool = True


def _words(what: str) -> keys.Option:
    return keys.like("", r"[A-Za-z0-9_=,.:/^ -]{0,400}", what)


def _levels(factor: str) -> keys.Option:
    """What the factor of that name may be."""
    row = FACTOR_BY_NAME[factor]
    return keys.Option(row.default, keys.choice(*row.levels))


_NBD = r"(nbd(://[A-Za-z0-9.:\[\]-]+|\+unix://)/[^\x00-\x20,]{0,300})?"
_DEVICE = r"/dev/[A-Za-z0-9._/-]{1,255}"
_DEVICES = f"({_DEVICE}( {_DEVICE})*)?"

KINDS: Mapping[str, Kind] = {
    "directory": Kind({"path": keys.like(None, r"[^\x00]{1,4096}", "a path")}, nests=False),
    "filesystem": Kind(
        {
            "fs": keys.like("ext4", r"[a-z0-9]{1,16}", "a type of file system that mkfs makes"),
            "size": keys.size(""),
            "mkfs": _words("options of mkfs"),
            "mount": _words("mount options"),
        }
    ),
    "tmpfs": Kind({"size": keys.size("1GiB")}),
    "device": Kind({"path": keys.like(None, _DEVICE, "a block device")}),
    "lvm": Kind(
        {
            "type": keys.one_of("linear", "snapshot", "thin"),
            "size": keys.size(""),
            "chunk": keys.size(""),
        }
    ),
    "md": Kind(
        {
            "level": keys.one_of("0", "1", "5", "10"),
            "members": keys.count(4, 2, 24),
            "size": keys.size(""),
            "chunk": keys.size("512KiB"),
            "bitmap": keys.one_of("none", "internal"),
            "path": keys.like("", f"({_DEVICE}( {_DEVICE})*)?", "block devices, with spaces"),
        }
    ),
    "nbd": Kind(
        {
            "server": keys.one_of("qemu-nbd"),
            "cache": _levels("cache"),
            "aio": _levels("aio"),
            "discard": keys.one_of("unmap", "ignore"),
            "uri": keys.like("", _NBD, "like nbd://HOST:PORT/EXPORT"),
        },
        carries=False,
    ),
    "iscsi": Kind(
        {"store": keys.one_of("fileio", "fileio-wb", "blockio", "aio", "nullio")}, carries=False
    ),
    "lio": Kind(
        {"store": keys.one_of("fileio", "fileio-wb", "blockio", "nullio"), "size": keys.size("")}
    ),
    "zfs": Kind(
        {
            "type": keys.one_of("zvol", "dataset"),
            "vdev": keys.one_of("single", "mirror", "raidz1", "raidz2"),
            "members": keys.count(0, 0, 24),
            "log": keys.one_of("none", "file"),
            "size": keys.size(""),
            "reserve": keys.one_of("no", "yes"),
            "volblocksize": keys.size("16KiB"),
            "recordsize": keys.size("128KiB"),
            "sync": keys.one_of("standard", "always", "disabled"),
            "compression": keys.like("on", r"[a-z0-9-]{1,16}", "a way to compress"),
            "logbias": keys.one_of("latency", "throughput"),
            "primarycache": keys.one_of("all", "metadata", "none"),
            "atime": keys.one_of("on", "off"),
        }
    ),
}


@dataclass(frozen=True)
class BackingTable:
    """``[backings.NAME]``; ``values`` are those of the keys of its kind, one or some of each."""

    kind: str = keys.field("directory", keys.text())
    on: str | None = keys.field(None, keys.name)
    values: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def has_kind(self) -> bool:
        """An unknown kind is a mistake of its own."""
        return self.kind in KINDS


Tables = Mapping[str, BackingTable]
Made = dict[str, tuple[BackingSpec, ...]]


def read_backings(content: object, mistakes: keys.Mistakes) -> tuple[Tables, Made]:
    """The tables, and by their names the backings that each makes, in the order of the file;
    mistakes are noted."""
    tables = {
        name: _read_table(name, each, mistakes)
        for name, each in keys.read_tables(content, ("backings",), mistakes)
    }
    made: Made = {}
    for name in tables:
        _make(name, tables, made, (), mistakes)
    names = [spec.name for specs in made.values() for spec in specs]
    if len(names) > MAX_BACKINGS:
        mistakes.add(("backings",), f"backings: more than {MAX_BACKINGS} combinations")
    for name in sorted({name for name in names if names.count(name) > 1}):
        mistakes.add(("backings",), f"backings: two backings have the name {name}")
    return tables, {name: made[name] for name in tables if name in made}


def chain(spec: BackingSpec) -> tuple[BackingSpec, ...]:
    """A backing and those it is made on, the lowest last."""
    return (spec, *(chain(spec.on) if spec.on else ()))


def allow_making(spec: BackingSpec) -> BackingSpec:
    """The same, and the folder that it lies in is made where it is not there."""
    return replace(spec, make=True, on=allow_making(spec.on) if spec.on else None)


def _read_table(name: str, given: Mapping[str, object], mistakes: keys.Mistakes) -> BackingTable:
    place = ("backings", name)
    own = {each: value for each, value in given.items() if each not in keys.of(BackingTable)}
    table = keys.read_table(BackingTable, given, place, mistakes, own)
    if not table.has_kind:
        mistakes.add((*place, "kind"), unknown("backing kind", table.kind, KINDS))
        return table
    return replace(table, values=tuple(_values(table.kind, own, place, mistakes)))


def _values(
    kind: str, given: Mapping[str, object], place: tuple[str, str], mistakes: keys.Mistakes
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each option with its values, defaults included, in the order of the kind."""
    options = KINDS[kind].options
    for name in given.keys() - options.keys():
        known = [*options, "kind", *(["on"] if KINDS[kind].nests else [])]
        mistakes.add((*place, name), unknown(f"key of a {kind}", name, known))
    for name, option in options.items():
        values: tuple[str, ...] = (option.default_text,)
        if name in given:
            with mistakes.noting((*place, name), given[name]):
                values = keys.one_or_some(option.parse, 100)(given[name])
        elif option.default is None:
            mistakes.add(place, f"backings.{place[1]}: {name} is missing")
        yield name, values


def _make(
    name: str, tables: Tables, made: Made, above: tuple[str, ...], mistakes: keys.Mistakes
) -> tuple[BackingSpec, ...]:
    """The backings of one table, and before them those of the table below."""
    if name in made:
        return made[name]
    table = tables[name]
    if not table.has_kind:
        return ()
    bases: tuple[BackingSpec | None, ...] = (FOLDER,) if KINDS[table.kind].nests else (None,)
    if table.on is not None:
        why = _refuse_base(name, table.kind, table.on, tables, above)
        if why:
            mistakes.add(("backings", name, "on"), why, table.on)
        else:
            bases = _make(table.on, tables, made, (*above, name), mistakes)
    made[name] = tuple(_combine(name, table, bases))
    return made[name]


def _refuse_base(name: str, kind: str, on: str, tables: Tables, above: tuple[str, ...]) -> str:
    """Why a backing cannot be made on that one; empty when it can."""
    if not KINDS[kind].nests:
        return f"on: a {kind} is not made on another backing"
    if on not in tables:
        return unknown("backing", on, tables)
    if tables[on].has_kind and not KINDS[tables[on].kind].carries:
        return f"on: {on} is reached over a network, and nothing is made on it here"
    return f"on: {name} stands on itself" if on in (*above, name) else ""


def _combine(
    name: str, table: BackingTable, bases: tuple[BackingSpec | None, ...]
) -> Iterator[BackingSpec]:
    """Names tell the values of those options that have several, and the base if there are."""
    values = dict(table.values)
    for base, combination in itertools.product(bases, itertools.product(*values.values())):
        options = tuple(zip(values, combination, strict=True))
        parts = [_as_name(value) for key, value in options if len(values[key]) > 1]
        if len(bases) > 1 and base:
            parts += ["on", base.name]
        yield BackingSpec("-".join([name, *parts])[:64], table.kind, options, base)


def _as_name(value: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", "-", value).strip("-") or "default"
