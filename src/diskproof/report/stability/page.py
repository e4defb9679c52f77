"""How steady a workload was: first runs, the host over time, steady state, outliers, repeats."""

from __future__ import annotations

from collections.abc import Mapping

from diskproof.report.chapter import Chapter, Reading
from diskproof.report.charts import Draw
from diskproof.report.stability import table as stability_tables
from diskproof.report.stability.chart import drift_chart
from diskproof.report.stability.find import WorkloadStability, find_stability
from diskproof.report.stability.words import steady_words
from diskproof.report.view import StudyView


def _find(reading: Reading) -> Mapping[str, WorkloadStability]:
    store, study = reading.store, reading.study
    runs = {run.id: run for run in store.runs(study.id)}
    return {
        name: find_stability(store, study, rows, runs) for name, rows in reading.by_load.items()
    }


def _page(load: WorkloadStability, view: StudyView, draw: Draw) -> Mapping[str, object]:
    figures = []
    if load.drift is not None:
        caption = f"All cells of each block together: {stability_tables.drift_line(load)}."
        figures.append(draw(drift_chart(load.drift), caption, 3))
    return {
        "found": load,
        "lines": stability_tables.stability_lines(load),
        "figures": figures,
        "outliers": [", ".join(stability_tables.outlier_row(each)) for each in load.outliers],
        "steady_words": steady_words,
    }


CHAPTER = Chapter("stability", _find, _page, on_each_workload=True)
