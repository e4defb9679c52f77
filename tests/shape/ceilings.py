"""What a figure may be at most, kept in ``ceilings.toml``; a ceiling is lowered, never raised."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shape.figures import Figure

FILE = Path(__file__).with_name("ceilings.toml")
_HEAD = """\
# The shape of the source, measured by `make shape` and held by the tests: a figure never rises
# above its ceiling, and a ceiling is lowered as soon as the figure lies more than "slack" below it
# (`make shape-lower` writes this file anew; it lowers, never raises). "base" was measured by the
# same program at the commit named here, "bar" is where the figure is to end.
"""


@dataclass(frozen=True)
class Ceiling:
    """What is held of one figure. ``slack`` is how far it may fall before that must be noted."""

    base: float
    ceiling: float
    bar: float
    slack: float = 0


@dataclass(frozen=True)
class Ceilings:
    """``base_commit`` is where ``base`` was measured."""

    base_commit: str
    figures: Mapping[str, Ceiling]


def read_ceilings(file: Path = FILE) -> Ceilings:
    content = tomllib.loads(file.read_text())
    figures = {name: Ceiling(**row) for name, row in content["figures"].items()}
    return Ceilings(content["base_commit"], figures)


def check_figures(figures: Iterable[Figure], ceilings: Ceilings) -> Sequence[str]:
    """What is wrong: above the ceiling, or so far below that the ceiling must come down."""
    return [
        wrong
        for figure in figures
        if (wrong := _check(figure, ceilings.figures[figure.name])) is not None
    ]


def _check(figure: Figure, held: Ceiling) -> str | None:
    if figure.value > held.ceiling:
        what = "\n    ".join(figure.found[:40])
        return f"{figure.name}: {figure.value:g} is above the ceiling {held.ceiling:g}\n    {what}"
    if figure.value < held.ceiling - held.slack:
        return (
            f"{figure.name}: {figure.value:g} lies below the ceiling {held.ceiling:g}: "
            "lower it with `make shape-lower`"
        )
    return None


def lower(figures: Iterable[Figure], ceilings: Ceilings) -> Ceilings:
    """The ceilings brought down to what is measured now; none is raised."""
    lowered = dict(ceilings.figures)
    for figure in figures:
        held = lowered[figure.name]
        lowered[figure.name] = replace(held, ceiling=min(held.ceiling, figure.value))
    return replace(ceilings, figures=lowered)


def write_ceilings(ceilings: Ceilings, file: Path = FILE) -> None:
    rows = [
        f'"{name}" = {{ base = {held.base:g}, ceiling = {held.ceiling:g}, bar = {held.bar:g}'
        + (f", slack = {held.slack:g} }}" if held.slack else " }")
        for name, held in ceilings.figures.items()
    ]
    text = f'{_HEAD}base_commit = "{ceilings.base_commit}"\n\n[figures]\n' + "\n".join(rows)
    file.write_text(text + "\n")
