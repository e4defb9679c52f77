"""Fills a store with all that the diskproof which runs it can keep: ``fill.py PLACE``.

It is run by diskproof of every age (see README.md), so it looks for the records in the modules that
are there, and asks the store what it can do. Everything in it is fixed.
"""

import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from diskproof.store import Progress, open_store


def find_records() -> dict[str, Any]:
    """The classes of records by their names, wherever this diskproof keeps them."""
    records = import_module(".records", "diskproof")
    inner = [each.name for each in iter_modules(getattr(records, "__path__", ()))]
    found = dict(vars(records))
    for name in [".tile_records", *(f".records.{each}" for each in inner)]:
        with suppress(ModuleNotFoundError):
            found |= vars(import_module(name, "diskproof"))
    return found


R = find_records()

START = 1.7e9
HOST = R["HostRecord"](
    "h1", "lab \u00b5", {"cpus": 2, "memory_bytes": 4 << 30, "note": "\U0001f4be", "aio": ["x"]}
)
STUDY = """name = "disks"
workloads = ["rand-read-4k-d1"]
[factors]
cache = ["none", "unsafe"]
"""
RACE = (
    STUDY.replace("disks", "race") + '[protocol]\nstop = "decided"\nmax_blocks = 9\ndelta = 0.1\n'
)
CRASH = STUDY.replace("disks", "crashes") + '[crash]\nwriters = ["ledger"]\n'
TILES = 'name = "tiles"\n[tiles]\ntile = "article"\nmost = 2\nruns = 1\n'
FAILURE = R["Failure"]("guest", "panic", "Out of memory \ufffd", "give it more")
CHECKS = (
    R["Check"]("cache.direct", "on", "on", "QMP", True),
    R["Check"]("cache.no-flush", "off", "on", "fdinfo", False),
)
LOG = R["Artefact"]("console.log", "text/plain", b"Linux\n\0\xff" * 40)
SERIES = (
    R["Series"]("host", "cpu.user", "percent", (0.0, 0.5, 1.0), (12.5, 1e-300, 0.1 + 0.2)),
    R["Series"]("fio", "iops", "1/s", (1.0, 2.0), (1000.0, -0.0)),
)
PHASES = (("boot", 3.25), ("workload", 10.0))


def cell(cache: str, load: str = "read", kind: str = "fio") -> Any:
    workload = R["WorkloadSpec"](load, kind, (("bs", "4096"), ("note", "\u00fc 'quoted\"")))
    return R["Cell"]((("cache", cache), ("format", "raw")), workload)


CELLS = tuple(cell(cache, load) for load in ("read", "write") for cache in ("none", "unsafe"))


def study(key: str, text: str, cells: tuple[Any, ...], blocks: int = 3, origin: str = "run") -> Any:
    dropped = (R["Dropped"]("O_DIRECT is refused", 2, (("cache", "directsync"),)),)
    return R["StudyRecord"](
        key, key, origin, text, 7, blocks, cells, dropped, ("few blocks",), START + len(key)
    )


def run(number: int, study_id: str, of: Any, block: int, value: float, **more: Any) -> Any:
    metrics = (
        R["Metric"]("iops", "1/s", value, True, True),
        R["Metric"]("latency_p99", "s", 1 / value, False),
    )
    began = START + 100.0 * number
    values = {"metrics": metrics, "checks": CHECKS, "phases": PHASES} | more
    status = "failed" if more.get("failure") else "ok"
    position = number % 4
    return R["RunRecord"](
        f"{study_id}-{number}", study_id, of, block, position, began, began + 13.5, status, "h1",
        **values,
    )  # fmt: skip


def disks() -> Iterator[Any]:
    """Three blocks of four cells; the first run of all has everything."""
    histograms = (
        R["Histogram"]("read", (1e-5, 2e-5, 3e-5), (3, 0, (1 << 63) - 1)),
        R["Histogram"]("sync", (), ()),
    )
    everything = {"series": SERIES, "histograms": histograms, "artefacts": (LOG,)}
    for number in range(12):
        of, block = CELLS[number % 4], number // 4
        more = everything if number in (0, 4) else {}
        yield run(number, "disks", of, block, 1000.0 + 37 * number + 0.1, **more)


