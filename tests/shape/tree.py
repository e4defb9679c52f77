"""A source tree as it is measured: its files, and those of Python parsed once."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path


@dataclass(frozen=True)
class Module:
    """A Python file. ``name`` is relative to the package ``diskproof``, or to the tree's root."""

    path: Path
    name: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def syntax(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.syntax))

    @property
    def dotted(self) -> str:
        """``diskproof.room.part`` of ``room/part.py``; a package is called as its folder."""
        parts = self.name.removesuffix(".py").split("/")
        return ".".join(["diskproof", *(parts[:-1] if parts[-1] == "__init__" else parts)])


class Tree:
    """A checkout of the project."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.package = self.root / "src" / "diskproof"

    @cached_property
    def modules(self) -> Sequence[Module]:
        """The modules of the package."""
        files = sorted(self.package.rglob("*.py"))
        return [Module(file, file.relative_to(self.package).as_posix()) for file in files]

    @cached_property
    def test_modules(self) -> Sequence[Module]:
        files = sorted((self.root / "tests").rglob("*.py"))
        return [Module(file, file.relative_to(self.root).as_posix()) for file in files]

    @cached_property
    def templates(self) -> Sequence[Path]:
        return sorted(self.package.rglob("*.j2"))

    @cached_property
    def rust_files(self) -> Sequence[Path]:
        native = self.root / "native"
        return [
            file
            for file in sorted(native.rglob("*.rs"))
            if "target" not in file.relative_to(native).parts
        ]

    def short(self, path: Path) -> str:
        """How a file is called in the lists."""
        return path.relative_to(self.root).as_posix()


def imported_names(module: Module) -> Iterator[str]:
    """The dotted names that a module imports, those of its functions included: ``a.b.name``."""
    package = module.dotted.split(".")
    if not module.name.endswith("__init__.py"):
        package = package[:-1]
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = [*above, *filter(None, [node.module])]
            yield from (".".join([*base, alias.name]) for alias in node.names)
