"""What a crash leaves, in the terminal, and where flushes end."""

from collections.abc import Mapping, Sequence
from typing import Any

from diskproof.report import layout
from diskproof.report.durability import crash_labels, states_text, verdict_text
from diskproof.store.rows import VerdictRow


def render_flushes(found: Sequence[Mapping[str, Any]]) -> layout.Shown:
    """``found`` has a ``label`` and its ``counts`` for each guest, as in the JSON."""
    table = layout.start_table(
        "flushes of syncs in the guest",
        *("-guest", "-syncs on", ">asked", ">guest", ">QEMU", ">host", "*finding"),
    )
    for entry in found:
        name = entry["label"]
        for row in entry["counts"]:
            counts = (str(row[key]) for key in ("asked", "guest", "qemu", "host"))
            table.add_row(name, row["route"], *counts, row["finding"])
            name = ""
    return table


def render_verdicts(rows: Sequence[VerdictRow]) -> layout.Shown:
    """What each fault leaves of each crash cell; equal cells and writers are named once."""
    table = layout.start_table(
        "what a crash leaves", "-cell", "-writer", "-fault", "*verdict", "-states checked"
    )
    table.columns[-1].justify = "right"
    before: tuple[str, str] | None = None
    for label, row in zip(crash_labels(rows), rows, strict=True):
        key = (label, row.cell.workload.name)
        named = ["", ""] if key == before else list(key)
        text = " - ".join(filter(None, (verdict_text(row.verdict), row.verdict.reason)))
        bad = row.verdict.is_broken
        fault, states = row.verdict.fault, states_text(row.verdict)
        table.add_row(*named, fault, text, states, style="bold" if bad else None)
        before = key
    table.caption = (
        "loses N, T: N acknowledged writes are missing in the worst state, the oldest of them "
        "acknowledged T before the crash; states are different contents that the crash may leave"
    )
    return table
