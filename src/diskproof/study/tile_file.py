"""A tile's TOML file: text in, a frozen ``Tile`` out, every mistake named with its line."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from diskproof.errors import StudyError
from diskproof.study import keys, tiles
from diskproof.study.toml_lines import parse_toml, read_text, unknown

MAX_TEXT = 256 << 10
MAX_GUESTS = 16
MAX_WORKS = 100


def load_tile(name: str, folder: Path) -> tiles.Tile:
    """The tile that comes with diskproof, or one in a file relative to ``folder``.

    Raises StudyError with all mistakes of the file.
    """
    if name == tiles.BUILT_IN:
        return built_in_tile()
    path = folder / name
    try:
        content = read_text(path, MAX_TEXT)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        hint = f'a file name relative to the study, or "{tiles.BUILT_IN}"'
        raise StudyError(f"cannot read the tile {path}", why, hint) from None
    return parse_tile(content, str(path))


def read_rules(content: object, folder: Path, mistakes: keys.Mistakes) -> tiles.TileRules:
    """``[tiles]`` of a study, its tile's file relative to ``folder``. Mistakes are noted; raises
    StudyError for those in the tile's own file."""
    place, name = ("tiles",), tiles.BUILT_IN
    given = keys.read_mapping(content, place, mistakes)
    if "tile" in given:
        with mistakes.noting((*place, "tile"), given["tile"]):
            name = keys.text(least=1)(given["tile"])
    tile = load_tile(name, folder)
    rules = keys.read_table(tiles.TileRules, given, place, mistakes, ["tile"], tile=tile)
    return replace(rules, most=max(rules.counts or [rules.most]))


@cache
def built_in_tile() -> tiles.Tile:
    """The tile of the article that the method comes from."""
    return parse_tile(read_built_in(), f"{tiles.BUILT_IN}.toml")


def read_built_in() -> str:
    """The text of its file."""
    return files("diskproof").joinpath("tiles", f"{tiles.BUILT_IN}.toml").read_text()


def parse_tile(content: str, file: str) -> tiles.Tile:
    """Text to Tile. Raises StudyError with all mistakes of the file."""
    mistakes = keys.Mistakes(content, file)
    tables = parse_toml(content, file)
    guests = tuple(_read_guests(tables, mistakes))
    works = tuple(_read_works(tables, {each.name: each.role for each in guests}, mistakes))
    for name, most, found in (("guests", MAX_GUESTS, guests), ("workloads", MAX_WORKS, works)):
        if not 1 <= len(found) <= most:
            mistakes.add((name,), f"{name}: a tile has 1 to {most}, not {len(found)}")
    tile = keys.read_table(
        tiles.Tile, tables, (), mistakes, ["guests", "workloads"], guests=guests, works=works
    )
    _check_order(works, mistakes)
    mistakes.raise_any()
    return replace(tile, name=tile.name or Path(file).stem)


def _read_guests(tables: Mapping[str, Any], mistakes: keys.Mistakes) -> Iterator[tiles.TileGuest]:
    found = keys.read_tables(tables.get("guests", {}), ("guests",), mistakes, tiles.read_guest_name)
    environment: dict[str, str] = {}
    for name, given in found:
        place = ("guests", name)
        key = name.upper().replace("-", "_")  # steps find each other by these names
        if (other := environment.setdefault(key, name)) != name:
            mistakes.add(place, f"{name} and {other}: too much alike")
        guest = keys.read_table(tiles.TileGuest, given, place, mistakes, name=name)
        if guest.role not in tiles.ROLES:
            mistakes.add((*place, "role"), unknown("role", guest.role, tiles.ROLES), guest.role)
            guest = replace(guest, role="plain")
        role, says_root = tiles.ROLES[guest.role], "root" in given
        if says_root and role.root and guest.root != role.root:
            message = f"root: the role {guest.role} needs {role.root}"
            mistakes.add((*place, "root"), message)
        yield replace(
            guest,
            root=guest.root if says_root else role.root,
            memory=guest.memory or role.memory,
            disk=guest.disk or role.disk,
        )


def _read_works(
    tables: Mapping[str, Any], roles: Mapping[str, str], mistakes: keys.Mistakes
) -> Iterator[tiles.TileWork]:
    for name, given in keys.read_tables(tables.get("workloads", {}), ("workloads",), mistakes):
        place = ("workloads", name)
        own = {key: value for key, value in given.items() if key not in keys.of(tiles.TileWork)}
        work = keys.read_table(tiles.TileWork, given, place, mistakes, own, name=name)
        load = _find_load(work, mistakes)
        options = keys.read_options(
            tiles.LOADS[load].options, own, place, mistakes, f"key of {load}"
        )
        work = replace(work, load=load, options=tuple(sorted(options.items())))
        _check_ends(work, roles, mistakes)
        yield work


def _find_load(work: tiles.TileWork, mistakes: keys.Mistakes) -> str:
    place = ("workloads", work.name)
    if work.command and work.load not in ("", tiles.COMMAND):
        mistakes.add(place, f"workloads.{work.name}: either a load or a command")
    if work.command or work.load == tiles.COMMAND:
        return tiles.COMMAND
    if work.load in tiles.LOADS:
        return work.load
    known = [each for each in tiles.LOADS if each != tiles.COMMAND]
    what = unknown("load", work.load, known) if work.load else "needs a load or a command"
    mistakes.add(place, f"workloads.{work.name}: {what}", work.load or None)
    return tiles.COMMAND


def _check_ends(work: tiles.TileWork, roles: Mapping[str, str], mistakes: keys.Mistakes) -> None:
    """Whether the guests at both ends exist and can do it."""
    load, place = tiles.LOADS[work.load], ("workloads", work.name)
    for key, guest, able in (("from", work.source, load.source), ("to", work.target, load.target)):
        if guest not in roles:
            if guest or able:
                mistakes.add((*place, key), f"{key}: {unknown('guest', guest, roles)}", guest)
        elif able and roles[guest] not in able:
            needs = " or ".join(able)
            message = f"{key}: {work.load} needs a {needs}, {guest} is {roles[guest]}"
            mistakes.add((*place, key), message)
    if work.load == "copy" and work.source == work.target:
        mistakes.add((*place, "to"), "to: a copy goes to another guest")
    if work.check and work.load != tiles.COMMAND:
        mistakes.add((*place, "check"), f"check: {work.load} checks its own result")


def _check_order(works: tuple[tiles.TileWork, ...], mistakes: keys.Mistakes) -> None:
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
