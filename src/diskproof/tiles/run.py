"""Make one run of tiles for real: disks, network, guests, servers, load, checks, an end."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from diskproof.backings import Place, start_place
from diskproof.backings.place import start_run_dir
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import Guest
from diskproof.guest.ours.boot_states import BootStates
from diskproof.host.cache import drop_cache
from diskproof.host.ksm import ksmd_series, read_ksmd_seconds, start_ksm
from diskproof.host.memory import read_available_bytes
from diskproof.host.sampler import start_sampler
from diskproof.lab.deadline import Deadline, OutOfTime
from diskproof.lab.notes import RunNotes
from diskproof.lab.setup import START_SECONDS, LabSetup
from diskproof.process.start import run
from diskproof.records import Cell
from diskproof.records.tiles import GuestUse, StepRun, TileRun, WorkRun
from diskproof.study.tiles import Tile, TileRules
from diskproof.tiles import machines
from diskproof.tiles.engine import Engine, OnStep
from diskproof.tiles.group import GuestKey, start_group
from diskproof.tiles.host_side import guest_use, read_use, require_memory
from diskproof.tiles.network import Network, start_network
from diskproof.tiles.steps import TileContext, TileStep, load_load, tile_steps

BOOT_SECONDS = 15.0
"""What each further guest may add to the start of all, under emulation on a busy host."""
SAMPLE_SECONDS = 0.5
_SHORT = 120.0
_JOIN = """set -e
ip link set lo up
for path in /sys/class/net/*; do
    [ "${path##*/}" = lo ] || card=${path##*/}
done
ip address add "$SELF/16" dev "$card"
ip link set "$card" up
"""


@dataclass
class TileNotes(RunNotes):
    """What becomes known of a run of tiles; ``zero`` is when the load began (time.monotonic())."""

    zero: float | None = None
    seconds: float = 0.0
    steps: tuple[StepRun, ...] = ()
    works: tuple[WorkRun, ...] = ()
    uses: tuple[GuestUse, ...] = ()


class TileLab:
    """The real maker of runs of tiles. With ``states`` guests need not boot anew for each run,
    where that takes long."""

    def __init__(self, setup: LabSetup, rules: TileRules, states: BootStates | None = None) -> None:
        self.setup, self.rules, self.states = setup, rules, states

    def execute(self, cell: Cell, tiles: int, repeat: int, on_step: OnStep) -> TileRun:
        """One run of so many tiles; what goes wrong in it is its result. ``on_step`` hears which
        steps run. Raises only for Ctrl-C and defects."""
        notes = TileNotes()
        with notes.whole_run(self.setup.run_timeout) as deadline:
            _Run(self, cell, tiles, notes, deadline, on_step).make()
        return TileRun(
            id=notes.id,
            study_id=self.setup.study_id,
            cell=cell,
            host_id=self.setup.host_id,
            tiles=tiles,
            repeat=repeat,
            started=notes.started,
            ended=notes.ended,
            seconds=notes.seconds,
            steps=notes.steps,
            works=() if notes.failure else notes.works,
            uses=notes.uses,
            series=tuple(notes.series),
            checks=tuple(notes.checks),
            failure=notes.failure,
            artefacts=tuple(notes.artefacts.values()),
            phases=tuple(notes.phases),
        )


class _Run:
    """One run under way."""

    def __init__(
        self,
        lab: TileLab,
        cell: Cell,
        tiles: int,
        notes: TileNotes,
        deadline: Deadline,
        on_step: OnStep,
    ) -> None:
        self.lab, self.cell, self.tiles = lab, cell, tiles
        self.notes, self.on_step = notes, on_step
        self.tile: Tile = lab.rules.tile
        self.deadline = deadline
        level = cell.level("accel", "auto")
        self.accel = lab.setup.accel if level == "auto" else level

    def make(self) -> None:
        """All of it. Raises RunFailure or HostError; nothing is left in any case."""
        notes = self.notes
        require_memory(self.tile, self.tiles, read_available_bytes(), self.accel)
        with ExitStack() as stack:
            with notes.phase("folder"):
                backing = self.lab.setup.backings[self.cell.level("backing")]
                place = stack.enter_context(start_place(backing, self.lab.setup.consent))
                room = stack.enter_context(start_run_dir(Place(place.home)))
            bays = self._make_disks(stack, place)
            self._switch_ksm(stack, room)
            with notes.phase("start"):
                network, guests = self._start(stack, room, bays)
            with self._kept(guests):
                self._load(bays, guests, network, room)
            with notes.phase("stop"):
                stack.close()

    def _make_disks(self, stack: ExitStack, place: Place) -> tuple[machines.Bay, ...]:
        notes = self.notes
        with notes.phase("create"):
            bays = machines.make_bays(stack, place, self.cell, self.tile, self.tiles, self.deadline)
            notes.require(machines.check_images(bays, self.cell))
        with notes.phase("drop"):
            for bay in bays:
                check = drop_cache(bay.image.path).as_check()
                title = f"tile {bay.tile} {bay.guest.name}"
                notes.require([replace(check, name=f"{title}: {check.name}")])
        return bays

    def _switch_ksm(self, stack: ExitStack, room: Path) -> None:
        """As the cell asks; else it stays as the host has it."""
        if level := self.cell.level("ksm"):
            self.notes.require(stack.enter_context(start_ksm(room, level)))

    def _start(
        self, stack: ExitStack, room: Path, bays: Sequence[machines.Bay]
    ) -> tuple[Network, Mapping[GuestKey, Guest]]:
        seats = [(bay.tile, bay.place) for bay in bays]
        network = stack.enter_context(start_network(room, self.lab.rules.network, seats))
        members = machines.make_members(bays, self.cell, network, self.accel)
        within = min(START_SECONDS + BOOT_SECONDS * len(bays), self.deadline.left())
        starting = start_group(members, deadline=within, states=self.lab.states)
        guests = stack.enter_context(starting)
        self.notes.keep([machines.keep_argvs(guests)])
        return network, guests

    @contextmanager
    def _kept(self, guests: Mapping[GuestKey, Guest]) -> Iterator[None]:
        """What fails inside leaves the logs of all guests."""
        try:
            yield
        except (RunFailure, OutOfTime):
            self.notes.keep(machines.keep_logs(guests))
            raise

    def _load(
        self,
        bays: Sequence[machines.Bay],
        guests: Mapping[GuestKey, Guest],
        network: Network,
        room: Path,
    ) -> None:
        """From guests that are up to the figures of what they did."""
        notes, rules = self.notes, self.lab.rules
        with notes.phase("read_back"):
            for bay in bays:
                notes.require(machines.check_guest(bay, guests[bay.key], self.cell))
        context = TileContext(self.tile, self.cell.level("share", "smb"), rules.scale)
        stations = [
            machines.make_station(bay, guests[bay.key], self.tile, self.tiles, rules.scale)
            for bay in bays
        ]
        steps = all_steps(context)
        engine = Engine(stations, steps, self.deadline.left, self.on_step)
        try:
            with notes.phase("setup"):
                engine.run("setup")
            with notes.phase("sync"):
                self._write_back(bays)
            with notes.phase("load"):
                self._measure(engine, guests, network, room)
            with notes.phase("check"):
                engine.run("check")
        finally:
            notes.steps = engine.step_runs(notes.zero or time.monotonic())
        notes.works = read_works(engine, self.tile, steps, self.tiles)

    def _write_back(self, bays: Sequence[machines.Bay]) -> None:
        """What setting up has written is on the host's disk before the load begins."""
        paths = [str(path) for bay in bays for path in bay.image.local]
        run(["sync", "--", *paths], timeout=self.deadline.left())

    def _measure(
        self, engine: Engine, guests: Mapping[GuestKey, Guest], network: Network, room: Path
    ) -> None:
        """The load, with what it takes of the host."""
        notes = self.notes
        pids = {key: guest.process.pid for key, guest in guests.items()}
        before = {key: read_use(pid) for key, pid in pids.items()}
        merged = read_ksmd_seconds()
        sampled = (*pids.values(), *network.pids)
        with start_sampler(
            sampled, run_dir=room, interval=SAMPLE_SECONDS, more=("ksm", "disk-wait")
        ) as recording:
            recording.zero, notes.zero = time.time(), time.monotonic()
            try:
                engine.run("load")
            finally:
                notes.seconds = time.monotonic() - notes.zero
            notes.uses = tuple(
                guest_use(*key, before[key], read_use(pid)) for key, pid in pids.items()
            )
        cost = ksmd_series(merged, read_ksmd_seconds(), notes.seconds)
        notes.series += (*recording.series, *cost)


