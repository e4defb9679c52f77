"""What tiles cost: memory, runs and time, before any was run."""

import math
from collections import Counter
from fractions import Fraction

from diskproof.errors import HostError
from diskproof.plan.estimate import START_SECONDS, TCG_BOOT_SECONDS
from diskproof.plan.history import BETWEEN, Phases
from diskproof.records import Cell, PhaseCosts
from diskproof.stats.capacity import trial_limit
from diskproof.study.tiles import COMMAND, Tile, TileRules, TileWork
from diskproof.units import parse_seconds, render_bytes

TRANSLATED_BYTES = 192 << 20
"""How much translated code an emulated guest of a tile may keep. QEMU's own bound is 1 GiB: a web
server's guest was at 320 MiB when its servers were up."""

OVERHEAD_BYTES = {"kvm": 64 << 20, "tcg": TRANSLATED_BYTES + (96 << 20)}
"""What QEMU takes beside a guest's memory, by accelerator: its heap and stacks, 31 to 59 MiB in
guests at work, and in an emulator translated code and what it notes of that. Its program and the
files that it boots from are shared by all."""

LOAD_SECONDS = {"copy": 240.0, "pgbench": 40.0, "http": 15.0, "mail": 30.0}
"""What a load takes at full size on a host with KVM and one tile, its own waits left out."""

COMMAND_SECONDS = 5.0
"""A command's own time is not known before it was run."""

SETUP_SECONDS = {"plain": 1.0, "file-server": 4.0, "web-mail": 15.0, "database": 10.0}
TCG_FACTOR = 8.0


def most_tiles(rules: TileRules) -> int:
    """The largest number of tiles that may be run."""
    return max(rules.counts) if rules.counts else rules.most


def planned_runs(rules: TileRules) -> list[tuple[int, int]]:
    """(number of tiles, runs of it) for each cell; of a search what it may come to at most, each
    trial at the middle of the numbers."""
    if rules.counts:
        return [(count, rules.runs) for count in rules.counts]
    trials = min(trial_limit(rules.most), (rules.most - 1) * rules.runs)
    return [(1, rules.runs), (math.ceil((1 + rules.most) / 2), trials)]


def tile_memory(tile: Tile, accel: str = "tcg") -> int:
    """Bytes of the host's memory that one tile takes at most."""
    return tile.memory + OVERHEAD_BYTES[accel] * len(tile.guests)


def count_fitting(tile: Tile, memory: int, accel: str) -> int:
    """How many tiles ``memory`` bytes hold."""
    return memory // tile_memory(tile, accel)


def require_memory(tile: Tile, memory: int, accel: str) -> None:
    """Raises HostError, with the sum, when one tile does not fit."""
    if count_fitting(tile, memory, accel):
        return
    guests = f"{len(tile.guests)} guest{'s' * (len(tile.guests) > 1)}"
    overhead = render_bytes(OVERHEAD_BYTES[accel])
    raise HostError(
        f"one tile {tile.name} does not fit into this host's memory",
        f"{guests}, {render_bytes(tile.memory)} + {overhead} for each QEMU = "
        f"{render_bytes(tile_memory(tile, accel))}, of {render_bytes(memory)} available",
        "end other programs, or name a tile of your own with smaller guests",
    )


def run_seconds(cell: Cell, rules: TileRules, tiles: int, cpus: int) -> float:
    """Expected seconds of one run of so many tiles, before any was made. Work beyond the first
    tile shares the processors; waits do not grow."""
    slow = cell.level("accel") == "tcg"
    boot = START_SECONDS["guest"] + (TCG_BOOT_SECONDS if slow else 0.0)
    factor = TCG_FACTOR if slow else 1.0
    guests = rules.tile.guests
    setup = factor * max(SETUP_SECONDS[guest.role] for guest in guests)
    busy = [_load_seconds(work, rules.scale, factor) for work in rules.tile.works]
    shared = max(1.0, tiles * len(guests) / max(1, cpus))
    waits = max(_waits(work, rules.scale) for work in rules.tile.works)
    return shared * (boot + setup) + waits + max(max(busy), shared * sum(busy) / len(guests))


def _load_seconds(work: TileWork, scale: Fraction, factor: float) -> float:
    if work.load == COMMAND:
        return COMMAND_SECONDS
    return max(1.0, factor * float(scale) * LOAD_SECONDS[work.load])


def _waits(work: TileWork, scale: Fraction) -> float:
    """Seconds of a workload in which nothing is to be done."""
    options = dict(work.options)
    if work.load == "copy":
        return parse_seconds(options["idle"]) * float(scale)
    if work.load == "mail":
        return parse_seconds(options["interval"]) * int(options["batches"]) * float(scale)
    return 0.0


class TileCosts:
    """What runs of a tile take: as those with as many tiles did, else as is usual, by how far off
    that has been."""

    def __init__(self, rules: TileRules, cpus: int) -> None:
        self.rules, self.cpus = rules, cpus
        self.runs = 0
        self._by_tiles: dict[int, list[float]] = {}
        self._paces: list[float] = []
        self._phases = Counter[str]()

    def add(self, cell: Cell, tiles: int, seconds: float, phases: Phases = ()) -> None:
        """A run that was made, with all that it took."""
        self.runs += 1
        self._by_tiles.setdefault(tiles, []).append(seconds)
        self._paces.append(seconds / run_seconds(cell, self.rules, tiles, self.cpus))
        named = (*phases, (BETWEEN, max(0.0, seconds - sum(part for _, part in phases))))
        for name, part in named:
            self._phases[name] += part  # type: ignore[assignment]  # it counts seconds

    def expect(self, cell: Cell, tiles: int) -> float:
        """Seconds that a run takes."""
        if known := self._by_tiles.get(tiles):
            return math.fsum(known) / len(known)
        pace = math.fsum(self._paces) / len(self._paces) if self._paces else 1.0
        return pace * run_seconds(cell, self.rules, tiles, self.cpus)

    def expect_cell(self, cell: Cell) -> float:
        """Seconds for all runs of a cell at most."""
        return sum(runs * self.expect(cell, tiles) for tiles, runs in planned_runs(self.rules))

    def expect_phases(self, seconds: float) -> PhaseCosts:
        """The parts of so many seconds, in the shares that they had; none where no run is known."""
        whole = self._phases.total()
        parts = self._phases.most_common() if whole else []
        return PhaseCosts(tuple((n, seconds * part / whole) for n, part in parts), self.runs)
