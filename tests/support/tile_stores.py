"""Stores of tile runs that a seeded generator made up: as many guests as in the article, times that
grow with the number of tiles, steps, host samples, failures."""

import dataclasses
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from diskproof.records import (
    Artefact,
    Cell,
    Check,
    Failure,
    HostRecord,
    Metric,
    Series,
    StudyRecord,
    WorkloadSpec,
    canonical_json,
)
from diskproof.records.tiles import GuestUse, StepRun, TileRun, WorkRun
from diskproof.store import open_store
from diskproof.study.tile_file import built_in_tile
from diskproof.study.tiles import KIND, Tile

HOST = HostRecord("tile-host", "tile lab", {"cpus": 4, "memory_bytes": 8 << 30})
STUDY_ID = "tiles-1"
TEXT = '[tiles]\ntile = "article"\nscale = "1/100"\nmost = 4\nruns = 3\n'
START = 1.7e9
SETUP = 20.0

# Seconds of each workload alone, requests it makes, and how its time grows with each tile more.
_WORKS = {
    "copy": (60.0, 890, 0.45),
    "database": (40.0, 100, 0.6),
    "web": (25.0, 20, 0.35),
    "mail": (110.0, 6, 0.15),
}
_SLOWER = {"none": 1.35, "writeback": 1.0, "writethrough": 2.2}


@dataclass(frozen=True)
class Made:
    """What a made-up run is shaped by. ``fail`` names the guest that dies in it."""

    cell: Cell
    tiles: int
    repeat: int
    seed: int = 1
    study_id: str = STUDY_ID
    fail: str = ""
    series: bool = True


def tile_cell(cache: str = "none", tile: Tile | None = None, **levels: str) -> Cell:
    """A cell as the plan makes it of the tile of the article."""
    named = {"backing": "here", "bus": "virtio", "frontend": "guest", "share": "smb"}
    options = {
        "tile": canonical_json(dataclasses.asdict(tile or built_in_tile())),
        "scale": "1/100",
        "service_level": "2",
        "network": "bridge",
    }
    pairs = tuple(sorted({**named, "cache": cache, **levels}.items()))
    name = (tile or built_in_tile()).name
    return Cell(pairs, WorkloadSpec(name, KIND, tuple(sorted(options.items()))))


def make_tile_run(made: Made) -> TileRun:
    """A run with everything in it; the same for the same ``made``."""
    chance = random.Random(f"{made.seed} {made.cell.id} {made.tiles} {made.repeat}")
    number = made.tiles * 10 + made.repeat
    started = START + 1000.0 * number
    steps = tuple(_steps(made, chance))
    seconds = max(step.ended for step in steps if step.phase == "load")
    works = () if made.fail else tuple(_works(made, steps, chance))
    return TileRun(
        f"tile-{made.seed}-{made.cell.id}-{number}",
        made.study_id,
        made.cell,
        HOST.id,
        made.tiles,
        made.repeat,
        started,
        started + SETUP + seconds + 5.0,
        seconds,
        steps,
        works,
        () if made.fail else tuple(_uses(made, seconds, chance)),
        tuple(_series(made, seconds, chance)) if made.series else (),
        (Check("network", "auto", "bridge", "/proc/net/dev", True),),
        _failure(made.fail) if made.fail else None,
        (Artefact("t1-web.console.log", "text/plain", b"web: boot\nOut of memory: mariadbd\n"),),
        (("start", 12.0), ("setup", SETUP), ("load", seconds), ("check", 5.0)),
    )


def _steps(made: Made, chance: random.Random) -> Iterator[StepRun]:
    slow = _SLOWER.get(made.cell.level("cache"), 1.0)
    tile = built_in_tile()
    for number in range(1, made.tiles + 1):
        for guest in tile.guests:
            yield StepRun(number, guest.name, f"{guest.name}.disk", "setup", "", -SETUP, -16.0, 0)
            ready = -chance.uniform(1.0, 6.0)
            yield StepRun(number, guest.name, f"{guest.name}.servers", "setup", "", -16.0, ready, 0)
        for work in tile.works:
            alone, _, growth = _WORKS[work.name]
            grown = 1 + growth * (made.tiles - 1) * slow
            ended = alone * slow * grown * chance.lognormvariate(0.0, 0.03)
            if work.source == made.fail and number == made.tiles:
                failed = StepRun(number, work.source, f"{work.name}.run", "load", work.name, 0.0,
                                 ended / 3, None)  # fmt: skip
                yield failed
                continue
            yield from _work_steps(number, work.name, work.source, ended)


