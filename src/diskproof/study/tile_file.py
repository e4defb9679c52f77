"""A tile's TOML file: text in, a frozen ``Tile`` out, every mistake named with its line."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diskproof.errors import StudyError
from diskproof.study.tiles import (
    BUILT_IN,
    COMMAND,
    LOADS,
    ROLES,
    SHARES,
    Tile,
    TileGuest,
    TileRules,
    TileWork,
)
from diskproof.study.toml_lines import Mistakes, unknown

if TYPE_CHECKING:
    from diskproof.study.file import TilesTable
    from diskproof.study.tile_tables import TileGuestTable, TileTable, WorkTable

MAX_TEXT = 256 << 10
MAX_GUESTS = 16


def load_tile(name: str, folder: Path) -> Tile:
    """The tile that comes with diskproof, or one in a file relative to ``folder``.

    Raises StudyError with all mistakes of the file.
    """
    if name == BUILT_IN:
        return built_in_tile()
    path = folder / name
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            raise ValueError(f"larger than {MAX_TEXT >> 10} KiB")
        text = data.decode()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = f'a file name relative to the study, or "{BUILT_IN}"'
        raise StudyError(f"cannot read the tile {path}", why, hint) from None
    return parse_tile(text, str(path))


def read_rules(table: TilesTable, folder: Path, mistakes: Mistakes) -> TileRules:
    """``[tiles]`` of a study, its tile's file relative to ``folder``. Mistakes are noted; raises
    StudyError for those in the tile's own file."""
    for key, known in (("ksm", ("off", "on")), ("share", SHARES)):
        for level in getattr(table, key):
            if level not in known:
                message = unknown(f"level of {key}", level, known)
                mistakes.add(("tiles", key), message, level)
    return TileRules(
        tile=load_tile(table.tile, folder),
        scale=Fraction(table.scale),
        most=max(table.counts or [table.most]),
        runs=table.runs,
        counts=tuple(sorted(set(table.counts or ()))),
        service_level=table.service_level,
        ksm=tuple(dict.fromkeys(table.ksm)),
        share=tuple(dict.fromkeys(table.share)),
        network=table.network,
    )


@cache
def built_in_tile() -> Tile:
    """The tile of the article that the method comes from."""
    return parse_tile(read_built_in(), f"{BUILT_IN}.toml")


def read_built_in() -> str:
    """The text of its file."""
    return files("diskproof").joinpath("tiles", f"{BUILT_IN}.toml").read_text()


