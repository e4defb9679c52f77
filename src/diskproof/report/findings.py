"""What doctor found, as a table for 80 columns that is read without colour, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diskproof.records import Finding

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

_STYLES = {"yes": "green", "limited": "yellow", "no": "red"}
_NAME_WIDTH = 20  # a longer name (a directory's) folds


def render_findings(findings: Sequence[Finding]) -> Group:
    """Name, word and what was found, with the hint on a line of its own; ends with what is
    missing for any measurement."""
    from rich.console import Group
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False, expand=True)
    table.add_column(width=_NAME_WIDTH, overflow="fold")
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for finding in findings:
        word = f"{finding.ok}!" if _blocks(finding) else finding.ok
        row = (_text(finding.name), _text(word, _STYLES[finding.ok]), _text(finding.what))
        table.add_row(*row)
        if finding.hint:
            table.add_row("", "", _text(f"-> {finding.hint}", "bold"))
    return Group(table, _text(""), _text(summarise(findings)))


def summarise(findings: Sequence[Finding]) -> str:
    """One sentence: whether diskproof can measure here."""
    blocking = [finding.name for finding in findings if _blocks(finding)]
    if blocking:
        return f"no!: diskproof cannot measure here without {', '.join(blocking)}."
    missing = sum(finding.ok == "no" for finding in findings)
    if not missing:
        return "diskproof can measure here."
    return f"diskproof can measure here; {missing} more would allow further kinds of studies."


def _blocks(finding: Finding) -> bool:
    return finding.needed and finding.ok == "no"


def _text(content: str, style: str = "") -> Text:
    """Words of tools and directories are never markup, and cannot steer the terminal."""
    from rich.text import Text

    return Text("".join(char if char.isprintable() else " " for char in content), style=style)
