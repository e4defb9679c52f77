"""Are the first boots of a clone different from its later ones? A thin image grows in the first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from diskproof.stats.first_run import FirstRunEffect, first_run_effect
from diskproof.stats.intervals import Sample

if TYPE_CHECKING:
    from diskproof.store import ResultRow, Store

KINDS = ("read", "write")
SOURCE = "boots"


@dataclass(frozen=True)
class FirstBoots:
    """The effect over the clones of one level of preallocation, or over all (``level`` empty)."""

    kind: str
    factor: str
    level: str
    effect: FirstRunEffect


def find_first_boots(
    store: Store, rows: Sequence[ResultRow], factors: Mapping[str, Sequence[str]]
) -> tuple[FirstBoots, ...]:
    """For read and write boots; nothing for workloads without boots. Each clone is one repeat: its
    boots share its luck."""
    if not rows or rows[0].cell.workload.kind != SOURCE:
        return ()
    clones = [(row, dict(_boots(store, run_id))) for row in rows for run_id in row.run_ids]
    groups = [("", "")]
    groups += [("preallocation", level) for level in factors.get("preallocation", ())]
    return tuple(
        FirstBoots(kind, factor, level, effect)
        for kind in KINDS
        for factor, level in groups
        if (
            effect := first_run_effect(
                [
                    Sample(boots[kind])
                    for row, boots in clones
                    if kind in boots and (not factor or row.cell.level(factor) == level)
                ]
            )
        )
    )


def _boots(store: Store, run_id: str) -> Iterator[tuple[str, tuple[float, ...]]]:
    for series in store.series_of(run_id):
        if series.source == SOURCE:
            yield series.name.partition("_")[0], series.values
