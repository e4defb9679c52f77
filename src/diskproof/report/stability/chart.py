"""The host over time, block by block."""

from __future__ import annotations

from diskproof.report.charts import Spec, amount, tooltip, vega_chart
from diskproof.stats.drift import Drift


def drift_chart(drift: Drift) -> Spec:
    """Each block's level in percent of the study's mean, by the time it began."""
    rows = [
        {"hours": round(each.hours, 5), "block": each.block, "percent": round(100 * each.ratio, 3)}
        for each in drift.blocks
    ]
    title = "hours since the first block" if drift.per_hour is not None else "block"
    return vega_chart(
        rows,
        120,
        mark={"type": "line", "point": {"size": 40, "filled": True}, "color": "var(--best)"},
        encoding={
            "x": amount("hours", {"title": title, "tickCount": 5}),
            "y": amount(
                "percent",
                {"title": "% of the mean", "tickCount": 4},
                {"zero": False, "padding": 8},
            ),
            "tooltip": tooltip("block", "hours", "percent"),
        },
    )