def fill_measured(store: Any) -> None:
    failed: dict[str, Any] = {"failure": FAILURE, "metrics": ()}
    store.add_study(study("disks", STUDY, CELLS))
    replaced = run(90, "disks", CELLS[3], 2, 1.0, artefacts=(LOG,), **failed)
    store.add_run(replaced)
    store.remove_failed("disks")
    for each in disks():
        last = each.block == 2 and each.cell == CELLS[2]
        store.add_run(run(91, "disks", CELLS[2], 2, 1.0, **failed) if last else each)
    store.add_study(study("race", RACE, CELLS[:2], 9))
    for number, (block, of) in enumerate([(0, 0), (0, 1), (1, 1), (1, 0), (2, 1), (3, 1)]):
        store.add_run(run(number, "race", CELLS[of], block, 500.0 + 300 * of + number))
    other = R["HostRecord"]("h2", "theirs", {"published": True})
    cells = (cell("none", "grid", "iozone"), cell("none", "curve", "first_write"))
    names = (("random_read 4K/16M", "random_read 64K/16M"), ("first_write 50 %", "rewrite 50 %"))
    imported = [
        run(place, "foreign", of, 0, 1.0, metrics=metrics, checks=(), phases=())
        for place, of in enumerate(cells)
        for metrics in [
            tuple(R["Metric"](name, "B/s", 2.5e6 + place, True, False) for name in names[place])
        ]
    ]
    runs = [R["RunRecord"](**vars(each) | {"host_id": "h2"}) for each in imported]
    store.add_imported(study("foreign", "# fio\nno TOML", cells, 1, "fio"), other, runs)


def crash_run(number: int, of: Any, *verdicts: Any, **more: Any) -> Any:
    counts = {"writes": 40, "flushes": 10, "acknowledgements": 9}
    began = START + 5000.0 + 10 * number
    return R["CrashRun"](
        f"crash-{number}", "crashes", of, "h1", began, began + 9.0, verdicts, checks=CHECKS[:1],
        counts=counts, artefacts=(LOG,), phases=(("record", 2.5),), **more,
    )  # fmt: skip


def fill_crashes(store: Any) -> None:
    verdict, event = R["Verdict"], R["TraceEvent"]
    timeline = (event(0.0, "write", "missing", "4 KiB at 0"), event(0.5, "cut"))
    loss = verdict(
        "power", "loses", 3, 1.25, 12, 400, True, 5, 7, 41, (30, 31), "a \u00b5",
        "diskproof crash reproduce crash-1 --fault power", 0.5, timeline, {"torn": 1, "s": [0.5]},
    )  # fmt: skip
    keeps = verdict("qemu-kill", "keeps", states_checked=9, states_total=9, cuts=5, seed=7)
    open_power = verdict("power", "undecided", reason="no time left")
    store.add_study(study("crashes", CRASH, ()))
    of = cell("none", "ledger", "writer")
    store.add_crash_run(crash_run(1, cell("unsafe", "ledger", "writer"), keeps, loss))
    store.add_crash_run(crash_run(2, of, open_power, keeps))
    store.remove_undecided("crashes")
    store.add_crash_run(crash_run(3, of, open_power, failure=FAILURE))


def tile_run(tiles: int, repeat: int, of: Any, **more: Any) -> Any:
    number = tiles * 10 + repeat
    steps = tuple(
        R["StepRun"](tile, guest, f"{guest}.{phase}", phase, work, began, began + 1.5, status)
        for tile in range(1, tiles + 1)
        for guest, work in (("web", "pages"), ("db", ""))
        for phase, began, status in (("setup", -9.0, 0), ("load", 0.0, -9), ("check", 30.5, None))
    )
    works = tuple(
        R["WorkRun"](tile, work, "web", (R["Metric"]("seconds", "s", tile + 0.1, False, True),) * n)
        for tile in range(1, tiles + 1)
        for n, work in enumerate(("idle", "pages"))
    )
    uses = tuple(
        R["GuestUse"](tile, "web", 1.5, 1 << 20, 2 << 20, 3 << 30, 0)
        for tile in range(1, tiles + 1)
    )
    parts = {"steps": steps, "works": works, "uses": uses, "series": SERIES} | more
    began = START + 9000.0 + number
    return R["TileRun"](
        f"tile-{number}{of.level('cache')}", "tiles", of, "h1", tiles, repeat, began, began + 60.0,
        55.5, checks=CHECKS, artefacts=(LOG,), phases=PHASES, **parts,
    )  # fmt: skip


def fill_tiles(store: Any) -> None:
    store.add_study(study("tiles", TILES, ()))
    of = cell("none", "article", "tile")
    died: dict[str, Any] = {"failure": FAILURE, "works": (), "uses": ()}
    store.add_tile_run(tile_run(1, 1, of))
    store.add_tile_run(tile_run(2, 1, of, **died))
    store.remove_failed_tiles("tiles")
    again = tile_run(2, 1, of)
    store.add_tile_run(R["TileRun"](**vars(again) | {"id": "tile-again"}))
    store.add_tile_run(tile_run(1, 1, cell("unsafe", "article", "tile"), **died))


def main(place: str) -> None:
    with open_store(place, create=True) as store:
        store.add_host(HOST)
        fill_measured(store)
        if hasattr(store, "add_crash_run"):
            fill_crashes(store)
        if hasattr(store, "add_tile_run"):
            fill_tiles(store)
        now = START + 20000.0
        store.set_progress(
            Progress("race", 4242, "boot", "lab", START, 18, 6, 0, "cell", 60.5, now)
        )


if __name__ == "__main__":
    main(sys.argv[1])
