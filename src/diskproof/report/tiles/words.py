"""Sentences, figures and rows about tiles, the same in the terminal and on the page."""

from collections.abc import Callable, Iterator, Sequence

from diskproof.records import Failure
from diskproof.records.metrics import JUDGED, metric_label
from diskproof.report.labels import count, plus_minus, render_figure, render_short_latency
from diskproof.report.tiles.find import CellTiles, TilesAt, TileView, WorkFigure
from diskproof.report.tiles.host_figures import NAMED
from diskproof.stats.capacity import Capacity, compare_capacity
from diskproof.stats.intervals import Interval

ORIGIN = (
    "Each run starts all machines of its tiles with fresh disks. How many tiles run next, and in "
    "which cell, the runs before and the study's seed decide."
)
MISSED = "!"
MISSED_CAPTION = "! missed its service level, in at least one run and tile, by the factor beside it"
SCORE_CAPTION = (
    "score: sum over tiles of the geometric mean over workloads of throughput over that of one "
    "tile alone (n tiles that do not hinder each other score n); fairness: the least such share "
    "of any workload in any tile"
)
HOST_CAPTION = (
    "load, the true one, is user + system: waiting is idle time; eff (efficiency) is disk "
    "throughput for each percent of utilisation"
)


def headline(view: TileView) -> str:
    """Study, host, tile, runs."""
    runs = sum(len(at.runs) + len(at.failed) for cell in view.cells for at in cell.at)
    failed = len(view.failed)
    parts = (
        f"study {view.study.name}",
        f"host {view.host.name}",
        f"tile {view.tile} of {count(len(view.guests), 'guest')}",
        count(runs, "run"),
        f"{failed} failed" if failed else "none failed",
    )
    return ", ".join(parts)


def capacity_text(capacity: Capacity, guests: int) -> str:
    """``3 tiles [2, 3], 12 VMs``; ``3 tiles or more [3, 3+], 12 VMs`` where no more were tried."""
    more = capacity.open_above and capacity.tiles == capacity.high
    reach = f"[{capacity.low}, {capacity.high}{'+' if capacity.open_above else ''}]"
    named = f"{count(capacity.tiles, 'tile')}{' or more' if more else ''}"
    return f"{named} {reach}, {count(capacity.tiles * guests, 'VM')}"


def against_best(cell: CellTiles, cells: Sequence[CellTiles]) -> str:
    """How a cell stands to the one that carries most: ``best``, ``tie``, ``fewer``; empty for a
    cell that is alone."""
    best = max(cells, key=lambda each: (each.capacity.tiles, each.capacity.low))
    if len(cells) == 1:
        return ""
    if cell is not best:
        return (
            "fewer" if compare_capacity(best.capacity, cell.capacity).verdict == "fewer" else "tie"
        )
    others = (each for each in cells if each is not best)
    ties = any(compare_capacity(best.capacity, each.capacity).verdict == "tie" for each in others)
    return "tie" if ties else "best"


def capacity_sentence(view: TileView) -> str:
    """Which cell carries most, and how sure that is."""
    cells = view.cells
    stands = [against_best(cell, cells) for cell in cells]
    if len(cells) == 1:
        return f"{view.host.name} carries {_carried(view, cells[0])}: {cells[0].capacity.reason}."
    if "best" in stands:
        best = cells[stands.index("best")]
        return f"{best.label} carries most: {_carried(view, best)}; {best.capacity.reason}."
    tied = [cell for cell, each in zip(cells, stands, strict=True) if each == "tie"]
    if len(tied) == len(cells):
        most = _carried(view, max(cells, key=lambda cell: cell.capacity.tiles))
        return f"No cell is proved to carry more than another; the best guess is {most}."
    named = ", ".join(cell.label for cell in tied)
    return f"Not told apart, and not proved to carry fewer than any other: {named}."


def _carried(view: TileView, cell: CellTiles) -> str:
    return capacity_text(cell.capacity, len(view.guests))


# -- figures --------------------------------------------------------------------------------


def interval_text(interval: Interval | None) -> str:
    """``130.2 ±3.1``; a single run has no interval, ``-`` was not measured."""
    if interval is None:
        return "-"
    if interval.half_width is None:
        return f"{render_figure(interval.mean)} \u00b1?"
    return f"{render_figure(interval.mean)} {plus_minus(interval).replace(' ', '', 1)}"


