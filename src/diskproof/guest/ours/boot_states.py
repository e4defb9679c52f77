"""A guest is booted once; others of its shape go on from where it was when its agent said hello.

Until then a guest has not looked at the disk under test nor at its root, so the state fits every
guest with the same devices, whatever lies behind them. An emulated boot takes seconds of a
processor, going on from its end a tenth of one. Its kernel hears of it, and draws random numbers of
its own; the time and the address of its card are given to it by whoever needs them.
"""

import os
import tempfile
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

from diskproof.errors import RunFailure
from diskproof.guest.ours import boot
from diskproof.guest.ours.build import GuestFiles
from diskproof.guest.ours.wire import Hello, Started
from diskproof.qemu import qmp
from diskproof.qemu.machine import GuestMachine

SAVE_SECONDS = 120.0
# NVMe cannot be saved, and other buses keep in the device what the firmware has read of a disk.
_BUSES = (None, "virtio-blk", "virtio-scsi")
_NAME = "state"
_UNBOUNDED = 1 << 40  # bytes/s: a file does not have to be spared as a network would


@dataclass(frozen=True)
class BootState:
    """A guest after its boot; ``fd`` is a file that has no name any more. One that was ``started``
    has its root, and has seen no disk under test."""

    fd: int
    hello: Hello
    started: Started | None = None

    def open(self) -> int:
        """A descriptor that reads from the beginning; the caller closes it."""
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)


class BootStates:
    """The states of the shapes that were booted; made by ``start_boot_states``."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._states: dict[Hashable, BootState] = {}

    def find(self, files: GuestFiles, machine: GuestMachine) -> BootState | None:
        return self._states.get(shape_of(files, machine))

    def keep(self, files: GuestFiles, machine: GuestMachine, booted: boot.Booted) -> BootState:
        """Save a guest whose agent has said hello and which was asked nothing; it has to be ended
        then. Raises RunFailure ``qemu``."""
        with qmp.start_qmp(booted.qmp_socket, boot.QMP_SECONDS) as control:
            state = BootState(self._save(control), booted.hello)
        self._states[shape_of(files, machine)] = state
        return state

    def keep_started(self, guest: boot.Guest) -> BootState:
        """The same of a guest in service, which has no disk under test. Raises RunFailure
        ``qemu``."""
        state = BootState(self._save(guest.qmp), guest.booted.hello, guest.started)
        self._states[shape_of(guest.files, guest.machine)] = state
        return state

    def _save(self, control: qmp.Qmp) -> int:
        """The descriptor of a file with the whole machine."""
        file = self._stack.enter_context(_nameless_file(self._folder))
        events = [{"capability": "events", "state": True}]
        control.execute("migrate-set-capabilities", {"capabilities": events})
        control.execute("migrate-set-parameters", {"max-bandwidth": _UNBOUNDED})
        control.give_descriptor(_NAME, file.fileno())
        control.execute("migrate", {"uri": f"fd:{_NAME}"})
        _await_saved(control)
        os.fdatasync(file.fileno())  # not while disks are measured
        return file.fileno()


def find_state_folder() -> Path:
    """Where large temporary files lie on a disk: /tmp is often memory."""
    large = Path("/var/tmp")
    return large if os.access(large, os.W_OK) else Path(tempfile.gettempdir())


@contextmanager
def start_boot_states(folder: Path) -> Iterator[BootStates]:
    """States in ``folder``, for the length of a block. Nothing in it has a name, so nothing is left
    however we end; each takes what the guest has touched of its memory until then."""
    with ExitStack() as stack:
        yield BootStates(folder, stack)


@contextmanager
def start_guest_again(
    files: GuestFiles,
    machine: GuestMachine,
    states: BootStates,
    prepare: Callable[[boot.Guest], object],
    *,
    run_dir: Path,
    disk_folder: Path,
    deadline: float = 120.0,
) -> Iterator[boot.Guest]:
    """As ``start_guest``, and prepared; but all of a shape go on from where the first one was then.
    Their time stands still meanwhile. They have a slot for disks (``machine.slot``) in place of a
    disk under test, so none has seen one; ``prepare`` is the same for all of these ``states``."""
    machine = restorable(machine)
    where = partial(boot.start_guest, run_dir=run_dir, disk_folder=disk_folder, deadline=deadline)
    state = states.find(files, machine) if machine.generation else None
    if state is None:
        with where(files, machine) as guest:
            prepare(guest)
            if not machine.generation:
                yield guest
                return
            state = states.keep_started(guest)
    with ExitStack() as stack:
        file = state.open()
        stack.callback(os.close, file)
        goes_on = replace(machine, state=file)
        launched = boot.launch(stack, files, goes_on, run_dir=run_dir, folder=disk_folder)
        with boot.explained(launched.process, launched.console):
            booted = launched.after_hello(state.hello)
            with qmp.start_qmp(booted.qmp_socket, boot.QMP_SECONDS) as control:
                assert state.started
                yield boot.Guest(files, machine, booted, state.started, control)


def restorable(machine: GuestMachine) -> GuestMachine:
    """The machine as one that a state can be made of or for, where that can be.

    Under emulation only: elsewhere a boot is short.
    """
    return replace(machine, generation=True) if _can_restore(machine) else machine


def _can_restore(machine: GuestMachine) -> bool:
    return machine.accel == "tcg" and machine.bus in _BUSES and machine.namespace is None


def shape_of(files: GuestFiles, machine: GuestMachine) -> Hashable:
    """Guests of one shape have the same devices and boot the same kernel from the same files. File
    names of disks are relative, so that those in folders of their own are the same."""
    card = replace(machine.card, mac="", fd=0) if machine.card else None
    return files.kernel, files.initrd, replace(machine, card=card)


@contextmanager
def _nameless_file(folder: Path) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile(dir=folder) as file:
        yield file


def _await_saved(control: qmp.Qmp) -> None:
    status = ""
    while status != "completed":
        event = control.wait_event(["MIGRATION"], SAVE_SECONDS)
        status = str(event["data"]["status"]) if event else "silent"
        if status in ("failed", "cancelled", "silent"):
            why = f"its migration to a file ended as: {status}"
            raise RunFailure("qemu", "the state of a booted guest cannot be saved", why)
