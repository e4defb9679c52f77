"""The page's parts on the classic protocols: curves of thin disks, warm-ups, lives of caches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diskproof.report.chapter import Chapter, Draw, Figure
from diskproof.report.labels import evenly, plus_minus, render_figure
from diskproof.report.protocols import chart, find
from diskproof.report.view import StudyView
from diskproof.stats.intervals import Interval

MAX_PANELS = 12
MOMENTS = ("read", "guest reset", "QEMU ended")


@dataclass(frozen=True)
class ProtocolPart:
    """One part: a title, how to read it, its charts, and a table with all cells. The first column
    of the table is the cell, the first ``named`` columns are words."""

    title: str
    note: str
    figures: tuple[Figure, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    named: int = 1


def _page(found: find.ProtocolView, view: StudyView, draw: Draw) -> Mapping[str, object]:
    figures = _grid_figures(found.grids, draw)
    return {"grids": found.grids, "grid_figures": figures, "parts": protocol_parts(found, draw)}


def protocol_parts(view: find.ProtocolView, draw: Draw) -> list[ProtocolPart]:
    """What a workload has of those that are a chart and a table."""
    return [
        *([_curves_part(view.curves, draw)] if view.curves else []),
        *([_warm_up_part(view.warm_ups, draw)] if view.warm_ups else []),
        *([_cache_life_part(view.cache_lives, draw)] if view.cache_lives else []),
    ]


def _curves_part(cells: Sequence[find.CellCurves], draw: Draw) -> ProtocolPart:
    shown = cells[:MAX_PANELS]
    unit = cells[0].curves[0].unit
    note = (
        "The disk was written twice, part by part: a thin image allocates in the first pass. "
        f"{unit} over the share of the disk touched; bands are 95 % intervals over runs. "
        "All panels have one scale."
    )
    if len(cells) > len(shown):
        note = f"{note} The best {len(shown)} of {len(cells)} cells; all are in the table."
    percents = chosen_percents(cells)
    return ProtocolPart(
        "First write against rewrite",
        note,
        tuple(
            draw(
                chart.curve_chart(cell.curves, _highest(shown)),
                f"{cell.label}: {ratio_words(cell)}",
                2,
            )
            for cell in shown
        ),
        ("cell", "pass", *(f"to {percent} %" for percent in percents)),
        tuple(row for cell in cells for row in curve_rows(cell, percents)),
        named=2,
    )


def _highest(cells: Sequence[find.CellCurves]) -> float:
    """The end of the panels' scale: one part that scatters wildly must not press all curves to the
    ground."""
    points = [each for cell in cells for curve in cell.curves for _, each in curve.points]
    ends = (each.mean + (each.half_width or 0.0) for each in points)
    return min(max(ends, default=1.0), 1.5 * max((each.mean for each in points), default=1.0))


def chosen_percents(cells: Sequence[find.CellCurves], most: int = 10) -> tuple[int, ...]:
    """The ends of the parts that a table has room for."""
    ends = {end for cell in cells for curve in cell.curves for end, _ in curve.points}
    return evenly(sorted(ends), most)


def curve_rows(cell: find.CellCurves, percents: Sequence[int]) -> list[tuple[str, ...]]:
    """A row for each pass: cell, pass, the speed of each part."""
    rows = []
    for curve in cell.curves:
        points = dict(curve.points)
        figures = (render_figure(points[at].mean) if at in points else "" for at in percents)
        rows.append((cell.label, chart.PASS_WORDS[curve.name], *figures))
    return rows


def ratio_words(cell: find.CellCurves) -> str:
    """``rewriting is 1.90 x as fast as the first write (1.70 to 2.10)``."""
    if cell.ratio is None:
        return "two passes"
    low, high = cell.ratio.low, cell.ratio.high
    text = f"rewriting is {cell.ratio.ratio:.2f} x as fast as the first write"
    return text if low is None or high is None else f"{text} ({low:.2f} to {high:.2f})"


def _warm_up_part(cells: Sequence[find.CellWarmUp], draw: Draw) -> ProtocolPart:
    courses = [(cell.label, cell.course) for cell in cells if cell.course]
    caption = "IOPS from the first operation on, means over runs with 95 % intervals."
    if len(courses) < len(cells):
        caption = f"{caption} The best cell, the worst and some between; all are in the table."
    figures = [draw(chart.warm_up_chart(courses), caption, 1)] if courses else []
    note = (
        "Skewed re-reads from a cold cache: what is read again comes from memory where a cache "
        "lies between. Warm is the mean of a run's last third; the time is that until 90 % of it, "
        "and is not told where the speed still changed by more than 10 % within that third."
    )
    return ProtocolPart(
        "Warming up",
        note,
        tuple(figures),
        ("cell", "first tenth, IOPS", "warm, IOPS", "warm / first", "seconds to 90 %"),
        tuple(_warm_up_row(cell) for cell in cells),
    )


def _warm_up_row(cell: find.CellWarmUp) -> tuple[str, ...]:
    gain = f"{cell.warm.mean / cell.cold.mean:.2f}" if cell.cold.mean > 0 else "-"
    seconds = _with_half_width(cell.seconds) if cell.seconds else "not steady"
    if cell.seconds and cell.steady_runs < cell.warm.n:
        seconds = f"{seconds} ({cell.steady_runs} of {cell.warm.n} runs)"
    return (cell.label, _with_half_width(cell.cold), _with_half_width(cell.warm), gain, seconds)


def _cache_life_part(cells: Sequence[find.CellCacheLife], draw: Draw) -> ProtocolPart:
    drawn = [
        (cell.label, [each.mean for each in (cell.read, cell.after_reset, cell.after_end)])
        for cell in cells
    ]
    caption = "Percent of the disk in the host's page cache after each step."
    if len(cells) > chart.MAX_LIVES:
        caption = f"{caption} The best {chart.MAX_LIVES} of {len(cells)}; the table has all."
    note = (
        "A guest read its whole disk twice, was reset, and its QEMU ended; the pages were counted "
        "after each. A file keeps its pages, a block device drops them with its last user, and "
        "cache=none has none."
    )
    return ProtocolPart(
        "What a cache outlives",
        note,
        (draw(chart.cache_life_chart(MOMENTS, drawn), caption, 1),),
        ("cell", *(f"{moment}, %" for moment in MOMENTS), "first read, MiB/s", "second, MiB/s"),
        tuple(_cache_life_row(cell) for cell in cells),
    )


def _cache_life_row(cell: find.CellCacheLife) -> tuple[str, ...]:
    figures = (cell.read, cell.after_reset, cell.after_end, cell.first_read, cell.second_read)
    return (cell.label, *(_with_half_width(each) if each else "-" for each in figures))


def _with_half_width(interval: Interval) -> str:
    text = render_figure(interval.mean)
    return text if interval.half_width is None else f"{text} {plus_minus(interval)}"


def _grid_figures(cells: Sequence[find.CellGrids], draw: Draw) -> list[Figure]:
    """One heat map for each test, of the cell that is chosen in it."""
    tests = dict.fromkeys(grid.test for cell in cells for grid in cell.grids)
    figures = []
    for test in tests:
        grids = [(cell.label, grid) for cell in cells for grid in cell.grids if grid.test == test]
        figures.append(draw(chart.grid_chart(grids), _grid_caption(test, grids[0][0], cells), 2))
    return figures


def _grid_caption(test: str, shown: str, cells: Sequence[find.CellGrids]) -> str:
    unit = cells[0].grids[0].unit
    text = f"{test}: {unit} by record size and file size, {shown}."
    if len(cells) > 1:
        text = f"{text} With scripts on, other cells can be chosen; the colours keep their scale."
    if len(cells) > chart.MAX_GRID_CELLS:
        text = f"{text} The best {chart.MAX_GRID_CELLS} of {len(cells)}; all are in the tables."
    return text


CHAPTER = Chapter("protocols", find.find_protocols, _page, on_each_workload=True)
