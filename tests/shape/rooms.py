"""Rooms, arrows and exceptions, as ``tests/test_imports.py`` of the measured tree has them."""

import importlib.util
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType

from shape.tree import Tree

Edges = Mapping[tuple[str, str], str]


def load_rules(tree: Tree) -> ModuleType:
    """The test of the imports, as a module: it knows its own tree."""
    file = next((tree.root / "tests").rglob("test_imports.py"))
    spec = importlib.util.spec_from_file_location(f"rules_{abs(hash(file))}", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _edges(rules: ModuleType) -> Edges:
    edges: Edges = rules.read_edges(rules.PRESENT)
    return edges


def upward_arrows(rules: ModuleType) -> Iterator[str]:
    """Imports from a lower shelf to a higher one, those that are excepted included."""
    for (importer, imported), file in sorted(_edges(rules).items()):
        if rules.HEIGHT.get(importer, 0) < rules.HEIGHT.get(imported, 0):
            yield f"{importer} -> {imported}: {file}"


def circles(rules: ModuleType) -> Iterator[str]:
    """Rooms that import each other, over others too: among them no order of floors can be."""
    edges = _edges(rules)
    reached = {room: _reach(room, edges) for room in rules.PRESENT}
    for room in sorted(rules.PRESENT):
        mutual = sorted(other for other in reached[room] if room in reached[other])
        if mutual:
            yield f"{room}: with {', '.join(mutual)}"


def _reach(room: str, edges: Edges) -> set[str]:
    found: set[str] = set()
    todo = [room]
    while todo:
        here = todo.pop()
        fresh = {there for start, there in edges if start == here} - found
        found |= fresh
        todo += fresh
    return found
