"""The figures: each a number and the list behind it, which says what there is left to do."""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from shape import file_names, python_source, rooms, rust_source, touches, walks
from shape.tree import Tree

MAX_FUNCTION = 50
MAX_MODULE = 400


@dataclass(frozen=True)
class Figure:
    """What was measured. ``found`` are the things counted, or what the number is made of."""

    name: str
    value: float
    found: Sequence[str] = ()


@cache
def rules() -> Mapping[str, Any]:
    """What may stand twice, and what counts as passing: ``rules.toml``."""
    return tomllib.loads(Path(__file__).with_name("rules.toml").read_text())


def measure_static(tree: Tree) -> Iterator[Figure]:
    """All that can be read off the source."""
    for part in (_sizes, _rooms, _lengths, _names, _touches):
        yield from part(tree)


def measure_walks(tree: Tree) -> Iterator[Figure]:
    """What is seen by running small studies: fio, QEMU's storage daemon and our programs."""
    for thing, what in (("cache", "a cache level"), ("verdict", "a verdict")):
        found = walks.passed_files(tree, thing, rules()["passes"][thing])
        yield Figure(f"files {what} passes", len(found), found)


def _sizes(tree: Tree) -> Iterator[Figure]:
    python = python_source.count_lines(tree.modules)
    rust = rust_source.count_lines(tree.rust_files)
    parts = {**asdict(python), "code": python.code}
    found = [f"Python {kind}: {count}" for kind, count in parts.items()]
    found += [f"Rust {kind}: {count}" for kind, count in rust.items()]
    yield Figure("lines of Python and Rust", python.lines + rust["lines"], found)
    share = round(100 * python.imports / python.lines, 2)
    longest = sorted(
        ((len(set(python_source.import_lines(module))), module.name) for module in tree.modules),
        reverse=True,
    )
    most = [f"{name}: {count}" for count, name in longest[:20]]
    yield Figure("import lines, percent of Python", share, most)


def _rooms(tree: Tree) -> Iterator[Figure]:
    imports = rooms.load_rules(tree)
    yield Figure("rooms at the root", len(imports.PRESENT), sorted(imports.PRESENT))
    pairs = [" -> ".join(pair) for pair in imports.EXCEPTIONS]
    yield Figure("exceptions of the shelves", len(pairs), pairs)
    yield _counted("arrows up", rooms.upward_arrows(imports))
    yield _counted("rooms in circles", rooms.circles(imports))


def _lengths(tree: Tree) -> Iterator[Figure]:
    functions = [
        *python_source.long_functions(tree.modules, MAX_FUNCTION),
        *rust_source.long_functions(tree, MAX_FUNCTION),
    ]
    yield Figure("functions over 50 lines", len(functions), functions)
    python = [(module.name, len(module.lines)) for module in (*tree.modules, *tree.test_modules)]
    rust = [(tree.short(file), len(file.read_text().splitlines())) for file in tree.rust_files]
    long = [f"{name}: {lines} lines" for name, lines in [*python, *rust] if lines > MAX_MODULE]
    yield Figure("modules over 400 lines", len(long), long)
    words = [*python_source.long_words(tree.modules), *rust_source.long_comments(tree)]
    yield Figure("comment lines past column 100", len(words), words)


def _names(tree: Tree) -> Iterator[Figure]:
    names = rules()["names"]
    yield _counted("class names that stand twice", python_source.double_classes(tree.modules))
    files = [module.name for module in tree.modules]
    yield _counted("file names with two meanings", file_names.ambiguous_names(files, names))
    dialect = [
        *file_names.forbidden_rust_files(tree, names["rust_files"]),
        *rust_source.dialect(tree, names["rust_dialect"]),
    ]
    yield Figure("Rust files in our own dialect", len(dialect), dialect)


def _counted(name: str, found: Iterator[str]) -> Figure:
    listed = list(found)
    return Figure(name, len(listed), listed)


def _touches(tree: Tree) -> Iterator[Figure]:
    tables = touches.Tables(tree)
    chapters = touches.chapters(tree, rules()["chapters"])
    yield _ranked("files a page chapter touches, most", chapters, max)
    options = {
        name: touches.option_files(tree, name, rules()["options"]) for name in tables.own_options
    }
    yield _ranked("files an option of one workload touches, most", options, max)
    factors = touches.factor_files(tree, tables.factors)
    yield _ranked("files a plain factor touches", factors, lower_quartile)


def _ranked(
    name: str, files: Mapping[str, Sequence[str]], choose: Callable[[Sequence[int]], int]
) -> Figure:
    """``choose`` picks the figure from the counts; the list has every thing, the dearest first."""
    order = sorted(files.items(), key=lambda item: (-len(item[1]), item[0]))
    found = [f"{thing} ({len(own)}): {', '.join(own)}" for thing, own in order]
    return Figure(name, choose([len(own) for own in files.values()]), found)


def lower_quartile(counts: Sequence[int]) -> int:
    """A quarter of the factors is as plain as that or plainer, as a new one would be: the others
    have files of their own because the project asks about them (rules, probes, imports)."""
    return sorted(counts)[max(0, -(-len(counts) // 4) - 1)]
