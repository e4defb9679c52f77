"""A study file: TOML in, a frozen ``Study`` out, every mistake named with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diskproof.errors import StudyError
from diskproof.records import BackingSpec, WorkloadSpec, content_id
from diskproof.records.verdicts import FAULTS
from diskproof.study.backing_tables import FOLDER, read_backings
from diskproof.study.crash import FILE_SYSTEM_BYTES, WRITERS, CrashRules
from diskproof.study.factors import FACTOR_BY_NAME, Factor
from diskproof.study.guest import OwnGuest, check_use, read_guest
from diskproof.study.protocol import RaceRules
from diskproof.study.tile_file import read_rules
from diskproof.study.tiles import TileRules
from diskproof.study.toml_lines import Location, Mistakes, unknown
from diskproof.study.workloads import read_workloads
from diskproof.units import parse_bytes, render_bytes

if TYPE_CHECKING:
    from diskproof.study.file import CrashTable, ProtocolTable, StudyTable

MAX_TEXT = 1 << 20
DEFAULT_BLOCKS = 3
RACE_FIELDS = ("delta", "confidence", "top", "min_blocks", "max_blocks")

Factors = Mapping[str, tuple[str, ...]]
_TABLES_HINT = "workloads is a list of presets, or tables (one may be empty: [workloads.seq-read])"


@dataclass(frozen=True)
class Filter:
    """One ``[[only]]`` or ``[[exclude]]`` table: factor (or ``workload``) -> levels that match."""

    levels: tuple[tuple[str, frozenset[str]], ...]

    def __str__(self) -> str:
        return ", ".join(f"{name}={'|'.join(sorted(wanted))}" for name, wanted in self.levels)


@dataclass(frozen=True)
class Study:
    """A study as written. ``factors`` holds only what the file names, levels in its order.

    ``blocks`` is the most that any cell runs; ``race`` says when cells stop before, if they do.
    ``names_workloads``: the file does, so that they are not the default.
    """

    name: str
    description: str
    text: str
    factors: tuple[tuple[str, tuple[str, ...]], ...]
    workloads: tuple[WorkloadSpec, ...]
    backings: tuple[BackingSpec, ...]
    only: tuple[Filter, ...]
    exclude: tuple[Filter, ...]
    blocks: int
    seed: int
    run_timeout: float
    race: RaceRules | None = None
    crash: CrashRules = CrashRules()
    guest: OwnGuest | None = None
    tiles: TileRules | None = None
    names_workloads: bool = True

    @property
    def id(self) -> str:
        """Hash of what shapes a run; not of when to stop (the number of blocks, the rules of a
        race), so a study can be prolonged, nor of ``crash`` and ``tiles``, whose runs are other
        ones."""
        filters = [
            [[name, sorted(levels)] for name, levels in each.levels]
            for each in (*self.only, Filter(()), *self.exclude)
        ]
        workloads = [[w.name, w.kind, w.options] for w in self.workloads]
        backings = [_backing_shape(backing) for backing in self.backings]
        shape = [self.name, self.factors, workloads, backings, filters, self.seed]
        own = [self.guest.shape] if self.guest else []
        return content_id([*shape, self.run_timeout, *own])

    def levels(self, factor: Factor) -> tuple[str, ...]:
        """The levels the study asks for, or the factor's default."""
        return dict(self.factors).get(factor.name, (factor.default,))


