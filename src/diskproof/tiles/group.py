"""Many guests at once: started together, waited for together, ended together.

One thread does it, the one that has started the QEMUs: they die with it.
"""

import os
import select
import selectors
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from diskproof.errors import DiskproofError, RunFailure
from diskproof.guest.ours.boot import QMP_SECONDS, Booted, Guest, Launched, explain, launch
from diskproof.guest.ours.boot_states import BootState, BootStates, restorable, shape_of
from diskproof.guest.ours.build import GuestFiles
from diskproof.guest.ours.channel import Channel
from diskproof.guest.ours.jobs import Job
from diskproof.qemu import qmp
from diskproof.qemu.machine import CARD_DRIVER, GuestMachine

GuestKey = tuple[int, str]
"""A guest's tile, from 1, and its name in the tile."""
OFF_SECONDS = 20.0
_ROOM_SECONDS = 0.0  # a guest that takes no request is not waited for
_SETTLE = """
for file; do
    name=${file##*/}
    [ -d "/sys/module/${name%%.ko*}" ] || insmod "$file"
done
[ -z "$NOW" ] || date --set "@$NOW" > /dev/null
for path in /sys/class/net/*; do
    [ "${path##*/}" = lo ] || ip link set "${path##*/}" address "$MAC"
done
"""
"""A shell's script: the driver of the card lies in the root. A guest that goes on from another's
state has the other's time and address."""
T = TypeVar("T")


@dataclass(frozen=True)
class Member:
    """One guest of a group: as ``guest.boot.start_guest`` takes it."""

    files: GuestFiles
    machine: GuestMachine
    run_dir: Path
    disk_folder: Path | None = None


@contextmanager
def start_group(
    members: Mapping[GuestKey, Member], *, deadline: float, states: BootStates | None = None
) -> Iterator[Mapping[GuestKey, Guest]]:
    """All guests with their roots mounted and the drivers of their cards loaded, within
    ``deadline`` seconds. With ``states`` one guest of each shape is booted where that takes long,
    and all go on from there.

    Raises RunFailure as ``start_guest``, naming the guest that does not come up (``tile 2 web:``);
    the others are ended. At the end of the block all are switched off, and killed when they are
    not off ``OFF_SECONDS`` later; when it fails they are killed at once.
    """
    end = time.monotonic() + deadline
    with ExitStack() as stack:
        if states:
            members = {key: _restorable(member) for key, member in members.items()}
            _make_states(members, states, end)
        with _start_all(stack, members, states) as launched:
            booted = _await_hellos(launched, members, states, end)
            guests = _start_guests(stack, members, booted, end)
            _settle(guests, members, states, end)
            yield guests
            end_group(guests)


@contextmanager
def _start_all(
    stack: ExitStack, members: Mapping[GuestKey, Member], states: BootStates | None
) -> Iterator[Mapping[GuestKey, Launched]]:
    """Every QEMU is started before one is waited for; at the end of the block all are killed."""
    launched: dict[GuestKey, Launched] = {}
    try:
        for key, member in members.items():
            with _named(key):
                launched[key] = _launch(stack, member, _find_state(member, states))
        yield launched
    finally:
        _kill(launched)


def _launch(stack: ExitStack, member: Member, state: BootState | None) -> Launched:
    folder = member.disk_folder or member.run_dir
    with ExitStack() as opened:
        machine = member.machine
        if state:
            fd = state.open()
            opened.callback(os.close, fd)
            machine = replace(machine, state=fd)
        return launch(stack, member.files, machine, run_dir=member.run_dir, folder=folder)


def _restorable(member: Member) -> Member:
    return replace(member, machine=restorable(member.machine))


def _find_state(member: Member, states: BootStates | None) -> BootState | None:
    return states.find(member.files, member.machine) if states else None


def title(key: GuestKey) -> str:
    tile, name = key
    return f"tile {tile} {name}"


# -- coming up ----------------------------------------------------------------------------------


def _make_states(members: Mapping[GuestKey, Member], states: BootStates, end: float) -> None:
    """Boot one guest of each shape that is not known yet, all at once, and end them."""
    makers: dict[object, GuestKey] = {}
    for key, member in members.items():
        if member.machine.generation and not _find_state(member, states):
            makers.setdefault(shape_of(member.files, member.machine), key)
    chosen = {key: members[key] for key in makers.values()}
    with ExitStack() as stack, _start_all(stack, chosen, None) as launched:
        for key, booted in _await_hellos(launched, chosen, None, end).items():
            with _explained(key, booted):
                states.keep(chosen[key].files, chosen[key].machine, booted)


def _await_hellos(
    launched: Mapping[GuestKey, Launched],
    members: Mapping[GuestKey, Member],
    states: BootStates | None,
    end: float,
) -> dict[GuestKey, Booted]:
    """All agents up. One that goes on from a state has said hello before it was saved."""
    booted: dict[GuestKey, Booted] = {}
    for key, guest in launched.items():
        if state := _find_state(members[key], states):
            booted[key] = guest.after_hello(state.hello)
    waiting = {key: guest for key, guest in launched.items() if key not in booted}

    def find_booted(key: GuestKey) -> bool:
        if waiting[key].channel.has_hello:
            booted[key] = waiting[key].wait_hello(0.0)
        return key in booted

    _await_all(waiting, find_booted, end)
    return {key: booted[key] for key in launched}


