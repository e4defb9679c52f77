"""Steps in real guests, and what happens when a guest or a step does not do as it should.

Requires the built guest (``diskproof guest build``) and qemu-system-x86_64.
"""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction

import pytest

from diskproof.backings import NO_CONSENT, start_place
from diskproof.errors import RunFailure
from diskproof.guest.ours.boot import Guest
from diskproof.lab.deadline import Deadline
from diskproof.records import BackingSpec
from diskproof.records.tiles import Phase
from diskproof.study.tile_file import parse_tile
from diskproof.tiles.engine import Engine, OnStep, PhaseProgress
from diskproof.tiles.group import start_group
from diskproof.tiles.machines import make_bays, make_members, make_station
from diskproof.tiles.network import start_network
from diskproof.tiles.roles import disk_step
from diskproof.tiles.step_run import Station
from diskproof.tiles.steps import TileStep
from support.tile_runs import make_cell

# One for each that does not survive its test; the worker does.
NAMES = ("worker", "panics", "killed", "stopped")
TILE = "\n".join(
    [
        *(f'[guests.{name}]\nmemory = "192MiB"\ndisk = "32MiB"' for name in NAMES),
        '[workloads.none]\nfrom = "worker"\ncommand = ["true"]',
    ]
)


@dataclass(frozen=True)
class Crew:
    """Guests that are up, as the engine sees them."""

    guests: Mapping[str, Guest]
    stations: Mapping[str, Station]

    def run(self, phase: Phase, *steps: TileStep, on_step: OnStep, silence: float) -> Engine:
        """The steps in the guests that they name, and in the worker."""
        named = {"worker", *(step.guest for step in steps)}
        stations = [self.stations[name] for name in sorted(named)]
        engine = Engine(stations, steps, Deadline(120).left, on_step, silence)
        engine.run(phase)
        return engine


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    tile, cell, deadline = parse_tile(TILE, "crew.toml"), make_cell(), Deadline(300)
    folder = tmp_path_factory.mktemp("crew")
    with ExitStack() as stack:
        backing = BackingSpec("here", "directory", (("path", str(folder / "images")),), make=True)
        place = stack.enter_context(start_place(backing, NO_CONSENT))
        bays = make_bays(stack, place, cell, tile, 1, deadline)
        seats = [(bay.tile, bay.place) for bay in bays]
        network = stack.enter_context(start_network(folder, "auto", seats))
        members = make_members(bays, cell, network, "tcg")
        guests = stack.enter_context(start_group(members, deadline=deadline.left()))
        stations = {
            bay.guest.name: make_station(bay, guests[bay.key], tile, 1, Fraction(1)) for bay in bays
        }
        yield Crew({name: guests[1, name] for name in NAMES}, stations)


def make_step(guest: str, script: str, phase: Phase = "load", timeout: float = 60.0) -> TileStep:
    return TileStep(f"{guest}.step", guest, phase, ("sh", "-c", script), timeout=timeout)


def quiet(progress: PhaseProgress) -> None:
    pass


def fail(
    crew: Crew, *steps: TileStep, on_step: OnStep = quiet, silence: float = 60.0
) -> RunFailure:
    (phase,) = {step.phase for step in steps}
    with pytest.raises(RunFailure) as caught:
        crew.run(phase, *steps, on_step=on_step, silence=silence)
    return caught.value


def once_running(guest: Guest, number: signal.Signals) -> OnStep:
    """Signals a QEMU as soon as steps run."""

    def send(progress: PhaseProgress) -> None:
        if progress.running:
            os.kill(guest.process.pid, number)

    return send


def test_files_environment_and_output(crew: Crew) -> None:
    step = TileStep(
        "worker.say",
        "worker",
        "load",
        ("sh", "-c", "cat /run/conf/words; echo $SELF $HOST_STOPPED $DISK $TILE/$TILES $SCALE"),
        files={"/run/conf/words": b"hello\n"},
    )
    rest = TileStep("worker.rest", "worker", "load", (), after=("worker.say",), idle=0.1)
    engine = crew.run("load", step, rest, on_step=quiet, silence=60.0)
    said = engine.courses[1, "worker.say"].stdout
    assert said == b"hello\n10.77.1.1 10.77.1.4 /dev/vdb 1/1 1\n"
    assert engine.courses[1, "worker.rest"].seconds >= 0.1