def load_study(path: Path) -> Study:
    """Read a study file. Raises StudyError."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_TEXT + 1)
    except OSError as error:
        raise StudyError(f"cannot read the study {path}", error.strerror or "") from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise StudyError(f"{path}: not a study file", "it is not UTF-8 text") from None
    return parse_study(text, str(path), folder=path.parent)


def parse_study(text: str, file: str = "study.toml", folder: Path = Path()) -> Study:
    """Text to Study; ``folder`` is where fio job files are looked for. Raises StudyError."""
    if len(text) > MAX_TEXT:
        raise StudyError(f"{file}: too large", f"a study has at most {MAX_TEXT >> 20} MiB")
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        where = f"{file}:{line[1]}" if line else file
        hint = _TABLES_HINT if "workloads" in str(error) else ""
        raise StudyError(f"{where}: not valid TOML", str(error), hint) from None
    return read_study(content, text, file, folder)


def read_study(content: dict[str, Any], text: str, file: str, folder: Path) -> Study:
    """TOML content to Study. Raises StudyError with all mistakes of the file."""
    mistakes = Mistakes(text, file)
    table = _read_shape(content, mistakes)
    backings = read_backings(table.backings, mistakes) or {"": (FOLDER,)}
    factors = _factors(table, backings, mistakes)
    workloads = tuple(read_workloads(table, folder, mistakes))
    crash = _crash(table.crash, mistakes)
    names = (*(spec.name for spec in workloads), *crash.writers)
    race = _race(table.protocol, mistakes)
    guest = read_guest(table.guest, folder, mistakes) if table.guest else None
    tiles = read_rules(table.tiles, folder, mistakes) if table.tiles else None
    names += (tiles.tile.name,) if tiles else ()
    sources = _sources(workloads, backings, mistakes)
    check_use(guest, factors, [(spec.name, spec.kind) for spec in workloads], mistakes)
    study = Study(
        name=table.name or re.sub(r"[^A-Za-z0-9._-]", "-", Path(file).stem)[:64] or "study",
        description=table.description,
        text=text,
        factors=tuple(factors.items()),
        workloads=workloads,
        backings=_used_backings(backings, (*factors["backing"], *sources)),
        only=tuple(_filters("only", table.only, factors, names, mistakes)),
        exclude=tuple(_filters("exclude", table.exclude, factors, names, mistakes)),
        blocks=_blocks(table.protocol, race),
        seed=table.protocol.seed or 0,
        run_timeout=table.protocol.run_timeout,
        race=race,
        crash=crash,
        guest=guest,
        tiles=tiles,
        names_workloads="workloads" in table.model_fields_set,
    )
    mistakes.raise_any()
    # Without a seed of its own the same file still gets the same order.
    return study if study.seed else replace(study, seed=int(study.id, 16) % (2**31 - 1) + 1)


def _read_shape(content: dict[str, Any], mistakes: Mistakes) -> StudyTable:
    """The content with its shape checked; parts that do not fit are noted and left out, so that
    what the other parts mean can be checked as well."""
    from pydantic import ValidationError

    from diskproof.study.file import StudyTable, known_keys

    try:
        return StudyTable.model_validate(content)
    except ValidationError as error:
        problems = error.errors(include_url=False)
    for problem in problems:
        location = tuple(problem["loc"])
        if problem["type"] == "extra_forbidden":
            mistakes.add(location, unknown("key", str(location[-1]), known_keys(location)))
        else:
            name = ".".join(str(part) for part in location)[:100]
            message = problem["msg"].removeprefix("Value error, ")
            mistakes.add(location, f"{name}: {message}", problem["input"])
        content = _without(content, location)
    return _read_shape(content, mistakes)


def _without(content: dict[str, Any], location: Location) -> dict[str, Any]:
    """A copy that lacks the innermost table entry on the way to ``location``."""
    key, *rest = location
    inner = content.get(str(key))
    pruned = dict(content)
    if rest and isinstance(inner, dict) and rest[0] in inner:
        pruned[str(key)] = _without(inner, tuple(rest))
    else:
        pruned.pop(str(key), None)
    return pruned


def _backing_shape(spec: BackingSpec) -> list[object]:
    """A backing as it stands in a study's id."""
    shape: list[object] = [spec.name, spec.kind, spec.options]
    return [*shape, _backing_shape(spec.on)] if spec.on else shape


def _used_backings(
    tables: Mapping[str, tuple[BackingSpec, ...]], levels: tuple[str, ...]
) -> tuple[BackingSpec, ...]:
    return tuple(spec for specs in tables.values() for spec in specs if spec.name in levels)


def _sources(
    workloads: tuple[WorkloadSpec, ...],
    tables: Mapping[str, tuple[BackingSpec, ...]],
    mistakes: Mistakes,
) -> tuple[str, ...]:
    """The backings that workloads copy from."""
    known = [spec.name for specs in tables.values() for spec in specs]
    wanted = [(spec.name, name) for spec in workloads if (name := spec.option("source_on"))]
    for workload, name in wanted:
        if name not in known:
            location = ("workloads", workload, "source_on")
            mistakes.add(location, unknown("backing", name, known), name)
    return tuple(name for _, name in wanted)


def _factors(
    table: StudyTable, tables: Mapping[str, tuple[BackingSpec, ...]], mistakes: Mistakes
) -> dict[str, tuple[str, ...]]:
    backings = tuple(spec.name for specs in tables.values() for spec in specs)
    below = {options.on for options in table.backings.values()}
    tops = (spec.name for name, specs in tables.items() if name not in below for spec in specs)
    found: dict[str, tuple[str, ...]] = {"backing": tuple(tops)}
    for key, wanted in table.factors.items():
        factor = FACTOR_BY_NAME.get(_canonical_factor(key))
        if factor is None:
            mistakes.add(("factors", key), unknown("factor", key, FACTOR_BY_NAME))
            continue
        location = ("factors", key)
        if factor.kind == "name":  # a table with lists stands for all that it makes
            names = {name: [spec.name for spec in specs] for name, specs in tables.items()}
            wanted = [level for text in wanted for level in names.get(text, [text])]
        levels = [_level(factor, text, location, backings, mistakes) for text in wanted]
        found[factor.name] = tuple(dict.fromkeys(levels))
    return found


