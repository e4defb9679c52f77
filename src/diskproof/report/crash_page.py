"""What the page says of crashes: durability beside speed, the verdicts, the course of a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from diskproof.report import charts
from diskproof.report.durability import crash_labels, durability_sentence
from diskproof.report.view import StudyView, WorkloadView
from diskproof.store.rows import VerdictRow
from diskproof.study.crash import FAULT_WORDS

_Figure = TypeVar("_Figure")
Draw = Callable[[charts.Spec, str, int], _Figure]
"""Puts a chart on the page with its caption and importance."""

MAX_TIMELINES = 2


def durability_figures(load: WorkloadView, draw: Draw[_Figure]) -> Iterator[_Figure]:
    """The scatter of speed against loss, for loads that write and have two cells judged."""
    judged = [line for line in load.lines if line.durability and line.durability.worst]
    if len(judged) > 1 and writes(load):
        text = (
            "Speed against the acknowledged writes that the worst crash lost (power cut, QEMU "
            "killed, guest killed): far right and at the bottom is fast and safe."
        )
        yield draw(charts.durability_chart(load), text, 1)


def writes(load: WorkloadView) -> bool:
    """Whether a load writes, as far as its options tell; a user's own job may."""
    spec = load.lines[0].ranked.cell.workload
    return spec.option("rw", "write") not in ("read", "randread")


def crash_parts(view: StudyView, draw: Draw[_Figure]) -> dict[str, Any]:
    """The study's own verdicts by cell, with the pictures of its worst losses."""
    rows = list(zip(crash_labels(view.verdicts), view.verdicts, strict=True))
    return {
        "rows": rows,
        "faults": [f for f in FAULT_WORDS if any(row.verdict.fault == f for _, row in rows)],
        "table": _by_cell(rows),
        "sentence": durability_sentence(view.verdicts),
        "fault_words": FAULT_WORDS,
        "figures": [*_timelines(rows, draw)],
    }


def _by_cell(
    rows: Sequence[tuple[str, VerdictRow]],
) -> list[tuple[str, str, dict[str, VerdictRow]]]:
    """(label, writer, verdicts by fault) of each crash cell, in the order they were made."""
    cells: dict[str, tuple[str, str, dict[str, VerdictRow]]] = {}
    for label, row in rows:
        cell = cells.setdefault(row.cell.id, (label, row.cell.workload.name, {}))
        cell[2][row.verdict.fault] = row
    return list(cells.values())


def _timelines(rows: Sequence[tuple[str, VerdictRow]], draw: Draw[_Figure]) -> Iterator[_Figure]:
    """The worst losses, each of another fault; what a lying device loses tells nothing new."""
    drawn: list[str] = []
    for label, row in sorted(rows, key=lambda each: each[1].verdict.badness, reverse=True):
        verdict = row.verdict
        if len(drawn) == MAX_TIMELINES or verdict.fault in drawn:
            continue
        if verdict.is_broken and verdict.counts and verdict.timeline:
            drawn.append(verdict.fault)
            caption = charts.timeline_caption(label, verdict)
            yield draw(charts.timeline_chart(verdict.timeline), caption, 2)
