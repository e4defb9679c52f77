"""What ``diskproof show`` prints: results with their intervals, in a useful order."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NotRequired, TypedDict

from diskproof.records import StudyRecord
from diskproof.stats.histograms import CellFigure
from diskproof.stats.study_race import race_rules
from diskproof.store.rows import ResultRow

Figures = Mapping[ResultRow, CellFigure]


class OwnedJson(TypedDict):
    default_of: NotRequired[list[str]]


class ShownJson(OwnedJson):
    """One cell's results in one metric, as ``show --json`` prints them."""

    study: str
    host: str
    cell: dict[str, str]
    workload: str
    metric: str
    unit: str
    higher_is_better: bool
    primary: bool
    n: int
    stopped: bool
    mean: float | None
    ci95: float | None
    geomean: float | None
    low95: float | None
    high95: float | None
    pooled: bool
    reason: str | None
    runs: list[float]


def show_rows(
    results: Sequence[ResultRow], figures: Figures, studies: Collection[StudyRecord]
) -> list[ShownJson]:
    """Results as plain JSON, one object each (a contract).

    ``cell`` holds the levels by name, ``ci95`` is the half width of the 95 % Student-t interval of
    the mean (None for a single run), ``geomean`` the geometric mean, which rankings go by (None for
    a percentile, and where a value has no logarithm), ``runs`` the values in the order of their
    blocks, all in ``unit``; ``default_of`` is there where managers give such a disk. ``study`` and
    ``host`` are ids. ``stopped``: a race went on without the cell, whose figures are too slow. A
    percentile of all operations of the runs has its interval in ``low95`` and ``high95`` (as means
    have); where there is none ``mean`` is None and ``reason`` says why.
    """
    rows: list[ShownJson] = []
    last = _last_blocks_of_races(results, studies)
    for row in results:
        figure, names = figures[row], row.cell.names
        owned: OwnedJson = {"default_of": list(names)} if names else {}
        rows.append(
            {
                "study": row.study_id,
                "host": row.host_id,
                "cell": row.cell.levels_dict(),
                **owned,
                "workload": row.cell.workload.name,
                "metric": row.metric,
                "unit": row.unit,
                "higher_is_better": row.higher_is_better,
                "primary": row.primary,
                "n": figure.n,
                "stopped": max(row.blocks, default=0) < last.get(_load(row), 0),
                "mean": figure.value,
                "ci95": figure.half_width,
                "geomean": figure.geomean,
                "low95": figure.low,
                "high95": figure.high,
                "pooled": figure.pooled,
                "reason": figure.reason or None,
                "runs": list(row.values),
            }
        )
    return rows


def _last_blocks_of_races(
    results: Sequence[ResultRow], studies: Collection[StudyRecord]
) -> dict[tuple[str, str, str], int]:
    """The last block that any cell has, by study, workload and metric."""
    shown = {row.study_id for row in results}
    races = {study.id for study in studies if study.id in shown and race_rules(study)}
    last: dict[tuple[str, str, str], int] = {}
    for row in results:
        if row.study_id in races:
            last[_load(row)] = max(last.get(_load(row), 0), *row.blocks)
    return last


def _load(row: ResultRow) -> tuple[str, str, str]:
    return row.study_id, row.cell.workload.name, row.metric


def sorted_results(
    results: Sequence[ResultRow], figures: Figures, *, by_cell: bool
) -> list[ResultRow]:
    """Results by study and workload, and then by cell: in the study's order with ``by_cell``,
    else the best geometric mean first, judged by the workload's primary metric (or, where that was
    left out, by the first one there is); a cell without a figure comes last.

    The order of studies, workloads and cells is that of their first result; the metrics of a cell
    stay together.
    """
    cells: dict[tuple[str, str], dict[tuple[str, str], list[ResultRow]]] = {}
    for row in results:
        of_workload = cells.setdefault((row.study_id, row.cell.workload.name), {})
        of_workload.setdefault((row.cell.id, row.host_id), []).append(row)
    studies = list(dict.fromkeys(study for study, _ in cells))
    ordered = []
    for key in sorted(cells, key=lambda key: studies.index(key[0])):
        groups = list(cells[key].values())
        if not by_cell:
            groups.sort(key=lambda group: _badness(group, figures))
        ordered += [row for group in groups for row in group]
    return ordered


def _badness(rows: Sequence[ResultRow], figures: Figures) -> float:
    judged = next((row for row in rows if row.primary), rows[0])
    figure = figures[judged]
    value = figure.value if figure.geomean is None else figure.geomean
    if value is None:
        return math.inf
    return -value if judged.higher_is_better else value