def _level(
    factor: Factor, text: str, location: Location, backings: tuple[str, ...], mistakes: Mistakes
) -> str:
    """One level in canonical spelling."""
    if factor.kind in ("choice", "name"):
        known = backings if factor.kind == "name" else factor.levels
        if text not in known:
            mistakes.add(location, unknown(f"level of {factor.name}", text, known), text)
        return text
    try:
        count = parse_bytes(text)
    except ValueError as error:
        mistakes.add(location, f"{factor.name}: {error}", text)
        return factor.default
    if not factor.low <= count <= factor.high:
        mistakes.add(location, f"{factor.name} = {text}: must be {factor.range_text}", text)
    elif factor.power_of_two and count & (count - 1):
        mistakes.add(location, f"{factor.name} = {text}: must be a power of two", text)
    return str(count) if factor.kind == "count" else render_level_bytes(count)


def _race(protocol: ProtocolTable, mistakes: Mistakes) -> RaceRules | None:
    """The rules of a race, or None. ``blocks`` and what rules a race exclude each other: which of
    two limits is meant should not have to be guessed."""
    wanted = {key: value for key in RACE_FIELDS if (value := getattr(protocol, key)) is not None}
    if protocol.stop != "decided":
        for key in wanted:
            mistakes.add(("protocol", key), f'{key}: this goes with stop = "decided"')
        return None
    if protocol.blocks is not None:
        message = "blocks: a race has min_blocks and max_blocks instead"
        mistakes.add(("protocol", "blocks"), message)
    rules = RaceRules()
    for group in (("delta",), ("confidence",), ("top",), ("min_blocks", "max_blocks")):
        given = {key: wanted[key] for key in group if key in wanted}
        try:
            rules = replace(rules, **given)
        except ValueError as error:
            key = next(iter(given))
            mistakes.add(("protocol", key), str(error), given[key])
    return rules


def _blocks(protocol: ProtocolTable, race: RaceRules | None) -> int:
    return race.max_blocks if race else protocol.blocks or DEFAULT_BLOCKS


def _crash(table: CrashTable, mistakes: Mistakes) -> CrashRules:
    for writer in table.writers:
        if writer not in WRITERS:
            mistakes.add(("crash", "writers"), unknown("writer", writer, WRITERS), writer)
    for fault in table.faults:
        if fault not in FAULTS:
            mistakes.add(("crash", "faults"), unknown("fault", fault, FAULTS), fault)
    least = FILE_SYSTEM_BYTES[table.filesystem]
    if "ledger-fs" in table.writers and (table.size or 0) < least:
        message = f"crash.size: {table.filesystem} needs a disk of {render_bytes(least)}"
        mistakes.add(("crash", "filesystem"), message, table.filesystem)
    values = table.model_dump() | {
        "writers": tuple(dict.fromkeys(table.writers)),
        "faults": tuple(fault for fault in FAULTS if fault in table.faults),
        "size": table.size or CrashRules.size,
    }
    return CrashRules(**values)


def _filters(
    key: str,
    tables: list[dict[str, list[str]]],
    factors: Factors,
    workloads: tuple[str, ...],
    mistakes: Mistakes,
) -> Iterator[Filter]:
    for index, table in enumerate(tables):
        conditions = []
        for name, wanted in table.items():
            location = (key, index, name)
            conditions.append(_condition(name, wanted, location, factors, workloads, mistakes))
        yield Filter(tuple(conditions))


def _condition(
    name: str,
    wanted: list[str],
    location: Location,
    factors: Factors,
    workloads: tuple[str, ...],
    mistakes: Mistakes,
) -> tuple[str, frozenset[str]]:
    """One ``factor = levels`` of a filter; a level that no cell has is a mistake."""
    factor = FACTOR_BY_NAME.get(_canonical_factor(name))
    if factor is None and name != "workload":
        mistakes.add(location, unknown("factor", name, (*FACTOR_BY_NAME, "workload")))
        return name, frozenset()
    known = factors.get(factor.name, (factor.default,)) if factor else workloads
    levels = [
        _level(factor, text, location, factors["backing"], mistakes) if factor else text
        for text in wanted
    ]
    for level in levels:
        if level not in known and (factor is None or level in factor.levels):
            what = f"{name} among the study's"
            mistakes.add(location, unknown(what, level, known), level)
    return factor.name if factor else name, frozenset(levels)


def _canonical_factor(name: str) -> str:
    """QEMU spells creation options with ``_`` and run-time ones with ``-``; take either."""
    flat = name.replace("-", "_").lower()
    return next((known for known in FACTOR_BY_NAME if known.replace("-", "_") == flat), name)


def render_level_bytes(count: int) -> str:
    """Bytes as QEMU takes them: the largest unit that divides (``64K``, ``1M``, ``512``)."""
    for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if count and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)
