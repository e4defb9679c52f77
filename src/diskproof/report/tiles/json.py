"""Tiles as plain JSON: what ``diskproof tiles --json`` prints, and the page carries."""

from __future__ import annotations

from collections.abc import Iterable

from diskproof.report.tiles.find import CellTiles, GuestShare, TilesAt, TileView
from diskproof.report.tiles.host import NAMED
from diskproof.report.tiles.words import against_best
from diskproof.stats.intervals import Interval
from diskproof.tile_records import TileRun

Json = dict[str, object]


def tiles_json(views: Iterable[TileView]) -> list[Json]:
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


def _cell(view: TileView, cell: CellTiles) -> Json:
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
            "against_best": against_best(cell, view.cells),
        },
        "numbers": [_number(at) for at in cell.at],
    }


def _number(at: TilesAt) -> Json:
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


def _interval(interval: Interval | None) -> Json | None:
    return None if interval is None else _required(interval)


def _required(interval: Interval) -> Json:
    return {"n": interval.n, "mean": interval.mean, "ci95": interval.half_width}


def _guest(share: GuestShare) -> Json:
    return {
        "guest": share.guest,
        "cpus": share.cpus,
        "share_of_cpu": share.share,
        "read_bytes_per_second": share.read_rate,
        "written_bytes_per_second": share.write_rate,
        "memory_bytes": share.memory,
        "ksm_bytes": share.ksm,
    }


def _failed(run: TileRun) -> Json:
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
