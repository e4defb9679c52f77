"""Libraries that not every installation has, and what to type when one is missing."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec

from diskproof.errors import HostError


@dataclass(frozen=True)
class Extra:
    """``purpose`` as a sentence begins; ``modules`` and the ``packages`` that bring them."""

    purpose: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]


EXTRAS: Mapping[str, Extra] = {
    "fleet": Extra("a cluster", ("distributed",), ("distributed",)),
    "parquet": Extra("Parquet", ("pyarrow",), ("pyarrow",)),
    "postgres": Extra("PostgreSQL", ("psycopg", "psycopg_binary"), ("psycopg[binary]",)),
    "report": Extra("a page", ("vl_convert",), ("vl-convert-python",)),
}
"""The optional dependencies of pyproject.toml, by name."""


def require_extra(name: str) -> None:
    """Raises HostError, with the line that installs it, when a library of an extra is missing."""
    extra = EXTRAS[name]
    missing = [module for module in extra.modules if find_spec(module) is None]
    if missing:
        packages = " ".join(f"'{each}'" if "[" in each else each for each in extra.packages)
        raise HostError(
            f"{extra.purpose} needs a library that is not installed: {missing[0]}",
            "the plain installation does without",
            "the wheel's installation can have it, Debian's package cannot (docs/install.md)"
            if is_from_debian()
            else f"pipx inject diskproof {packages} (or: pip install 'diskproof[{name}]')",
        )


def is_from_debian() -> bool:
    """Whether dpkg has our files: nothing of pip's is put among them."""
    try:
        return (distribution("diskproof").read_text("INSTALLER") or "").strip() == "dpkg"
    except PackageNotFoundError:  # a tree of sources
        return False
