"""What doctor found, as a table for 80 columns that is read without colour, too."""

from collections.abc import Sequence

from diskproof.records import Finding
from diskproof.report import layout
from diskproof.report.labels import count

_STYLES = {"yes": "green", "limited": "yellow", "no": "red"}
COMMON = frozenset(
    {"qemu-system-x86_64", "aio=native", "aio=io_uring", "accelerator", "guest", "FUSE"}
)
"""What a study takes that has guests and is judged; the rest is for further kinds."""
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
    lacking = [finding.name for finding in findings if finding.ok == "no"]
    if not lacking:
        return "diskproof can measure here."
    common = [name for name in lacking if name in COMMON]
    rest = len(lacking) - len(common)
    told = f"a common study (guests, verdicts) lacks {', '.join(common)}"
    told = told if common else "a common study (guests, verdicts) lacks nothing"
    more = f"; {count(rest, 'other')} would allow further kinds of studies" if rest else ""
    return f"diskproof can measure here: {told}{more}."


def _blocks(finding: Finding) -> bool:
    return finding.needed and finding.ok == "no"
