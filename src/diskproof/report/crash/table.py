"""What a crash leaves, in the terminal, and where flushes end."""

from collections.abc import Mapping, Sequence
from typing import Any

from diskproof.records.operations import UnsyncedJson
from diskproof.records.verdicts import VerdictRow
from diskproof.report import layout
from diskproof.report.crash.cell_names import crash_labels
from diskproof.report.durability import VerdictText, further_words, render_age
from diskproof.units import render_bytes, render_seconds

_MOST_FILES = 30


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


def render_gallery(found: Sequence[Mapping[str, Any]]) -> layout.Shown:
    """Programs to try, as in the JSON of ``crash apps``."""
    columns = "!name", "*program", "*here", "*promises"
    table = layout.start_table("programs that `diskproof crash --app NAME` tests", *columns)
    for each in found:
        here = each["version"] or each["missing"]
        table.add_row(*map(layout.plain, (each["name"], each["title"], here, each["promise"])))
    return table


def render_unsynced(found: UnsyncedJson) -> layout.Shown:
    """What is not durable at the end of a log, most first."""
    table = layout.start_table(
        f"not durable after {render_seconds(found['seconds'])}, {found['promises']:,} promises",
        *("*file", ">changes", ">written", ">names", ">since", ">longest", ">at most"),
    )
    rows = sorted(found["files"], key=lambda each: (-each["changes"], -each["longest_ns"]))
    for each in rows[:_MOST_FILES]:
        ages = (render_age(each[key] / 1e9) for key in ("oldest_ns", "longest_ns"))
        since, longest = (age if each["longest_ns"] else "" for age in ages)
        table.add_row(
            layout.plain(each["path"]),
            f"{each['changes']:,}",
            render_bytes(each["bytes"]),
            f"{each['names']:,}",
            since if each["changes"] else "",
            longest,
            render_bytes(each["most_bytes"]),
        )
    table.caption = (
        "changes that no flush has made durable: a power cut now may take any of them; since when, "
        "the longest that one waited (or still does), the most that was written and not durable"
    )
    if (left := len(rows) - _MOST_FILES) > 0:
        table.caption += f"; {left:,} more files (--json has all)"
    return table


def render_verdicts(rows: Sequence[VerdictRow]) -> layout.Shown:
    """What each fault leaves of each crash cell; equal cells and writers are named once."""
    table = layout.start_table(
        "what a crash leaves", "-cell", "!writer", "!fault", "-verdict", "-states checked"
    )
    table.columns[-1].justify = "right"
    before: tuple[str, str] | None = None
    for label, row in zip(crash_labels(rows), rows, strict=True):
        key = (label, row.cell.workload.name)
        named = ["", ""] if key == before else list(key)
        told = VerdictText.of(row.verdict)
        text = " - ".join(filter(None, (told.text, told.reason)))
        style = "bold" if told.is_broken else None
        table.add_row(*named, row.verdict.fault, text, told.states, style=style)
        before = key
    table.caption = (
        "loses N, T: N acknowledged writes are missing in the worst state, the oldest of them "
        "acknowledged T before the crash; states are different contents that the crash may leave"
    )
    table.caption += "".join(f"; {layout.plain(each)}" for each in further_words(rows))
    return table
