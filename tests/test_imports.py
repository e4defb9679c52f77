"""Imports go down the floors of docs/architecture.md, never up and never sideways."""

import ast
import pkgutil
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "diskproof"

# (importing room, imported room): why this pair may do what the floors forbid.
EXCEPTIONS: dict[tuple[str, str], str] = {}

# The store is the waist: what comes after it must work from a store alone, without QEMU.
AFTER_THE_WAIST = ("report",)
# `process`: the charts are drawn by one of their own, which needs nothing but the drawing library.
SEEN_AFTER_THE_WAIST = ("store", "stats", "study", "advice", "process")


def read_floors(text: str) -> list[list[str]]:
    """The rooms of each row of the table, from the top: ``[["__main__"], ["cli"], ...]``."""
    rows = re.findall(r"^\| *\w* *\| (`[^|]+`) \|", text, re.MULTILINE)
    return [
        [name.removesuffix("/").removesuffix(".py") for name in re.findall(r"`([^`]+)`", row)]
        for row in rows
    ]


def imported_modules(tree: ast.Module, module: str, is_package: bool) -> Iterator[str]:
    """Every diskproof module that a module imports, those inside functions included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".") if is_package else module.split(".")[:-1]
                above = package[: len(package) - (node.level - 1)]
                base = ".".join([*above, *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "diskproof")


def find_room(module: str, rooms: set[str]) -> str | None:
    """The room of a dotted name, or None for the package itself (its version)."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in rooms else None


def read_edges(rooms: set[str]) -> dict[tuple[str, str], str]:
    """(importing room, imported room) -> a file where that is seen."""
    edges = {}
    for file in sorted(SOURCE.rglob("*.py")):
        parts = file.relative_to(SOURCE.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        importer = find_room(module, rooms)
        tree = ast.parse(file.read_text(), filename=str(file))
        for name in imported_modules(tree, module, is_package):
            imported = find_room(name, rooms)
            if importer and imported and importer != imported:
                edges[importer, imported] = str(file.relative_to(ROOT))
    return edges


PAGE = (ROOT / "docs" / "architecture.md").read_text()
FLOORS = read_floors(PAGE)
HEIGHT = {room: -row for row, floor in enumerate(FLOORS) for room in floor}
PRESENT = {
    path.stem
    for path in SOURCE.iterdir()
    if (path.suffix == ".py" and path.stem != "__init__") or (path / "__init__.py").exists()
}


@pytest.fixture(scope="module")
def edges() -> dict[tuple[str, str], str]:
    return read_edges(PRESENT)


def test_every_room_has_its_floor() -> None:
    assert len(FLOORS) >= 8, "the table of docs/architecture.md was not read"
    assert len(HEIGHT) == sum(map(len, FLOORS)), "a room stands on two floors"
    assert set(HEIGHT) == PRESENT, "the table and src/diskproof do not have the same rooms"


def test_every_file_that_the_page_names_exists() -> None:
    bases = (SOURCE, ROOT, ROOT / "native", *(ROOT / "native").glob("*/"))
    names = re.findall(r"`((?:[\w-]+/)+|(?:[\w-]+/)*\w+\.py)`", PAGE)
    assert len(names) > len(HEIGHT)
    assert [name for name in names if not any((base / name).exists() for base in bases)] == []


def test_everything_that_the_page_names_is_there() -> None:
    names = [
        name for name in re.findall(r"`(\w+(?:\.\w+)+)", PAGE) if name.partition(".")[0] in HEIGHT
    ]
    names = [name for name in names if not name.endswith(".py")]
    assert len(names) >= 8
    assert [name for name in names if not resolve_name(f"diskproof.{name}")] == []


def resolve_name(name: str) -> bool:
    """Whether a dotted name is a module, or what one has."""
    with suppress(ImportError, AttributeError):
        pkgutil.resolve_name(name)
        return True
    return False


def test_imports_go_down(edges: dict[tuple[str, str], str]) -> None:
    wrong = [
        f"{file}: {importer} imports {imported}"
        for (importer, imported), file in edges.items()
        if HEIGHT.get(importer, 0) <= HEIGHT.get(imported, 0)
        and (importer, imported) not in EXCEPTIONS
    ]
    assert wrong == []


def test_nothing_after_the_store_knows_what_was_before_it(
    edges: dict[tuple[str, str], str],
) -> None:
    floor = FLOORS[-1]
    wrong = [
        f"{file}: {importer} imports {imported}"
        for (importer, imported), file in edges.items()
        if importer in AFTER_THE_WAIST
        and imported not in (*SEEN_AFTER_THE_WAIST, *AFTER_THE_WAIST, *floor)
    ]
    assert wrong == []


def test_exceptions_are_still_needed(edges: dict[tuple[str, str], str]) -> None:
    assert [pair for pair in EXCEPTIONS if pair not in edges] == []
    assert [(low, high) for low, high in EXCEPTIONS if HEIGHT[low] > HEIGHT[high]] == []


def test_the_reader_sees_every_kind_of_import() -> None:
    text = """
import os, diskproof.a
from diskproof import b
from diskproof.c import thing
def later():
    from . import d
    from .e import thing
    from ..f import thing
"""

    def read(text: str, module: str, is_package: bool) -> list[str]:
        return sorted(imported_modules(ast.parse(text), module, is_package))

    assert read(text, "diskproof.room.part", False) == [
        "diskproof.a",
        "diskproof.b",
        "diskproof.c.thing",
        "diskproof.f.thing",
        "diskproof.room.d",
        "diskproof.room.e.thing",
    ]
    assert read("from .x import y", "diskproof.room", True) == ["diskproof.room.x.y"]
    assert read("from ..x import y", "diskproof.room", True) == ["diskproof.x.y"]