def all_steps(context: TileContext) -> tuple[TileStep, ...]:
    """The steps of a tile from guests that have just started: first they join their network; when
    all is set up, what that has written goes to their disks."""
    tile = context.tile
    steps = tile_steps(context)
    joins = tuple(
        _setup_step(guest.name, "join-network", ("sh", "-c", _JOIN)) for guest in tile.guests
    )
    joined = tuple(step.name for step in joins)
    waiting = tuple(
        replace(step, after=joined) if step.phase == "setup" and not step.after else step
        for step in steps
    )
    ready = (*joined, *(step.name for step in steps if step.phase == "setup"))
    syncs = (_setup_step(guest.name, "sync", ("sync",), ready) for guest in tile.guests)
    return (*joins, *waiting, *syncs)


def _setup_step(
    guest: str, name: str, argv: tuple[str, ...], after: tuple[str, ...] = ()
) -> TileStep:
    return TileStep(f"{guest}.{name}", guest, "setup", argv, after, timeout=_SHORT)


def read_works(
    engine: Engine, tile: Tile, steps: Sequence[TileStep], tiles: int
) -> tuple[WorkRun, ...]:
    """What the workloads of all tiles reached. Raises RunFailure ``workload`` for wrong results,
    naming tile and workload."""
    works = []
    for number in range(1, tiles + 1):
        for work in tile.works:
            names = [step.name for step in steps if step.work == work.name]
            ended = {name: engine.courses[number, name] for name in names}
            outputs = {name: course.stdout for name, course in ended.items()}
            seconds = {name: course.seconds for name, course in ended.items()}
            try:
                metrics = load_load(work.load).read(outputs, seconds)
            except RunFailure as failure:
                what = f"tile {number} {work.source}, {work.name}: {failure.what}"
                raise RunFailure(
                    failure.kind, what, failure.why, failure.hint, failure.evidence
                ) from None
            works.append(WorkRun(number, work.name, work.source, metrics))
    return tuple(works)
