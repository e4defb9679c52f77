"""Lines of Python by what they are; lengths of functions and modules; names of classes."""

import ast
import io
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from shape.tree import Module

MAX_COLUMNS = 100


@dataclass(frozen=True)
class LineCount:
    """Physical lines. What is none of blank, comment, docstring and import is code."""

    lines: int
    blank: int
    comment: int
    docstring: int
    imports: int

    @property
    def code(self) -> int:
        return self.lines - self.blank - self.comment - self.docstring - self.imports


def count_lines(modules: Sequence[Module]) -> LineCount:
    """A line belongs to one kind only; a blank line within a docstring is blank."""
    counts = [_count(module) for module in modules]
    return LineCount(*(sum(column) for column in zip(*counts, strict=True)))


def _count(module: Module) -> tuple[int, int, int, int, int]:
    blank = {number for number, line in enumerate(module.lines, 1) if not line.strip()}
    comment = {
        number for number, text in _comments(module) if text.strip() == _line(module, number)
    }
    docstring = set(_docstring_lines(module)) - blank
    imports = set(import_lines(module))
    return len(module.lines), len(blank), len(comment), len(docstring), len(imports)


def _line(module: Module, number: int) -> str:
    return module.lines[number - 1].strip()


@cache
def _comments(module: Module) -> Sequence[tuple[int, str]]:
    """The comments with their lines; only a file that has the sign for one is read by tokens."""
    if "#" not in module.text:
        return ()
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    return [(each.start[0], each.string) for each in tokens if each.type == tokenize.COMMENT]


def _docstring_lines(module: Module) -> Iterator[int]:
    """Lines of every string that is a statement: docstrings, and those below a field."""
    for node in module.nodes:
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield from range(value.lineno, (value.end_lineno or value.lineno) + 1)


def import_lines(module: Module) -> Iterator[int]:
    """The lines of import statements, those in functions included."""
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def long_functions(modules: Sequence[Module], limit: int) -> Iterator[str]:
    """Functions of more than ``limit`` lines, from ``def`` to their last line."""
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > limit:
                    yield f"{module.name}:{node.lineno} {node.name}: {length} lines"


def long_words(modules: Sequence[Module]) -> Iterator[str]:
    """Lines of comments and docstrings that go past column 100."""
    for module in modules:
        told = {number for number, _ in _comments(module)} | set(_docstring_lines(module))
        for number in sorted(told):
            if len(module.lines[number - 1]) > MAX_COLUMNS:
                yield f"{module.name}:{number}: {len(module.lines[number - 1])} columns"


def double_classes(modules: Sequence[Module]) -> Iterator[str]:
    """Names that more than one class bears, with their files."""
    places = defaultdict(list)
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module.name)
    for name, files in sorted(places.items()):
        if len(files) > 1:
            yield f"{name}: {', '.join(files)}"