def _start_guests(
    stack: ExitStack,
    members: Mapping[GuestKey, Member],
    booted: Mapping[GuestKey, Booted],
    end: float,
) -> dict[GuestKey, Guest]:
    left = max(1.0, end - time.monotonic())
    jobs = _ask_all(booted, lambda key, guest: guest.ask_start(members[key].machine, left))
    _await_all(booted, lambda key: jobs[key].final is not None, end)
    guests: dict[GuestKey, Guest] = {}
    for key, guest in booted.items():
        with _explained(key, guest):
            started = guest.channel.wait_started(jobs[key], 0.0)
            control = stack.enter_context(qmp.start_qmp(guest.qmp_socket, QMP_SECONDS))
            member = members[key]
            guests[key] = Guest(member.files, member.machine, guest, started, control)
    return guests


def _settle(
    guests: Mapping[GuestKey, Guest],
    members: Mapping[GuestKey, Member],
    states: BootStates | None,
    end: float,
) -> None:
    """Give each guest what is its own and what it could not have before its root."""
    left = max(1.0, end - time.monotonic())
    booted = {
        key: guest.booted
        for key, guest in guests.items()
        if guest.machine.card or _find_state(members[key], states)
    }

    def settle(key: GuestKey, guest: Booted) -> Job:
        card = guests[key].machine.card
        files = guests[key].files.root_modules[CARD_DRIVER] if card else ()
        now = f"{time.time():.3f}" if _find_state(members[key], states) else ""
        env = {"MAC": card.mac if card else "", "NOW": now}
        argv = ["sh", "-e", "-c", _SETTLE, "sh", *files]
        return guest.channel.start_exec(argv, timeout=left, env=env)

    jobs = _ask_all(booted, settle)
    _await_all(booted, lambda key: jobs[key].final is not None, end)
    for key, guest in booted.items():
        with _explained(key, guest):
            done = guest.channel.wait_exec(jobs[key], 0.0)
            if done.exit.code != 0:
                why = done.stderr.decode("utf-8", "replace")
                raise RunFailure("guest", "the guest cannot be prepared", why)


def _ask_all(
    booted: Mapping[GuestKey, Booted], ask: Callable[[GuestKey, Booted], T]
) -> dict[GuestKey, T]:
    answers: dict[GuestKey, T] = {}
    for key, guest in booted.items():
        with _explained(key, guest):
            answers[key] = ask(key, guest)
    return answers


def _await_all(
    guests: Mapping[GuestKey, Launched | Booted], is_ready: Callable[[GuestKey], bool], end: float
) -> None:
    """Take in what all say until each is ready. The first that fails ends it."""
    waiting = {key for key in guests if not _is_ready(key, guests[key], is_ready)}
    with selectors.DefaultSelector() as selector:
        for key in waiting:
            selector.register(guests[key].channel, selectors.EVENT_READ, key)
        while waiting:
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready:
                _give_up(guests, min(waiting))
            for event, _ in ready:
                key = event.data
                with _explained(key, guests[key]):
                    guests[key].channel.take_ready()
                if _is_ready(key, guests[key], is_ready):
                    waiting.discard(key)
                    selector.unregister(event.fileobj)


def _is_ready(
    key: GuestKey, guest: Launched | Booted, is_ready: Callable[[GuestKey], bool]
) -> bool:
    with _explained(key, guest):
        return is_ready(key)


def _give_up(guests: Mapping[GuestKey, Launched | Booted], key: GuestKey) -> None:
    with _explained(key, guests[key]):
        what = "the guest is not up" if isinstance(guests[key], Launched) else "the guest is mute"
        raise RunFailure("guest", what, "the time to start all guests is over")


@contextmanager
def _explained(key: GuestKey, guest: Launched | Booted) -> Iterator[None]:
    """What fails in the block is this guest's failure, with its console and QEMU's log."""
    with _named(key):
        try:
            yield
        except RunFailure as failure:
            raise explain(failure, guest.process, guest.console) from failure


@contextmanager
def _named(key: GuestKey) -> Iterator[None]:
    try:
        yield
    except DiskproofError as error:
        error.what = f"{title(key)}: {error.what}"
        error.args = (error.what,)
        raise


# -- ending -------------------------------------------------------------------------------------


def end_group(guests: Mapping[GuestKey, Guest]) -> None:
    """Have all guests switch themselves off, and wait until they have or ``OFF_SECONDS`` are over.

    A guest that is dead or hangs keeps none from it and is no failure: the work is done.
    """
    asked = [guest for guest in guests.values() if _ask_off(guest.channel)]
    end = time.monotonic() + OFF_SECONDS
    for guest in asked:
        guest.process.wait(max(0.0, end - time.monotonic()))


def _ask_off(channel: Channel) -> bool:
    with suppress(RunFailure):
        if select.select([], [channel], [], _ROOM_SECONDS)[1]:
            channel.start_power_off()
            return True
    return False


def _kill(launched: Mapping[GuestKey, Launched]) -> None:
    """All at once: what then ends each on its own has nothing left to wait for."""
    for guest in launched.values():
        if guest.process.poll() is None:
            guest.process.kill()
