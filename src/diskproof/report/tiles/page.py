"""What the page says of tiles: how many the host carries, times and score against their number,
what the host did, what every guest was doing when."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from diskproof.records import StudyRecord
from diskproof.records.metrics import find_metric
from diskproof.records.tiles import TileRun
from diskproof.report.chapter import Chapter, Draw, Figure, Lead, Source
from diskproof.report.labels import count
from diskproof.report.tiles import chart, lanes
from diskproof.report.tiles import words as tile_words
from diskproof.report.tiles.find import CellTiles, TilesAt, TileView, analyse_stored
from diskproof.report.tiles.host_figures import NAMED
from diskproof.report.tiles.table import tiles_json
from diskproof.report.tiles.words import host_rows, judged_keys, time_rows
from diskproof.report.view import StudyView
from diskproof.stats.intervals import Interval
from diskproof.store import Store

Lines = list[tuple[str, list[chart.TilePoint]]]

MAX_WORK_CHARTS = 12
_CPU = {"cpu_user": "user", "cpu_system": "system", "cpu_wait": "waiting"}
_CPU_COLOURS = {"user": "var(--c1)", "system": "var(--c2)", "waiting": "var(--bar)"}
_MOVED_COLOURS = {"read": "var(--c1)", "written": "var(--c2)"}
_MEMORY_COLOURS = {"without page cache": "var(--c1)", "page cache": "var(--bar)"}
_DISK = ("disk_util", "efficiency", "read_await", "write_await", "flush_await")
_MOVED = {"disk_read": "read", "disk_write": "written"}
_CPU_TEXT = (
    "CPU of the host in percent of all its CPUs. The true load is user and system; waiting is idle "
    "time with a request under way."
)


@dataclass(frozen=True)
class StudyTiles:
    """A study's runs of tiles on a host, and for the page what they tell."""

    runs: tuple[TileRun, ...]
    view: TileView | None


def _find(source: Source) -> StudyTiles | None:
    store, study, host = source.store, source.study, source.host
    runs = tuple(run for run in store.tile_runs(study.id) if run.host_id == host.id)
    view = analyse_stored(store, study, host, runs) if source.details else None
    return StudyTiles(runs, view) if runs else None


def _hosts(store: Store, study: StudyRecord) -> Iterable[str]:
    return [run.host_id for run in store.tile_runs(study.id)]


def _lead(tiles: StudyTiles, view: StudyView) -> Lead:
    runs = tiles.runs
    failed = sum(run.failure is not None for run in runs)
    cells = len({run.cell.id for run in runs})
    sentence = tile_words.capacity_sentence(tiles.view) if tiles.view else ""
    return Lead(
        f"{len(runs)} runs of tiles",
        answers=(("tiles", sentence),),
        facts=(("runs of tiles", f"{len(runs) - failed} good, {failed} failed, {cells} cells"),),
        title=f"how many virtual machines does {view.host.name} carry?",
        origin=tile_words.ORIGIN,
        cells=tuple(run.cell for run in runs),
        failed=failed,
    )


def _page(tiles: StudyTiles, study: StudyView, draw: Draw) -> Mapping[str, object]:
    view = tiles.view
    assert view is not None, "the page is made of views with details"
    return {
        "view": view,
        "told": tile_words,
        "count": count,
        "capacity": [(cell, tile_words.against_best(cell, view.cells)) for cell in view.cells],
        "times": [*_time_figures(view, draw)],
        "works": [*_work_figures(view, draw)],
        "timelines": [*_timeline_figures(view, draw)],
        "host": [*_host_figures(view, draw)],
        "rows": [*time_rows(view, view.counts)],
        "host_rows": [*host_rows(view, view.counts)],
    }


def _raw(tiles: StudyTiles) -> Iterable[Mapping[str, object]]:
    return tiles_json([tiles.view] if tiles.view else [])


def _all(view: TileView) -> list[tuple[CellTiles, TilesAt]]:
    return [(cell, at) for cell in view.cells for at in cell.at]


# -- times and score ------------------------------------------------------------------------


def _lines(
    view: TileView, pick: Callable[[TilesAt], Interval | None], missed: Callable[[TilesAt], bool]
) -> Lines:
    """A line a cell of what ``pick`` finds; cells without any are left out."""
    lines: Lines = []
    for cell in view.cells:
        points = [
            chart.TilePoint(
                at.tiles,
                interval.mean,
                interval.half_width,
                tile_words.interval_text(interval),
                missed(at),
            )
            for at in cell.at
            if (interval := pick(at)) is not None
        ]
        if points:
            lines.append((cell.label, points))
    return lines


def _caption(text: str, lines: Lines) -> str:
    hidden = len(lines) - chart.MAX_TILE_LINES
    return f"{text} {hidden} more cells are in the table." if hidden > 0 else text


def _time_figures(view: TileView, draw: Draw) -> Iterator[Figure]:
    wall = _lines(view, lambda at: at.seconds, lambda at: at.missed > 0)
    if wall:
        text = (
            "Wall time until all workloads of all tiles have ended: means with 95 % intervals. "
            "Ringed: a run missed a service level."
        )
        yield draw(chart.tiles_chart(wall, "wall time (s)"), _caption(text, wall), 0)
    score = _lines(
        view,
        lambda at: at.score.sum if at.score else None,
        lambda at: at.score is not None and not at.score.holds,
    )
    if score:
        text = (
            "Score: work done, in tiles that run alone. Dashed: tiles that do not hinder each "
            "other. Ringed: a service level was missed, so the score is no result."
        )
        yield draw(chart.tiles_chart(score, "score", ideal=True), _caption(text, score), 0)
    least = _lines(view, lambda at: at.score.minimum if at.score else None, lambda at: False)
    if least:
        text = (
            "Fairness: the throughput of the workload that fares worst, over that of a tile alone."
        )
        yield draw(chart.tiles_chart(least, "least share"), _caption(text, least), 1)