def parse_tile(text: str, file: str) -> Tile:
    """Text to Tile. Raises StudyError with all mistakes of the file."""
    from pydantic import ValidationError

    from diskproof.study.tile_tables import TileTable

    mistakes = Mistakes(text, file)
    try:
        table = TileTable.model_validate(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise StudyError(f"{file}: not valid TOML", str(error)) from None
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            place = tuple(problem["loc"])
            name = ".".join(map(str, place))[:100]
            message = problem["msg"].removeprefix("Value error, ")
            value = problem["input"] if problem["type"] != "extra_forbidden" else None
            mistakes.add(place, f"{name}: {message}", value)
        mistakes.raise_any()
        raise
    tile = _read_tile(table, Path(file).stem, mistakes)
    mistakes.raise_any()
    return tile


def _read_tile(table: TileTable, stem: str, mistakes: Mistakes) -> Tile:
    guests = tuple(_guest(name, each, mistakes) for name, each in table.guests.items())
    roles = {guest.name: guest.role for guest in guests}
    works = tuple(_work(name, each, roles, mistakes) for name, each in table.workloads.items())
    if len(guests) > MAX_GUESTS:
        mistakes.add(("guests",), f"guests: a tile has at most {MAX_GUESTS}")
    environment: dict[str, str] = {}
    for guest in guests:  # steps find each other by these names
        key = guest.name.upper().replace("-", "_")
        if other := environment.get(key):
            mistakes.add(("guests", guest.name), f"{guest.name} and {other}: too much alike")
        environment[key] = guest.name
    _check_order(works, mistakes)
    return Tile(table.name or stem, table.description, guests, works)


def _guest(name: str, table: TileGuestTable, mistakes: Mistakes) -> TileGuest:
    role = ROLES.get(table.role)
    if role is None:
        mistakes.add(("guests", name, "role"), unknown("role", table.role, ROLES), table.role)
        role = ROLES["plain"]
    if table.root is not None and role.root and table.root != role.root:
        mistakes.add(("guests", name, "root"), f"root: the role {table.role} needs {role.root}")
    return TileGuest(
        name,
        table.role,
        role.root if table.root is None else table.root,
        table.memory or role.memory,
        table.vcpus,
        table.disk or role.disk,
    )


def _work(name: str, table: WorkTable, roles: Mapping[str, str], mistakes: Mistakes) -> TileWork:
    location = ("workloads", name)
    load = COMMAND if table.command is not None else table.load
    if table.command is not None and table.load not in (None, COMMAND):
        mistakes.add(location, f"workloads.{name}: either a load or a command")
    if load is None or load not in LOADS:
        known = [each for each in LOADS if each != COMMAND]
        what = unknown("load", load, known) if load else "needs a load or a command"
        mistakes.add(location, f"workloads.{name}: {what}", load)
        load = COMMAND
    options = _options(load, table.model_extra or {}, location, mistakes)
    _check_ends(name, load, table, roles, mistakes)
    return TileWork(
        name=name,
        load=load,
        source=table.source,
        target=table.to or "",
        options=options,
        after=tuple(table.after),
        timeout=table.timeout,
        service_level=table.service_level,
        command=tuple(table.command or ()),
        check=tuple(table.check or ()),
    )


def _options(
    load: str, given: Mapping[str, Any], location: tuple[str, str], mistakes: Mistakes
) -> tuple[tuple[str, str], ...]:
    rules = LOADS[load].options
    shaped = {key: option.default_text for key, option in rules.items()}
    for key, value in given.items():
        if key not in rules:
            mistakes.add((*location, key), unknown(f"key of {load}", key, rules))
            continue
        try:
            shaped[key] = rules[key].parse(str(value))
        except ValueError as error:
            mistakes.add((*location, key), f"{key}: {error}", value)
    return tuple(sorted(shaped.items()))


def _check_ends(
    name: str, load: str, table: WorkTable, roles: Mapping[str, str], mistakes: Mistakes
) -> None:
    """Whether the guests at both ends exist and can do it."""
    rules = LOADS[load]
    for key, guest, able in (
        ("from", table.source, rules.source),
        ("to", table.to or "", rules.target),
    ):
        location = ("workloads", name, key)
        if guest not in roles:
            if guest or able or key == "from":
                mistakes.add(location, f"{key}: {unknown('guest', guest, roles)}", guest)
        elif able and roles[guest] not in able:
            needs = " or ".join(able)
            mistakes.add(location, f"{key}: {load} needs a {needs}, {guest} is {roles[guest]}")
    if load == "copy" and table.source == table.to:
        mistakes.add(("workloads", name, "to"), "to: a copy goes to another guest")
    if table.check is not None and load != COMMAND:
        mistakes.add(("workloads", name, "check"), f"check: {load} checks its own result")


def _check_order(works: tuple[TileWork, ...], mistakes: Mistakes) -> None:
    """Whether everything that is waited for is there and can come to its end."""
    names = {work.name for work in works}
    done: set[str] = set()
    for work in works:
        for name in work.after:
            if name not in names:
                location = ("workloads", work.name, "after")
                mistakes.add(location, f"after: {unknown('workload', name, names)}", name)
                done.add(name)
    left = list(works)
    while ready := [work for work in left if set(work.after) <= done]:
        done |= {work.name for work in ready}
        left = [work for work in left if work not in ready]
    for work in left:
        waits = ", ".join(work.after)
        mistakes.add(("workloads", work.name, "after"), f"{work.name}: waits for {waits} for ever")
