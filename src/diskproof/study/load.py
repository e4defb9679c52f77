"""A study file: TOML in, a frozen ``Study`` out, every mistake named with its line."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from diskproof.errors import StudyError
from diskproof.records import BackingSpec, WorkloadSpec, content_id
from diskproof.study import keys
from diskproof.study.backings import FOLDER, Made, Tables, allow_making, read_backings
from diskproof.study.crash import CrashRules, read_crash
from diskproof.study.factors import FACTOR_BY_NAME, OTHER_WORDS, Factor
from diskproof.study.guest import OwnGuest, check_use, read_guest
from diskproof.study.like import MANAGERS, check_frontends
from diskproof.study.programs import SECOND_DISK_ON
from diskproof.study.protocol import DEFAULT_BLOCKS, RaceRules, read_protocol
from diskproof.study.tile_file import read_rules
from diskproof.study.tiles import TileRules
from diskproof.study.toml_lines import Location, parse_toml, read_text, unknown
from diskproof.study.workloads import read_workloads
from diskproof.units import parse_size

MAX_TEXT = 1 << 20
DEFAULT_WORKLOAD = "rand-read-4k-d32"

TABLES = (
    "workloads",
    "factors",
    "backings",
    "guest",
    "only",
    "exclude",
    "protocol",
    "crash",
    "tiles",
)

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
    ``names_workloads``: the file does, so that they are not the default. ``names_crash``: it has
    a table ``[crash]``, so that its cells are to be judged. ``like`` names managers whose default
    for a new disk is a cell as well.
    """

    name: str = keys.field("", keys.study_name)
    description: str = keys.field("", keys.text(10_000))
    like: tuple[str, ...] = keys.field((), keys.known("manager", MANAGERS))
    text: str = ""
    factors: tuple[tuple[str, tuple[str, ...]], ...] = ()
    workloads: tuple[WorkloadSpec, ...] = ()
    backings: tuple[BackingSpec, ...] = ()
    only: tuple[Filter, ...] = ()
    exclude: tuple[Filter, ...] = ()
    blocks: int = DEFAULT_BLOCKS
    seed: int = 0
    run_timeout: float = 1800.0
    race: RaceRules | None = None
    crash: CrashRules = CrashRules()
    guest: OwnGuest | None = None
    tiles: TileRules | None = None
    names_workloads: bool = True
    names_crash: bool = False

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
        like = [{"like": self.like}] if self.like else []
        return content_id([*shape, self.run_timeout, *own, *like])

    def levels(self, factor: Factor) -> tuple[str, ...]:
        """The levels the study asks for, or the factor's default."""
        return dict(self.factors).get(factor.name, (factor.default,))


def load_study(path: Path, make: bool = False) -> Study:
    """Read a study file; with ``make`` its folders may be made. Raises StudyError."""
    try:
        text = read_text(path, MAX_TEXT)
    except OSError as error:
        raise StudyError(f"cannot read the study {path}", error.strerror or "") from None
    except ValueError as error:
        raise StudyError(f"{path}: not a study file", str(error)) from None
    study = parse_study(text, str(path), folder=path.parent)
    _require_question(text, path)
    made = tuple(map(allow_making, study.backings)) if make else study.backings
    return replace(study, backings=made)


def _require_question(text: str, path: Path) -> None:
    """A file that was cut off or never filled is no study of all defaults. Raises StudyError."""
    content = tomllib.loads(text)
    if not any(content.get(each) for each in (*TABLES, "like")):
        raise StudyError(
            f"{path}: the study asks for nothing",
            "it has no workloads, no factors, and no other table with anything in it",
            'name what is to be compared, like [factors] cache = ["none", "writeback"]',
        )


def parse_study(text: str, file: str = "study.toml", folder: Path = Path()) -> Study:
    """Text to Study; ``folder`` is where fio job files are looked for. Raises StudyError."""
    if len(text) > MAX_TEXT:
        raise StudyError(f"{file}: too large", f"a study has at most {MAX_TEXT >> 20} MiB")
    return read_study(parse_toml(text, file, _TABLES_HINT), text, file, folder)


