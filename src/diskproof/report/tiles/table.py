"""Tiles in the terminal, made for 80 columns, and as plain JSON."""

from collections.abc import Iterable, Sequence

from diskproof.records.tiles import TileRun
from diskproof.report import layout
from diskproof.report import outputs as printed
from diskproof.report.labels import count
from diskproof.report.tiles import words
from diskproof.report.tiles.find import CellTiles, GuestShare, TilesAt, TileView
from diskproof.report.tiles.host_figures import NAMED
from diskproof.stats.intervals import Interval

NUMBERS_A_TABLE = 3
"""Columns of numbers of tiles that 80 columns hold; more go into a further table."""

MAX_FAILURES = 20
_Columns = tuple[tuple[str, str], ...]
_WORK_COLUMNS: _Columns = (
    ("usr", "cpu_user"),
    ("sys", "cpu_system"),
    ("wait", "cpu_wait"),
    ("load", "true_load"),
    ("read", "disk_read"),
    ("write", "disk_write"),
    ("util", "disk_util"),
    ("eff", "efficiency"),
)
_WORK_CAPTION = f"CPU and util in percent, read and write in MiB/s; {words.HOST_CAPTION}"
_MEMORY_COLUMNS: _Columns = (
    ("read", "read_await"),
    ("write", "write_await"),
    ("flush", "flush_await"),
    ("memory", "memory"),
    ("and cache", "memory_cached"),
    ("KSM saves", "ksm_saved"),
    ("ksmd %", "ksmd_cpu"),
)
_MEMORY_CAPTION = (
    "read, write and flush: how long they waited (await), in ms; memory without and with the page "
    "cache, and saved by KSM, in GiB; ksmd: percent of one CPU that merging took"
)


def render_tiles(view: TileView) -> layout.Shown:
    """All that a study of tiles ends with."""
    starts = range(0, len(view.counts), NUMBERS_A_TABLE)
    times = [render_times(view, view.counts[at : at + NUMBERS_A_TABLE]) for at in starts]
    captions = [layout.line(text, "dim") for text in (words.MISSED_CAPTION, words.SCORE_CAPTION)]
    told = any(at.guests for cell in view.cells for at in cell.at)
    return layout.paragraphs(
        [
            [layout.line(words.headline(view), "bold"), layout.line(words.capacity_sentence(view))],
            [render_capacity(view)],
            *([table] for table in times[:-1]),
            [*times[-1:], *captions],
            *([table] for table in render_host(view)),
            [render_guests(view)] if told else [],
            [render_failed(view)] if view.failed else [],
        ]
    )


def render_capacity(view: TileView) -> layout.Shown:
    """How many tiles each cell carries, with the 95 % interval."""
    table = layout.start_table(
        "how many tiles the host carries",
        *("-cell", "-carries", ">sure"),
        *(["!"] if len(view.cells) > 1 else []),
        "*because",
    )
    for cell in view.cells:
        stands = words.against_best(cell, view.cells)
        table.add_row(
            cell.label,
            words.capacity_text(cell.capacity, len(view.guests)),
            f"{cell.capacity.confidence:.0%}",
            *([stands] if len(view.cells) > 1 else []),
            cell.capacity.reason,
            style="bold" if stands in ("best", "") else None,
        )
    caption = "[a, b]: the numbers of tiles that the runs cannot exclude (95 %)"
    table.caption = layout.plain(caption)
    return table


def render_times(view: TileView, numbers: Sequence[int]) -> layout.Shown:
    """Wall time, time and latency of each workload, score and fairness by number of tiles; a line
    for each cell."""
    table = layout.start_table(
        "times and score", "-figure", "*cell", *(f">{count(each, 'tile')}" for each in numbers)
    )
    before = ""
    for title, label, texts in words.time_rows(view, numbers):
        table.add_row("" if title == before else title, label, *texts)
        before = title
    table.caption = (
        "means over runs (of workloads: over runs and tiles) with 95 % intervals; # is the place "
        "among the cells, = a tie"
    )
    return table


def render_host(view: TileView) -> list[layout.Shown]:
    """What the host did during the load; what nobody sampled has no column."""
    return [
        *_host_table(view, "CPU and disk of the host", _WORK_COLUMNS, _WORK_CAPTION),
        *_host_table(view, "waits and memory of the host", _MEMORY_COLUMNS, _MEMORY_CAPTION),
    ]


def _host_table(view: TileView, title: str, columns: _Columns, caption: str) -> list[layout.Shown]:
    rows = [(cell, at) for cell in view.cells for at in cell.at if at.host]
    sampled = [each for each in columns if any(each[1] in at.host for _, at in rows)]
    if not sampled:
        return []
    table = layout.start_table(title, "*cell", ">tiles", *(f">{head}" for head, _ in sampled))
    before = ""
    for cell, at in rows:
        texts = [words.host_text(at, name) for _, name in sampled]
        table.add_row("" if cell.label == before else cell.label, str(at.tiles), *texts)
        before = cell.label
    table.caption = caption
    return [table]


