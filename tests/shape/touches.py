"""How many files a thing touches: a chapter of the page, an option of one workload, a factor."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cached_property
from typing import Any

from shape.spelling import key_uses, member_uses, option_uses
from shape.tree import Module, Tree, imported_names

_TABLES = {"FACTORS": "Factor", "PROGRAMS": "Program", "PRESETS": "Preset"}
_ASK_TABLES = """
import importlib, json, sys
factors, programs, presets = (
    getattr(importlib.import_module(module), name)
    for module, name in zip(sys.argv[1:], ("FACTORS", "PROGRAMS", "PRESETS"))
)
print(json.dumps({
    "factors": [factor.name for factor in factors],
    "programs": [[program.kind, [*program.options, *program.fixed]] for program in programs],
    "shared": sorted({name for preset in presets for name in vars(preset)}),
}))
"""


_JINJA = re.compile(r"\{[{%].*?[%}]\}", re.DOTALL)
_VIEWS = ("view", "study", "parts")
DIALECTS = "advice/"


class Tables:
    """What the tree itself says it has: its factors, and the options of its workloads."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @cached_property
    def _content(self) -> Mapping[str, Any]:
        homes = [_home(self.tree, table, row) for table, row in _TABLES.items()]
        done = subprocess.run(
            [sys.executable, "-c", _ASK_TABLES, *homes],
            env={**os.environ, "PYTHONPATH": str(self.tree.root / "src")},
            check=True,
            capture_output=True,
        )
        content: Mapping[str, Any] = json.loads(done.stdout)
        return content

    @property
    def factors(self) -> Sequence[str]:
        return tuple(self._content["factors"])

    @property
    def own_options(self) -> Sequence[str]:
        """Options that one kind of workload has and no other."""
        kinds: dict[str, set[str]] = {}
        for kind, names in self._content["programs"]:
            for name in names:
                kinds.setdefault(name, set()).add(kind)
        shared = set(self._content["shared"])
        return sorted(name for name, own in kinds.items() if len(own) == 1 and name not in shared)


def _home(tree: Tree, table: str, row: str) -> str:
    """The module that assigns a table of such rows: ``FACTORS = (Factor(...), ...)``."""
    for module in tree.modules:
        for node in module.syntax.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                called = {
                    each.func.id
                    for each in ast.walk(node.value)
                    if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)
                }
                if row in called and table in [getattr(target, "id", "") for target in targets]:
                    return module.dotted
    raise LookupError(f"no module has a table {table} of rows {row}(...)")


def option_files(tree: Tree, option: str, rules: Mapping[str, Any]) -> list[str]:
    """Files that know one option: they look it up by its name or say what it may be, or have
    the member that was made for it (``rules["carriers"]``: option -> word) where disks are handed
    on (``rules["seam"]``: patterns of paths). ``rules["besides"]`` have options of other things."""
    word = rules["carriers"].get(option)
    return [
        module.name
        for module in tree.modules
        if (option_uses(module, option) and not _is_one_of(module.name, rules["besides"]))
        or (word and _is_one_of(module.name, rules["seam"]) and member_uses(module, word))
    ]


def factor_files(tree: Tree, factors: Sequence[str]) -> dict[str, list[str]]:
    """For each factor the places that say something of it in particular: files, and the words of
    all managers of machines as one, as a chapter's folder is: each has its row for a factor."""
    uses = {module.name: key_uses(module, factors) for module in tree.modules}
    return {
        factor: list(
            dict.fromkeys(
                DIALECTS if _is_one_of(name, (f"{DIALECTS}*", "host/machines/*")) else name
                for name, keys in uses.items()
                if factor in keys
            )
        )
        for factor in factors
    }


def _is_one_of(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def chapters(tree: Tree, rules: Mapping[str, Any]) -> dict[str, list[str]]:
    """For each chapter what it touches within ``report/``: its folder (one entry, or each of its
    loose files), then every file outside that names it."""
    found = {
        folder.name: [f"report/{folder.name}/"]
        for folder in sorted((tree.package / "report").iterdir())
        if folder.is_dir() and folder.name not in rules["no_chapters"] and any(folder.glob("*.py"))
    }
    for chapter, patterns in rules["loose"].items():
        own = [name for name in _report_files(tree) if _is_one_of(name, patterns)]
        if chapter not in found and own:
            found[chapter] = own
    return {chapter: [*own, *_outside(tree, chapter, own)] for chapter, own in found.items()}


def _report_files(tree: Tree) -> list[str]:
    files = [*(module.path for module in tree.modules), *tree.templates]
    names = sorted(file.relative_to(tree.package).as_posix() for file in files)
    return [name for name in names if name.startswith("report/")]


def _outside(tree: Tree, chapter: str, own: Sequence[str]) -> Iterator[str]:
    """Files of the room that import the chapter, include its template, or ask a view for it."""
    starts = tuple(own)
    dotted = {_dotted(name) for name in own}
    for module in tree.modules:
        outside = module.name.startswith("report/") and not module.name.startswith(starts)
        if outside and (_imports(module, dotted) or _shows(module, chapter)):
            yield module.name
    words = "|".join(re.escape(name.split("/")[-1]) for name in own if name.endswith(".j2"))
    pattern = re.compile(rf"\b(entry|view|parts?)\.{chapter}\b|['\"/]({words or chapter})['\"/]")
    for template in tree.templates:
        name = template.relative_to(tree.package).as_posix()
        asked = " ".join(_JINJA.findall(template.read_text()))  # not classes, not words for people
        if not name.startswith(starts) and pattern.search(asked):
            yield name


def _dotted(name: str) -> str:
    return "diskproof." + name.removesuffix("/").removesuffix(".py").replace("/", ".")


def _imports(module: Module, wanted: set[str]) -> bool:
    return any(
        name == each or name.startswith(each + ".")
        for name in imported_names(module)
        for each in wanted
    )


def _shows(module: Module, chapter: str) -> bool:
    """Whether a class of the module has a field for the chapter, or a view is asked for it."""
    wanted = {(chapter, view) for view in _VIEWS}
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and (node.attr, _owner(node)) in wanted:
            return True
        if isinstance(node, ast.ClassDef) and node.name.endswith("View"):
            fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
            if any(isinstance(field, ast.Name) and field.id == chapter for field in fields):
                return True
    return False


def _owner(node: ast.Attribute) -> str:
    return node.value.id if isinstance(node.value, ast.Name) else ""