def read_study(content: dict[str, Any], text: str, file: str, folder: Path) -> Study:
    """TOML content to Study. Raises StudyError with all mistakes of the file."""
    mistakes = keys.Mistakes(text, file)
    protocol = read_protocol(content.get("protocol", {}), mistakes)
    tables, backings = read_backings(content.get("backings", {}), mistakes)
    backings = backings or {"": (FOLDER,)}
    factors = _factors(content.get("factors", {}), tables, backings, mistakes)
    asked = content.get("workloads", DEFAULT_WORKLOAD)
    workloads = tuple(read_workloads(asked, protocol, folder, mistakes))
    crash = read_crash(content.get("crash", {}), mistakes, folder)
    guest = read_guest(content["guest"], folder, mistakes) if "guest" in content else None
    tiles = read_rules(content["tiles"], folder, mistakes) if "tiles" in content else None
    if "like" in content:
        check_frontends(factors, mistakes)
    check_use(guest, factors, [(spec.name, spec.kind) for spec in workloads], mistakes)
    names = (*(spec.name for spec in workloads), *crash.writers)
    names += (tiles.tile.name,) if tiles else ()
    used = (*factors["backing"], *_sources(workloads, backings, mistakes))
    study = keys.read_table(
        Study,
        content,
        (),
        mistakes,
        TABLES,
        text=text,
        factors=tuple(factors.items()),
        workloads=workloads,
        backings=tuple(spec for specs in backings.values() for spec in specs if spec.name in used),
        only=tuple(_filters("only", content, factors, names, mistakes)),
        exclude=tuple(_filters("exclude", content, factors, names, mistakes)),
        blocks=protocol.blocks,
        seed=protocol.seed,
        run_timeout=protocol.run_timeout,
        race=protocol.race,
        crash=crash,
        guest=guest,
        tiles=tiles,
        names_workloads="workloads" in content,
        names_crash="crash" in content,
    )
    mistakes.raise_any()
    study = study if study.name else replace(study, name=keys.study_name_of(Path(file).stem))
    # Without a seed of its own the same file still gets the same order.
    return study if study.seed else replace(study, seed=int(study.id, 16) % keys.MAX_SEED + 1)


def _backing_shape(spec: BackingSpec) -> list[object]:
    """A backing as it stands in a study's id."""
    shape: list[object] = [spec.name, spec.kind, spec.options]
    return [*shape, _backing_shape(spec.on)] if spec.on else shape


def _sources(
    workloads: tuple[WorkloadSpec, ...], made: Made, mistakes: keys.Mistakes
) -> tuple[str, ...]:
    """The backings of second disks."""
    known = [spec.name for specs in made.values() for spec in specs]
    wanted = [(spec.name, name) for spec in workloads if (name := spec.option(SECOND_DISK_ON))]
    for workload, name in wanted:
        if name not in known:
            location = ("workloads", workload, SECOND_DISK_ON)
            mistakes.add(location, unknown("backing", name, known), name)
    return tuple(name for _, name in wanted)


def _factors(
    content: object, tables: Tables, made: Made, mistakes: keys.Mistakes
) -> dict[str, tuple[str, ...]]:
    backings = tuple(spec.name for specs in made.values() for spec in specs)
    below = {table.on for table in tables.values()}
    tops = (spec.name for name, specs in made.items() if name not in below for spec in specs)
    found: dict[str, tuple[str, ...]] = {"backing": tuple(tops)}
    for asked, value in keys.read_mapping(content, ("factors",), mistakes).items():
        factor = FACTOR_BY_NAME.get(_canonical_factor(asked))
        location = ("factors", asked)
        if factor is None:
            mistakes.add(location, unknown("factor", asked, FACTOR_BY_NAME))
            continue
        wanted: tuple[str, ...] = ()
        with mistakes.noting(location, value):
            wanted = keys.levels(value)
        if factor.kind == "name":  # a table with lists stands for all that it makes
            names = {name: [spec.name for spec in specs] for name, specs in made.items()}
            wanted = tuple(level for text in wanted for level in names.get(text, [text]))
        levels = [_level(factor, text, location, backings, mistakes) for text in wanted]
        found[factor.name] = tuple(dict.fromkeys(levels))
    return found


def _level(
    factor: Factor,
    text: str,
    location: Location,
    backings: tuple[str, ...],
    mistakes: keys.Mistakes,
) -> str:
    """One level in canonical spelling."""
    if factor.kind in ("choice", "name"):
        known = backings if factor.kind == "name" else factor.levels
        if text not in known:
            told = unknown(f"level of {factor.name}", text, known)
            mistakes.add(location, OTHER_WORDS.get((factor.name, text.lower()), told), text)
        return text
    try:
        count = parse_size(text)
    except ValueError as error:
        mistakes.add(location, f"{factor.name}: {error}", text)
        return factor.default
    if not factor.low <= count <= factor.high:
        mistakes.add(location, f"{factor.name} = {text}: must be {factor.range_text}", text)
    elif factor.power_of_two and count & (count - 1):
        mistakes.add(location, f"{factor.name} = {text}: must be a power of two", text)
    return str(count) if factor.kind == "count" else render_level_bytes(count)


def _filters(
    key: str,
    content: Mapping[str, Any],
    factors: Factors,
    workloads: tuple[str, ...],
    mistakes: keys.Mistakes,
) -> Iterator[Filter]:
    tables = content.get(key, [])
    if not isinstance(tables, list):
        mistakes.add((key,), f"{key}: tables [[{key}]] are wanted")
        return
    for index, table in enumerate(tables):
        place = (key, index)
        conditions = []
        for name, value in keys.read_mapping(table, place, mistakes).items():
            with mistakes.noting((*place, name), value):
                wanted = keys.levels(value)
                location = (*place, name)
                conditions.append(_condition(name, wanted, location, factors, workloads, mistakes))
        yield Filter(tuple(conditions))


def _condition(
    name: str,
    wanted: Sequence[str],
    location: Location,
    factors: Factors,
    workloads: tuple[str, ...],
    mistakes: keys.Mistakes,
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