def test_a_step_that_fails_ends_the_run_and_nobody_waits(crew: Crew) -> None:
    stay = TileStep("worker.stay", "worker", "load", ("sleep", "600"))
    failure = fail(crew, stay, make_step("worker", "echo so it ends >&2; exit 3"))
    assert failure.kind == "workload"
    assert failure.what == "tile 1 worker, load, step worker.step: it ended with 3"
    assert failure.why == "so it ends"
    assert dict(failure.evidence)["tile-1.worker.worker.step.stderr"] == b"so it ends\n"


def test_a_server_that_does_not_come_up(crew: Crew) -> None:
    """It goes into the background and ends there; what waits for it says so."""
    script = """
fio --server=sock:/nowhere/socket --daemonize=/run/fio.pid
[ -S /nowhere/socket ] || { echo "no socket" >&2; exit 1; }
"""
    failure = fail(crew, make_step("worker", script, "setup"))
    assert failure.kind == "guest"
    assert failure.what == "tile 1 worker, setup, step worker.step: it ended with 1"
    assert "no socket" in failure.why


def test_a_step_that_takes_too_long(crew: Crew) -> None:
    failure = fail(crew, make_step("worker", "sleep 600", timeout=0.5))
    assert failure.kind == "timeout"
    assert "it did not end within 0.5 s" in failure.what


def test_a_program_that_is_not_there(crew: Crew) -> None:
    failure = fail(crew, TileStep("worker.go", "worker", "load", ("no-such-program",)))
    assert failure.what.startswith("tile 1 worker, load, step worker.go: no-such-program failed")


def test_the_disk_of_a_guest_is_full(crew: Crew) -> None:
    format_disk = disk_step(parse_tile(TILE, "crew.toml").guest("worker"))
    crew.run("setup", format_disk, on_step=quiet, silence=60.0)
    failure = fail(crew, make_step("worker", "dd if=/dev/zero of=/mnt/file bs=1M"))
    assert failure.kind == "workload"
    assert "No space left on device" in failure.why


def test_a_guest_is_out_of_memory(crew: Crew) -> None:
    """The buffer is nearly as large as its memory, of which others have taken some."""
    script = "set -- $(cat /proc/meminfo); exec dd if=/dev/zero of=/dev/null bs=$(($2 - 4096))K"
    failure = fail(crew, make_step("worker", script))
    assert failure.what.endswith("it was killed by signal 9")
    assert "its kernel: Out of memory: Killed process" in failure.why
    assert "(dd)" in failure.why


def test_a_guest_panics(crew: Crew) -> None:
    failure = fail(crew, make_step("panics", "echo c > /proc/sysrq-trigger; sleep 600"))
    assert failure.kind == "guest"
    what = "tile 1 panics, load, step panics.step: the guest's kernel panicked"
    assert failure.what == what
    assert "sysrq triggered crash" in failure.why


def test_a_qemu_that_is_killed_is_told_beside_the_step_of_another(crew: Crew) -> None:
    kill = once_running(crew.guests["killed"], signal.SIGKILL)
    steps = make_step("worker", "sleep 600"), make_step("killed", "sleep 600")
    failure = fail(crew, *steps, on_step=kill)
    assert failure.kind == "qemu"
    assert failure.what == "tile 1 killed, load, step killed.step: QEMU was killed by signal 9"


def test_a_guest_that_hangs_without_a_step_of_its_own(crew: Crew) -> None:
    """It is idle, and another's step would go on for ten minutes."""
    stop = once_running(crew.guests["stopped"], signal.SIGSTOP)
    idle = TileStep("stopped.done", "stopped", "load", (), idle=0.01)
    stay = make_step("worker", "sleep 600", timeout=600.0)
    try:
        failure = fail(crew, stay, idle, on_step=stop, silence=15.0)
    finally:
        os.kill(crew.guests["stopped"].process.pid, signal.SIGCONT)
    assert failure.kind == "guest"
    what = "tile 1 stopped, load, no step of its own under way: the guest hangs"
    assert failure.what == what
