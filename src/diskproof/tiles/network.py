"""The network of a run's guests: they reach each other and nothing else, and nothing reaches them.

Root gets a bridge with taps of the kernel, in a network namespace that only descriptors keep: ours
and QEMU's. Anybody gets a switch in a process without privileges. Either is gone when its last
descriptor is closed, however we end, so there is nothing to clean up.
"""

import os
import select
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from diskproof.errors import HostError, RunFailure
from diskproof.process.cage import QEMU_CAGE, Cage
from diskproof.process.native import require_native
from diskproof.process.start import Process, run, start_process
from diskproof.qemu.machine import NetworkCard

Kind = Literal["bridge", "switch"]
Seat = tuple[int, int]
"""A guest's tile and its place in the tile, both from 1."""

BRIDGE = "diskproof-bridge"
SWITCH = "diskproof-switch"
LOG = "switch.log"
MAX_TILES = 255
MAX_PLACES = 254
MAX_PORTS = 250
_START_SECONDS = 30.0
_LAST_FRAMES = 2.0  # from the last port's end to the switch's own


@dataclass(frozen=True)
class Network:
    """A network under way. ``ports`` are descriptors for QEMU; they stay ours.

    ``namespace`` is the bridge's, as a descriptor; ``pids`` are processes that do its work: the
    kernel's bridge has none.
    """

    kind: Kind
    ports: Mapping[Seat, int]
    namespace: int | None = None
    pids: tuple[int, ...] = ()

    def port(self, tile: int, place: int) -> NetworkCard:
        """The card of a guest; only one guest may have it."""
        via: Literal["tap", "socket"] = "tap" if self.kind == "bridge" else "socket"
        return NetworkCard(mac_address(tile, place), via, self.ports[tile, place])


def ip_address(tile: int, place: int) -> str:
    """The address of the guest at a place (from 1) of a tile (from 1), in 10.77.0.0/16."""
    return f"10.77.{tile}.{place}"


def mac_address(tile: int, place: int) -> str:
    return f"52:54:00:4d:{tile:02x}:{place:02x}"


@contextmanager
def start_network(folder: Path, kind: str, seats: Sequence[Seat]) -> Iterator[Network]:
    """One network with a port for each guest, for the length of a block.

    ``kind`` is ``bridge``, ``switch`` or ``auto``: a bridge for root, else a switch. The switch
    logs to ``switch.log`` in ``folder``. Raises HostError when this host cannot have it.
    """
    _require_seats(seats)
    chosen = choose_kind(kind)
    with _start_bridge(seats) if chosen == "bridge" else _start_switch(folder, seats) as network:
        yield network


def choose_kind(kind: str) -> Kind:
    """What ``auto`` stands for here. Raises HostError for a bridge without root."""
    root = os.geteuid() == 0
    if kind == "switch" or (kind == "auto" and not root):
        return "switch"
    if not root:
        why = "only root makes a network namespace with taps"
        raise HostError("there is no bridge", why, 'run it as root, or set network = "switch"')
    return "bridge"


def _require_seats(seats: Sequence[Seat]) -> None:
    """Every guest has an address of its own in 10.77.0.0/16."""
    if len(seats) > MAX_PORTS:
        raise HostError(f"{len(seats)} guests are too many", f"a network has {MAX_PORTS} ports")
    if not all(1 <= tile <= MAX_TILES and 1 <= place <= MAX_PLACES for tile, place in seats):
        why = f"there are addresses for {MAX_TILES} tiles of {MAX_PLACES} guests"
        raise HostError("there are too many guests or tiles", why)


# -- the kernel's bridge ------------------------------------------------------------------------


@contextmanager
def _start_bridge(seats: Sequence[Seat]) -> Iterator[Network]:
    with ExitStack() as stack:
        namespace, *taps = _receive_bridge(stack, len(seats))
        ports = dict(zip(seats, taps, strict=True))
        yield Network("bridge", MappingProxyType(ports), namespace)


def _receive_bridge(stack: ExitStack, ports: int) -> list[int]:
    """The namespace's descriptor and those of its taps; ``stack`` closes them.

    A program of ours makes all of it and ends: we never leave our own network, not for a moment.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [str(require_native(BRIDGE)), "--socket", str(theirs.fileno()), "--ports"]
        done = run(
            [*argv, str(ports)], timeout=_START_SECONDS, pass_fds=[theirs.fileno()], check=False
        )
        theirs.close()
        received = _receive_all(stack, ours, ports + 1)
    if done.returncode != 0:
        why = done.error_text.removeprefix(f"{BRIDGE}: ")
        raise HostError("there is no bridge for the guests", why, 'set network = "switch"')
    if len(received) != ports + 1:
        what = f"{BRIDGE} handed over {len(received)} descriptors, not {ports + 1}"
        raise RunFailure("tool", what)
    return received


def _receive_all(stack: ExitStack, sender: socket.socket, most: int) -> list[int]:
    received: list[int] = []
    while len(received) < most:
        # What is beyond the room for it is closed by the kernel.
        data, fds, _, _ = socket.recv_fds(sender, 1, most - len(received))
        for fd in fds:
            stack.callback(os.close, fd)
            os.set_inheritable(fd, False)
        received += fds
        if not data:
            break
    return received


# -- a switch of our own ------------------------------------------------------------------------


@contextmanager
def _start_switch(folder: Path, seats: Sequence[Seat]) -> Iterator[Network]:
    with ExitStack() as stack:
        process, ends = _start_switch_process(stack, folder, len(seats))
        with ExitStack() as ports:
            for end in ends:
                ports.enter_context(end)
            numbers = dict(zip(seats, (end.fileno() for end in ends), strict=True))
            yield Network("switch", MappingProxyType(numbers), pids=(process.pid,))
        status = process.wait(_LAST_FRAMES)  # it logs what went over each port
        if status:
            why = process.read_log(2000).decode("utf-8", "replace")
            raise RunFailure("tool", f"{SWITCH} ended with status {status}", why)


def _start_switch_process(
    stack: ExitStack, folder: Path, ports: int
) -> tuple[Process, list[socket.socket]]:
    """The switch and QEMU's ends of its ports."""
    pairs = [socket.socketpair() for _ in range(ports)]
    said, ready = os.pipe()
    try:
        numbers = [theirs.fileno() for _, theirs in pairs]
        argv = [str(require_native(SWITCH))]
        argv += [word for number in numbers for word in ("--port", str(number))]
        starting = start_process(
            argv,
            name="switch",
            log=folder / LOG,
            pass_fds=numbers,
            confined=True,
            cage=Cage(QEMU_CAGE.readable),
            stdout=ready,
        )
        process = stack.enter_context(starting)
        os.close(ready)
        ready = -1
        _await_ready(process, said)
        return process, [ours for ours, _ in pairs]
    except BaseException:
        for ours, _ in pairs:
            ours.close()
        raise
    finally:
        for _, theirs in pairs:
            theirs.close()
        for fd in (said, ready):
            if fd >= 0:
                os.close(fd)


def _await_ready(process: Process, said: int) -> None:
    """Raises RunFailure ``tool`` for a switch that does not come up."""
    if select.select([said], [], [], _START_SECONDS)[0] and os.read(said, 16) == b"ready\n":
        return
    why = process.read_log(2000).decode("utf-8", "replace")
    raise RunFailure("tool", f"{SWITCH} did not start", why)