def _work_figures(view: TileView, draw: Draw) -> Iterator[Figure]:
    for work, metric in judged_keys(view)[:MAX_WORK_CHARTS]:
        key = (work, metric)
        lines = _lines(view, partial(_interval_of, key), partial(_missed, key))
        row = find_metric(metric)
        named = row.title if row else metric
        text = f"{work}: {named}, mean over tiles. Ringed: its service level was missed in a tile."
        yield draw(chart.tiles_chart(lines, named), _caption(text, lines), 1)


def _interval_of(key: tuple[str, str], at: TilesAt) -> Interval | None:
    figure = at.works.get(key)
    return figure.interval if figure else None


def _missed(key: tuple[str, str], at: TilesAt) -> bool:
    figure = at.works.get(key)
    return figure is not None and figure.worst is not None and figure.worst > 1


# -- the host -------------------------------------------------------------------------------


def _host_figures(view: TileView, draw: Draw) -> Iterator[Figure]:
    if bars := _bars(view, _named(_CPU), "load {} %"):
        yield draw(
            chart.parts_chart(bars, _CPU_COLOURS, "percent of CPU"), _cut(_CPU_TEXT, bars), 1
        )
    if bars := _bars(view, _named(_MOVED), "{} MiB/s"):
        text = "What the host's disks moved during the load."
        yield draw(chart.parts_chart(bars, _MOVED_COLOURS, "MiB/s"), _cut(text, bars), 2)
    for name in _DISK:
        yield from _host_lines(view, name, draw)
    if bars := _bars(view, _memory, "{} GiB"):
        text = "Memory of the host that is in use, mean over the load."
        yield draw(chart.parts_chart(bars, _MEMORY_COLOURS, "GiB"), _cut(text, bars), 2)
    for name in ("ksm_saved", "ksmd_cpu"):
        if any(at.host[name].mean > 0 for _, at in _all(view) if name in at.host):
            yield from _host_lines(view, name, draw)


def _bars(
    view: TileView, parts: Callable[[TilesAt], dict[str, float]], text: str
) -> list[chart.PartBar]:
    """A bar for each cell and number of tiles that tells all the parts; ``text`` has the sum of
    the first two."""
    found = [(cell, at, parts(at)) for cell, at in _all(view)]
    return [
        chart.PartBar(
            f"{cell.label}, {count(at.tiles, 'tile')}",
            values,
            text.format(f"{sum([*values.values()][:2]):.3g}"),
        )
        for cell, at, values in found
        if values
    ]


def _cut(text: str, bars: Sequence[chart.PartBar]) -> str:
    hidden = len(bars) - chart.MAX_TILE_BARS
    return f"{text} {hidden} more are in the table." if hidden > 0 else text


def _named(names: Mapping[str, str]) -> Callable[[TilesAt], dict[str, float]]:
    """Figures of the host by what a bar calls them; none unless all were sampled."""

    def parts(at: TilesAt) -> dict[str, float]:
        told = all(name in at.host for name in names)
        return {text: at.host[name].mean for name, text in names.items()} if told else {}

    return parts


def _memory(at: TilesAt) -> dict[str, float]:
    if not {"memory", "memory_cached"} <= set(at.host):
        return {}
    used, all_ = at.host["memory"].mean / 1024, at.host["memory_cached"].mean / 1024
    return {"without page cache": used, "page cache": max(0.0, all_ - used)}


def _host_lines(view: TileView, name: str, draw: Draw) -> Iterator[Figure]:
    lines = _lines(view, lambda at: at.host.get(name), lambda at: False)
    if lines:
        figure = NAMED[name]
        text = f"{figure.title[0].upper()}{figure.title[1:]}, mean over the load."
        yield draw(chart.tiles_chart(lines, figure.unit), _caption(text, lines), 3)


# -- who did what when ----------------------------------------------------------------------


def _timeline_figures(view: TileView, draw: Draw) -> Iterator[Figure]:
    """The typical run of each cell and number of tiles, the most tiles first; where none went
    well, a failed one."""
    found = [
        lanes.Timeline(_run_name(cell, at, run is None), run or at.failed[0])
        for cell, at in sorted(_all(view), key=lambda each: -each[1].tiles)
        for run in [at.typical]
        if run is not None or at.failed
    ]
    found = [each for each in found if each.run.steps]
    if not found:
        return
    text = (
        f"What each guest was doing when: {found[0].name}. What set it up is cut at the left; "
        "workloads that a guest drives at the same time stand below each other."
    )
    if len(found) > 1:
        text = f"{text} With scripts on, another run can be chosen."
    if len(found) > lanes.MAX_TIMELINES:
        text = f"{text} The first {lanes.MAX_TIMELINES} of {len(found)}."
    if any(at.tiles * len(view.guests) > lanes.MAX_GUEST_LANES for _, at in _all(view)):
        text = f"{text} At most {lanes.MAX_GUEST_LANES} guests of a run."
    yield draw(lanes.tile_timeline(found, view.works), text, 0)


def _run_name(cell: CellTiles, at: TilesAt, failed: bool) -> str:
    return f"{count(at.tiles, 'tile')}, {cell.label}{' (failed)' if failed else ''}"


CHAPTER = Chapter("tiles", _find, _page, lead=_lead, raw=_raw, hosts=_hosts)
