"""How our tables look on a terminal, and how text of others gets into them."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

Shown = RenderableType
"""What a terminal can show: a line, a table, or several below each other."""


class PlainTable(Table):
    """A table of texts, whoever wrote them: they are neither markup nor do they steer the
    terminal."""

    def add_row(
        self,
        *cells: RenderableType | None,
        style: StyleType | None = None,
        end_section: bool = False,
    ) -> None:
        shown = (plain(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*shown, style=style, end_section=end_section)


def start_table(title: str, *columns: str) -> PlainTable:
    """A table as all of ours look: no box, as wide as the terminal.

    The first character of a column says how it stands, the rest is its head: ``>`` figures below
    each other, ``!`` short words that stay whole, ``-`` text that is folded and never cut, ``*``
    text that takes what is left (``**`` twice as much).
    """
    table = PlainTable(
        title=plain(title),
        title_justify="left",
        caption_justify="left",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        expand=True,
    )
    for column in columns:
        head = plain(column.lstrip("*") if column[0] == "*" else column[1:])
        if column[0] in ">!":
            table.add_column(head, justify="right" if column[0] == ">" else "left", no_wrap=True)
        else:
            ratio = len(column) - len(column.lstrip("*"))
            table.add_column(head, overflow="fold", ratio=ratio or None)
    return table


def line(content: str = "", style: str = "") -> Text:
    """A line of text, whoever wrote it."""
    return Text(printable(content), style=style)


def paragraphs(groups: Iterable[Sequence[Shown]]) -> Group:
    """Lines and tables below each other, an empty line between groups; a group may be empty."""
    parts: list[Shown] = []
    for group in groups:
        parts += [*([Text()] if parts and group else []), *group]
    return Group(*parts)


def plain(content: str) -> str:
    """Text of others without rich's markup and without control characters of a terminal."""
    return escape(printable(content))


def printable(content: str) -> str:
    """Without control characters: a terminal obeys them."""
    return "".join(char if char.isprintable() else " " for char in content)
