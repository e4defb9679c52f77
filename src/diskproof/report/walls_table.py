"""Who runs as what, as a table for 80 columns."""

from collections.abc import Iterable, Sequence

from diskproof.records.walls import Walls
from diskproof.report import layout
from diskproof.units import render_bytes

_MANY = 8


def render_walls(seen: Iterable[Walls], missing: Sequence[str]) -> layout.Shown:
    """A line for each kind of program; ``missing`` says what could not be looked at, and why."""
    columns = ("program", "user", "caps", "nnp", "seccomp", "files", "own ns", "memory", "core")
    heads = [f"-{columns[0]}", f"-{columns[1]}", f"-{columns[2]}"]
    table = layout.start_table("", *heads, *(f"-{name}" for name in columns[3:]))
    table.title = None
    for walls in sorted(seen, key=lambda walls: walls.program):
        table.add_row(
            walls.program,
            walls.user,
            describe_capabilities(walls.capabilities),
            _yes(walls.no_new_privs),
            walls.seccomp,
            "few" if walls.files else "all",
            " ".join(walls.namespaces) or "none",
            "no bound" if walls.memory is None else render_bytes(walls.memory),
            "none" if walls.core == 0 else "yes",
        )
    notes = [layout.line(f"not looked at: {text}") for text in missing]
    return layout.paragraphs([[table], notes] if notes else [[table]])


def describe_capabilities(names: Sequence[str]) -> str:
    """Their names where they are few."""
    if not names:
        return "none"
    return " ".join(names) if len(names) < _MANY else f"{len(names)} of them"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