def _work_steps(number: int, work: str, guest: str, ended: float) -> Iterator[StepRun]:
    if work == "copy":
        there = ended * 0.45
        for name, begin, end in (
            ("there", 0.0, there),
            ("rest", there, there + 0.3),
            ("back", there + 0.3, ended),
        ):
            yield StepRun(number, guest, f"copy.{name}", "load", work, begin, end, 0)
    else:
        yield StepRun(number, guest, f"{work}.run", "load", work, 0.0, ended, 0)
    yield StepRun(number, guest, f"{work}.check", "check", work, ended + 1.0, ended + 2.0, 0)


def _works(made: Made, steps: Sequence[StepRun], chance: random.Random) -> Iterator[WorkRun]:
    for number in range(1, made.tiles + 1):
        for work in built_in_tile().works:
            own = [s for s in steps if (s.tile, s.work, s.phase) == (number, work.name, "load")]
            seconds = max(step.ended for step in own) - (0.3 if work.name == "copy" else 0.0)
            requests = _WORKS[work.name][1]
            metrics = [
                Metric("seconds", "s", seconds, False, True),
                Metric("throughput", "1/s", requests / seconds, True),
            ]
            if work.name != "copy":
                p99 = seconds / requests * 2.5 * chance.lognormvariate(0.0, 0.08)
                metrics.append(Metric("latency_p99", "s", p99, False))
            yield WorkRun(number, work.name, work.source, tuple(metrics))


def _uses(made: Made, seconds: float, chance: random.Random) -> Iterator[GuestUse]:
    for number in range(1, made.tiles + 1):
        for place, guest in enumerate(built_in_tile().guests):
            yield GuestUse(
                number,
                guest.name,
                seconds * (0.2 + 0.1 * place) * chance.uniform(0.95, 1.05),
                (40 + 9 * place) << 20,
                (90 + 25 * place) << 20,
                guest.memory - (chance.randrange(30) << 20),
                (50 << 20) if made.cell.level("ksm") == "on" else 0,
            )


def _series(made: Made, seconds: float, chance: random.Random) -> Iterator[Series]:
    """Host samples as the sampler names them, a reading each two seconds."""
    count = max(2, int(seconds / 2))
    times = tuple(2.0 * (n + 1) for n in range(count))
    busy = min(0.95, 0.3 * made.tiles)
    shared = 300.0 if made.cell.level("ksm") == "on" else 0.0
    for name, unit, level in (
        ("cpu.user", "percent", 45 * busy),
        ("cpu.system", "percent", 30 * busy),
        ("cpu.iowait", "percent", 20 * busy),
        ("cpu.idle", "percent", 100 - 95 * busy),
        ("cpu.steal", "percent", 0.1),
        ("disk.read", "MiB/s", 12 * math.sqrt(made.tiles)),
        ("disk.write", "MiB/s", 25 * math.sqrt(made.tiles)),
        ("disk.read_await", "ms", 1.5 * made.tiles),
        ("disk.write_await", "ms", 3.0 * made.tiles),
        ("disk.util", "percent", 90 * busy),
        ("memory.used", "MiB", 1300.0 * made.tiles),
        ("memory.used_with_cache", "MiB", 2000.0 * made.tiles),
        ("ksm.saved", "MiB", shared * made.tiles),
        ("ksm.cpu", "percent", 4.0 if shared else 0.0),
    ):
        values = tuple(max(0.0, level * chance.gauss(1, 0.08)) for _ in times)
        yield Series("host", name, unit, times, values)


def _failure(guest: str) -> Failure:
    return Failure(
        "guest",
        f"guest {guest} of the last tile ended in phase load, step {guest}.run",
        "Kernel panic - not syncing: Out of memory",
        "give it more memory in the tile's file",
    )


def fill_tiles(
    path: Path | str,
    cells: Sequence[Cell] | None = None,
    *,
    most: int = 3,
    runs: int = 3,
    seed: int = 1,
    fail: str = "",
    series: bool = True,
) -> Sequence[TileRun]:
    """Add a study of tiles to a store; with ``fail`` its largest run of the first cell failed."""
    chosen = tuple(cells or (tile_cell("none"), tile_cell("writeback")))
    made = [
        make_tile_run(
            Made(
                cell,
                tiles,
                repeat,
                seed,
                fail=fail if (cell is chosen[0] and (tiles, repeat) == (most, runs)) else "",
                series=series,
            )
        )
        for cell in chosen
        for tiles in range(1, most + 1)
        for repeat in range(1, runs + 1)
    ]
    with open_store(str(path), create=True) as store:
        store.add_study(
            StudyRecord(STUDY_ID, "consolidation", "run", TEXT, seed, 1, (), (), (), START)
        )
        store.add_host(HOST)
        for run in made:
            store.add_tile_run(run)
    return made
