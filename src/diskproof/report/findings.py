"""What doctor found, as a table for 80 columns that is read without colour, too."""

from collections.abc import Sequence

from diskproof.records import Finding
from diskproof.report import layout

_STYLES = {"yes": "green", "limited": "yellow", "no": "red"}
_NAME_WIDTH = 20  # a longer name (a directory's) folds


def render_findings(findings: Sequence[Finding]) -> layout.Shown:
    """Name, word and what was found, with the hint on a line of its own; ends with what is
    missing for any measurement."""
    table = layout.start_table("", "-", "!", "*")
    table.title, table.show_header, table.columns[0].width = None, False, _NAME_WIDTH
    for finding in findings:
        word = f"{finding.ok}!" if _blocks(finding) else finding.ok
        table.add_row(finding.name, layout.line(word, _STYLES[finding.ok]), finding.what)
        if finding.hint:
            table.add_row("", "", layout.line(f"-> {finding.hint}", "bold"))
    return layout.paragraphs([[table], [layout.line(summarise(findings))]])


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
