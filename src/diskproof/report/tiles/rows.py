"""Figures of tiles as rows of texts: a title, a cell, and a figure for each number of tiles. The
terminal and the page show the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from diskproof.report.tiles.find import TilesAt, TileView
from diskproof.report.tiles.host import NAMED
from diskproof.report.tiles.words import interval_text, runs_text, work_text, work_title
from diskproof.stats.tile_trials import JUDGED

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
