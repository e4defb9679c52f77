"""How steady a workload was, on the page; the host over time as a picture."""

from collections.abc import Mapping

from diskproof.report import vega
from diskproof.report.chapter import Chapter, Draw, Source
from diskproof.report.stability import table as stability_tables
from diskproof.report.stability.find import WorkloadStability, find_stability
from diskproof.report.view import StudyView
from diskproof.stats.drift import Drift


def drift_chart(drift: Drift) -> vega.Spec:
    """Each block's level in percent of the study's mean, by the time it began."""
    rows = [
        {"hours": round(each.hours, 5), "block": each.block, "percent": round(100 * each.ratio, 3)}
        for each in drift.blocks
    ]
    title = "hours since the first block" if drift.per_hour is not None else "block"
    return vega.chart(
        rows,
        120,
        mark={"type": "line", "point": {"size": 40, "filled": True}, "color": "var(--best)"},
        encoding={
            "x": vega.amount("hours", {"title": title, "tickCount": 5}),
            "y": vega.amount(
                "percent",
                {"title": "% of the mean", "tickCount": 4},
                {"zero": False, "padding": 8},
            ),
            "tooltip": vega.tooltip("block", "hours", "percent"),
        },
    )


def _find(source: Source) -> Mapping[str, WorkloadStability]:
    store, study = source.store, source.study
    runs = {run.id: run for run in store.runs(study.id)}
    return {name: find_stability(store, study, rows, runs) for name, rows in source.by_load.items()}


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
        "inside_words": stability_tables.inside_words,
    }


CHAPTER = Chapter("stability", _find, _page, on_each_workload=True)