def render_guests(view: TileView) -> layout.Shown:
    """What each guest takes, at the largest number of tiles that went well."""
    table = layout.start_table(
        "what a guest takes of the host, mean over tiles",
        *("*cell", ">tiles", "-guest", ">CPUs", ">of all", ">read", ">written", ">memory", ">KSM"),
    )
    for cell in view.cells:
        at = next((each for each in reversed(cell.at) if each.guests), None)
        for place, share in enumerate(at.guests if at else ()):
            named = [cell.label, str(at.tiles if at else 0)] if place == 0 else ["", ""]
            table.add_row(
                *named,
                share.guest,
                f"{share.cpus:.2f}",
                f"{share.share:.0%}",
                *(f"{rate / 2**20:.3g}" for rate in (share.read_rate, share.write_rate)),
                *(f"{size / 2**20:.0f}" for size in (share.memory, share.ksm)),
            )
    table.caption = (
        "of all: part of the CPU time of all guests; read and written in MiB/s, memory (largest "
        "resident set) and what of it KSM shares in MiB"
    )
    return table


def render_failed(view: TileView) -> layout.Shown:
    """Failed runs: which, what failed, and the last line it said."""
    table = layout.start_table("failed runs", "-cell", ">tiles", ">run", "*reason")
    for label, run in view.failed[:MAX_FAILURES]:
        if run.failure is not None:
            row = (str(run.tiles), str(run.repeat), words.failure_line(run.failure))
            table.add_row(label, *row)
    hidden = len(view.failed) - MAX_FAILURES
    table.caption = f"{hidden} more are in --json" if hidden > 0 else None
    return table


def tiles_json(views: Iterable[TileView]) -> list[printed.TilesJson]:
    """One object a cell (a contract). ``ci95`` is the half width of a Student-t interval (None for
    a single run); times are in seconds, sizes in bytes, everything else has its unit beside it."""
    return [
        {
            "study": view.study.name,
            "study_id": view.study.id,
            "host": view.host.name,
            "host_id": view.host.id,
            "tile": view.tile,
            "guests": list(view.guests),
            **_cell(view, cell),
        }
        for view in views
        for cell in view.cells
    ]


def _cell(view: TileView, cell: CellTiles) -> printed.TilesOfCellJson:
    capacity = cell.capacity
    return {
        "cell": cell.cell.levels_dict(),
        "capacity": {
            "tiles": capacity.tiles,
            "vms": capacity.tiles * len(view.guests),
            "low": capacity.low,
            "high": capacity.high,
            "open_above": capacity.open_above,
            "confidence": capacity.confidence,
            "decided": capacity.decided,
            "monotone": capacity.monotone,
            "reason": capacity.reason,
            "against_best": words.against_best(cell, view.cells),
        },
        "numbers": [_number(at) for at in cell.at],
    }


def _number(at: TilesAt) -> printed.TilesAtJson:
    return {
        "tiles": at.tiles,
        "runs": [run.id for run in at.runs],
        "missed": at.missed,
        "seconds": _interval(at.seconds),
        "place": at.place,
        "score": _interval(at.score.sum if at.score else None),
        "fairness": _interval(at.score.minimum if at.score else None),
        "holds": at.score.holds if at.score else None,
        "workloads": [
            {
                "workload": figure.work,
                "metric": figure.metric,
                "unit": figure.unit,
                "higher_is_better": figure.higher_is_better,
                **_required(figure.interval),
                "worst_ratio": figure.worst,
            }
            for figure in at.works.values()
        ],
        "host": {
            name: {"unit": NAMED[name].unit, **_required(interval)}
            for name, interval in at.host.items()
        },
        "guests": [_guest(share) for share in at.guests],
        "failed": [_failed(run) for run in at.failed],
    }


def _interval(interval: Interval | None) -> printed.MeanJson | None:
    return None if interval is None else _required(interval)


def _required(interval: Interval) -> printed.MeanJson:
    return {"n": interval.n, "mean": interval.mean, "ci95": interval.half_width}


def _guest(share: GuestShare) -> printed.TileGuestJson:
    return {
        "guest": share.guest,
        "cpus": share.cpus,
        "share_of_cpu": share.share,
        "read_bytes_per_second": share.read_rate,
        "written_bytes_per_second": share.write_rate,
        "memory_bytes": share.memory,
        "ksm_bytes": share.ksm,
    }


def _failed(run: TileRun) -> printed.TileFailureJson:
    failure = run.failure
    assert failure is not None
    return {
        "run": run.id,
        "repeat": run.repeat,
        "kind": failure.kind,
        "what": failure.what,
        "why": failure.why,
        "hint": failure.hint,
    }
