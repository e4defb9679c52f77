"""File names that stand for more than one thing."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

from shape.tree import Tree

_SILENT = ("__init__", "__main__")


def ambiguous_names(names: Sequence[str], rules: Mapping[str, Any]) -> Iterator[str]:
    """Names of modules that stand more than once and do not mean one thing.

    Files of a family (``rules["families"]``, patterns of paths) are named by their kind and do not
    count. A name of ``rules["things"]`` may stand in each of ``rules["homes"]`` and as a room.
    ``rules["same_role"]`` are patterns of paths: files that all match one have the same role.
    """
    places = defaultdict(list)
    for name in names:
        if not any(fnmatch(name, pattern) for pattern in rules["families"]):
            places[PurePosixPath(name).stem].append(name)
    for stem, files in sorted(places.items()):
        if len(files) > 1 and stem not in _SILENT and not _one_meaning(stem, files, rules):
            yield f"{stem}: {', '.join(files)}"


def _one_meaning(stem: str, files: Sequence[str], rules: Mapping[str, Any]) -> bool:
    parents = [str(PurePosixPath(file).parent) for file in files]
    if stem in rules["things"]:
        return all(parent in rules["homes"] for parent in parents)
    return any(all(fnmatch(file, pattern) for file in files) for pattern in rules["same_role"])


def forbidden_rust_files(tree: Tree, stems: Sequence[str]) -> Iterator[str]:
    for file in tree.rust_files:
        if file.stem in stems:
            yield tree.short(file)
