"""Where flushes end: what ``crash flushes`` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diskproof.report.table_style import plain, start_table

if TYPE_CHECKING:
    from rich.table import Table


def render_flushes(found: Sequence[Mapping[str, Any]]) -> Table:
    """``found`` has a ``label`` and its ``counts`` for each guest, as in the JSON."""
    table = start_table("flushes of syncs in the guest")
    table.add_column("guest", overflow="fold")
    table.add_column("syncs on", overflow="fold")
    for name in ("asked", "guest", "QEMU", "host"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("finding", ratio=1, overflow="fold")
    for entry in found:
        name = entry["label"]
        for row in entry["counts"]:
            counts = (str(row[key]) for key in ("asked", "guest", "qemu", "host"))
            table.add_row(plain(name), plain(row["route"]), *counts, plain(row["finding"]))
            name = ""
    return table
