"""What the page says of crashes: the verdicts, the course of a loss."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from diskproof.records import StudyRecord
from diskproof.records.verdicts import VerdictRow
from diskproof.report import durability, layout
from diskproof.report.chapter import Chapter, Draw, Figure, Lead, Source
from diskproof.report.crash.cause_table import cause_rows, causes_of, causes_sentence
from diskproof.report.crash.cell_names import crash_labels
from diskproof.report.crash.chart import coverage_chart, timeline_chart
from diskproof.report.crash.table import render_verdicts
from diskproof.report.view import StudyView
from diskproof.store import Store
from diskproof.study.crash import FAULT_WORDS

Verdicts = tuple[VerdictRow, ...]

MAX_TIMELINES = 2
MAX_COVERAGES = 16


def _find(source: Source) -> Verdicts:
    """The study's own verdicts; those of others stand beside its speeds."""
    rows = source.store.verdicts(source.study.id)
    return tuple(row for row in rows if row.host_id == source.host.id)


def _hosts(store: Store, study: StudyRecord) -> Iterable[str]:
    return [row.host_id for row in store.verdicts(study.id)]


def _lead(verdicts: Verdicts, view: StudyView) -> Lead:
    return Lead(
        f"{len(verdicts)} crash verdicts",
        answers=(("crashes", durability.durability_sentence(verdicts)),),
        title="what does a crash leave?",
    )


def _tables(verdicts: Verdicts, view: StudyView, best: int) -> Sequence[layout.Shown]:
    """Beside speeds the column says it; a list as long as theirs would hide them."""
    return [] if view.workloads else [render_verdicts(verdicts)]


def _page(verdicts: Verdicts, view: StudyView, draw: Draw) -> Mapping[str, object]:
    """The study's own verdicts by cell, with the pictures of its worst losses."""
    rows = list(zip(crash_labels(verdicts), verdicts, strict=True))
    faults = [f for f in FAULT_WORDS if any(row.verdict.fault == f for _, row in rows)]
    return {
        "rows": rows,
        "faults": faults,
        "table": _by_cell(rows),
        "fault_words": {fault: FAULT_WORDS[fault] for fault in faults},
        "whole": durability.whole_words(verdicts),
        "causes": _causes(verdicts),
        "figures": [
            *(
                draw(timeline_chart(course), caption, 2)
                for course, caption in durability.worst_losses(rows, MAX_TIMELINES)
            ),
            *_coverage(rows, draw),
        ],
    }


def _coverage(rows: Sequence[tuple[str, VerdictRow]], draw: Draw) -> Iterator[Figure]:
    """Where not all that decides was looked at: how much of it was."""
    so_far = [
        (f"{label}, {row.verdict.fault}", tuple(durability.find_looked(row.verdict)))
        for label, row in rows
        if row.verdict.kept_so_far
    ][:MAX_COVERAGES]
    if any(looked for _, looked in so_far):
        caption = "Kept so far: how much was looked at of what decides, and of all states."
        yield draw(coverage_chart(so_far), caption, 1)


def _causes(verdicts: Verdicts) -> list[tuple[str, str, list[tuple[str, ...]], str]]:
    """(writer, fault, rows, what is known of all) where causes were looked for."""
    return [
        (each.cell.workload.name, each.verdict.fault, [*cause_rows(of)], causes_sentence(of))
        for each, of in causes_of(verdicts)
    ]


def _by_cell(
    rows: Sequence[tuple[str, VerdictRow]],
) -> list[tuple[str, str, dict[str, durability.VerdictText]]]:
    """(label, writer, verdicts by fault) of each crash cell, in the order they were made."""
    cells: dict[str, tuple[str, str, dict[str, durability.VerdictText]]] = {}
    for label, row in rows:
        cell = cells.setdefault(row.cell.id, (label, row.cell.workload.name, {}))
        cell[2][row.verdict.fault] = durability.VerdictText.of(row.verdict)
    return list(cells.values())


CHAPTER = Chapter(
    "crash",
    _find,
    _page,
    table=_tables,
    lead=_lead,
    raw=durability.crash_cells_json,
    question="What does a crash leave of each cell?",
    hosts=_hosts,
)