def work_text(figure: WorkFigure | None) -> str:
    """``130.2 ±3.1`` and, where the service level was missed, ``!2.4x`` of its limit."""
    if figure is None:
        return "-"
    if figure.unit == "s" and figure.metric.startswith("latency"):
        text = render_short_latency(figure.interval.mean)
    else:
        text = interval_text(figure.interval)
    return f"{text} {miss_text(figure)}".strip()


def miss_text(figure: WorkFigure) -> str:
    """``!1.3x``: the service level was missed, the figure is 1.3 times its limit."""
    if figure.worst is None or figure.worst <= 1:
        return ""
    return (
        f"{MISSED}{figure.worst:.2f}x" if figure.worst < 9.995 else f"{MISSED}{figure.worst:.0f}x"
    )


def work_title(figure: WorkFigure) -> str:
    return f"{figure.work} {metric_label(figure.metric)}"


def host_text(at: TilesAt, name: str) -> str:
    """A figure of the host, short; memory in GiB, ``-`` where nobody sampled it."""
    interval = at.host.get(name)
    if interval is None:
        return "-"
    unit = NAMED[name].unit
    if unit == "MiB":
        return f"{interval.mean / 1024:.2f}"
    if unit == "percent":
        return f"{interval.mean:.1f}" if interval.mean < 9.95 else f"{interval.mean:.0f}"
    return f"{interval.mean:.3g}"


def runs_text(at: TilesAt) -> str:
    """``3``, ``2 of 3`` where some failed."""
    failed = len(at.failed)
    return f"{len(at.runs)} of {len(at.runs) + failed}" if failed else str(len(at.runs))


def failure_line(failure: Failure) -> str:
    """What failed (guest, phase and step stand in it), and the last line of why."""
    lines = [line.strip() for line in failure.why.splitlines() if line.strip()]
    last = lines[-1][-300:] if lines else ""
    return f"{failure.kind}: " + ": ".join(filter(None, (failure.what, last)))


Row = tuple[str, str, tuple[str, ...]]
"""(title, cell's label, a text for each number of tiles)."""


def judged_keys(view: TileView) -> list[tuple[str, str]]:
    """(workload, metric) of what has a service level, in the order of the workloads."""
    found = {key for cell in view.cells for at in cell.at for key in at.works}
    return [(work, metric) for work in view.works for metric in JUDGED if (work, metric) in found]


def time_rows(view: TileView, numbers: Sequence[int]) -> Iterator[Row]:
    """Runs, wall time with its place, each workload's time and latency, score, fairness."""
    yield from _rows(view, numbers, "runs", runs_text)
    yield from _rows(view, numbers, "wall time s", _wall)
    for key in judged_keys(view):
        titles = (work_title(at.works[key]) for c in view.cells for at in c.at if key in at.works)
        yield from _rows(view, numbers, next(titles), _work(key))
    yield from _rows(view, numbers, "score", lambda at: _score(at, least=False))
    yield from _rows(view, numbers, "fairness", lambda at: _score(at, least=True))


def host_rows(view: TileView, numbers: Sequence[int]) -> Iterator[Row]:
    """Every figure of the host that was sampled, with its unit."""
    for figure in NAMED.values():
        if any(figure.name in at.host for cell in view.cells for at in cell.at):
            title = f"{figure.title}, {figure.unit}"
            yield from _rows(view, numbers, title, _host(figure.name))


def _rows(
    view: TileView, numbers: Sequence[int], title: str, text: Callable[[TilesAt], str]
) -> Iterator[Row]:
    for cell in view.cells:
        at = {each.tiles: each for each in cell.at}
        yield title, cell.label, tuple(text(at[n]) if n in at else "-" for n in numbers)


def _wall(at: TilesAt) -> str:
    placed = f"#{at.place}" if at.place not in ("", "?") else ""  # single runs have no place
    return f"{interval_text(at.seconds)} {placed}".strip()


def _work(key: tuple[str, str]) -> Callable[[TilesAt], str]:
    return lambda at: work_text(at.works.get(key))


def _host(name: str) -> Callable[[TilesAt], str]:
    return lambda at: interval_text(at.host.get(name))


def _score(at: TilesAt, *, least: bool) -> str:
    if at.score is None:
        return "-"
    return interval_text(at.score.minimum if least else at.score.sum)
