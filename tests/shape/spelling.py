"""Where the source names a factor, an option, a record: by syntax, not by the bare word."""

import ast
from collections.abc import Collection, Iterator
from fnmatch import fnmatch
from functools import cache

from shape.tree import Module, imported_names

_LOOKUPS = frozenset({"get", "level", "option", "pop"})
_ROWS = frozenset({"Factor", "Option", "Rule", "one_of"})


def key_uses(module: Module, keys: Collection[str]) -> set[str]:
    """The keys that a module asks for by name or says something of.

    A string counts where it is looked up (``cell.level("bus")``, ``levels["bus"]``, ``"bus" in
    levels``), in a row of data (``Factor("bus", ...)``, ``Rule(("bus", "format"), ...)``), with a
    level (``("bus", "ide")``), and as one of several in a list or among the keys of a table.
    """
    found: set[str] = set()
    for node in module.nodes:
        found |= set(_asked(node)) & set(keys)
        listed = set(_listed(node))
        if len(listed & set(keys)) > 1 or _is_pair(node, keys):
            found |= listed & set(keys)
    return found


def _asked(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node.func) in _LOOKUPS | _ROWS:
        for argument in node.args[:1]:
            yield from _texts(argument)
            if isinstance(argument, ast.Tuple):
                yield from (text for each in argument.elts for text in _texts(each))
    elif isinstance(node, ast.Subscript):
        yield from _texts(node.slice)
    elif isinstance(node, ast.Compare):
        yield from _texts(node.left)
    yield from _row_keys(node)


def _row_keys(node: ast.AST) -> Iterator[str]:
    """``"bs"`` of ``{"bs": Option(...)}``."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key and isinstance(value, ast.Call) and _name(value.func) in _ROWS:
                yield from _texts(key)


def _listed(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        for each in node.elts:
            yield from _texts(each)
    elif isinstance(node, ast.Dict) and None not in node.keys:
        keys = [text for key in node.keys if key for text in _texts(key)]
        if not {"driver", "node-name", "qom-type"} & set(keys):  # those are QEMU's own tables
            yield from keys


def _is_pair(node: ast.AST, keys: Collection[str]) -> bool:
    """``("cache", "unsafe")``: a level with its factor."""
    return (
        isinstance(node, ast.Tuple)
        and len(node.elts) == 2
        and any(text in keys for text in _texts(node.elts[0]))
        and bool(list(_texts(node.elts[1])))
    )


def _texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def option_uses(module: Module, option: str) -> bool:
    """Whether a module asks a workload for its option, or has the row that says what it may be."""
    return option in _asked_options(module)


@cache
def _asked_options(module: Module) -> frozenset[str]:
    return frozenset(text for node in module.nodes for text in _option_texts(node))


def _option_texts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and _name(node.func) == "option":
        yield from (text for argument in node.args[:1] for text in _texts(argument))
    else:
        yield from _row_keys(node)


def member_uses(module: Module, word: str) -> bool:
    """Whether a module has or asks for a member called ``word``, or defines or imports a name
    that is made of it (``SOURCE_NODE``, ``find_source``). Plain variables do not count."""
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == word and _name(node.value) != "check":
            return True
        if isinstance(node, ast.ClassDef) and any(
            isinstance(each, ast.AnnAssign) and _name(each.target) == word for each in node.body
        ):
            return True
        if isinstance(node, ast.FunctionDef) and word in node.name.split("_"):
            return True
        if isinstance(node, ast.Name) and node.id.startswith(f"{word.upper()}_"):
            return True
    return False


def names_used(module: Module, patterns: Collection[str]) -> bool:
    """Whether a module imports or defines what one of these dotted patterns names."""
    defined = [
        f"{module.dotted}.{name}"
        for node in module.syntax.body
        for name in [getattr(node, "name", None) or _name(getattr(node, "target", node))]
    ]
    return any(
        fnmatch(name, pattern)
        for name in [*imported_names(module), *defined]
        for pattern in patterns
    )
