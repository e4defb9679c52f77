"""What the guest's root has beyond the ordinary one, as one word: ``KIND``, ``:PACKAGE,PACKAGE`` or
both. It names the guest in the cache, in a crash cell and in a file of ``guest export``."""

import re
from collections.abc import Iterable

MAX_PACKAGES = 50
PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]{0,61}[a-z0-9+]")
"""Debian policy 5.6.1. None ends in a minus or a dot, which apt takes for something else."""


def name_root(kind: str, packages: Iterable[str] = ()) -> str:
    """The word for a kind of root, or none, with these packages; the same for any order. Raises
    ValueError."""
    names = sorted({*packages})
    if bad := [name for name in names if not PACKAGE.fullmatch(name)]:
        raise ValueError(f"{bad[0]!r} is no name of a Debian package")
    if len(names) > MAX_PACKAGES:
        raise ValueError(f"{len(names)} packages are too many: at most {MAX_PACKAGES}")
    return f"{kind}:{','.join(names)}" if names else kind


def split_root(root: str) -> tuple[str, tuple[str, ...]]:
    """Its kind, or none, and its packages. Raises ValueError for what ``name_root`` never made."""
    kind, _, listed = root.partition(":")
    packages = tuple(listed.split(",")) if listed else ()
    if name_root(kind, packages) != root:
        raise ValueError(f"{root!r} names no root of a guest")
    return kind, packages


def root_options(root: str) -> str:
    """How it is asked for: the options of ``guest build``."""
    kind, packages = split_root(root)
    listed = f"--packages {','.join(packages)}" if packages else ""
    return " ".join(filter(None, (f"--with {kind}" if kind else "", listed)))


def describe_root(root: str) -> str:
    """For people: what it is the guest with."""
    kind, packages = split_root(root)
    return " and ".join(filter(None, (kind, ", ".join(packages))))
