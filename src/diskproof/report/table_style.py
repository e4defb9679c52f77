"""How our tables look on a terminal, and how text of others gets into them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def start_table(title: str) -> Table:
    """A table as all of ours look: no box, as wide as the terminal."""
    from rich.table import Table

    return Table(
        title=plain(title),
        title_justify="left",
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        expand=True,
    )


def plain(text: str) -> str:
    """Text of others without rich's markup and without control characters of a terminal."""
    from rich.markup import escape

    return escape(printable(text))


def printable(text: str) -> str:
    """Without control characters: a terminal obeys them."""
    return "".join(char if char.isprintable() else " " for char in text)
