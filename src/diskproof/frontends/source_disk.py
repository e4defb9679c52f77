"""A guest's second disk, that data is copied from (``RunContext.source``)."""

from __future__ import annotations

import re
from contextlib import ExitStack
from dataclasses import replace

from diskproof.drive import DiskImage
from diskproof.errors import RunFailure
from diskproof.frontends.effective import make_check, read_nodes, require_field
from diskproof.frontends.host import find_direct_obstacle
from diskproof.guest.boot import Guest
from diskproof.qemu.machine import GuestMachine
from diskproof.qemu.qmp import Qmp
from diskproof.qemu.source import SOURCE_NODE, SOURCE_SERIAL, source_args
from diskproof.records import Check

_FIND = """for disk in /sys/block/*; do
[ ! -e $disk/serial ] || [ "$(cat $disk/serial)" != "$1" ] || echo /dev/${disk##*/}
done"""
_SECONDS = 60.0  # for a small program, under emulation on a busy host


def with_source(stack: ExitStack, machine: GuestMachine, source: DiskImage | None) -> GuestMachine:
    """The machine with a second disk, which ``stack`` closes."""
    if source is None:
        return machine
    handle = stack.enter_context(source.path.open("r+b", buffering=0)).fileno()
    direct = not find_direct_obstacle(source.path)
    args = source_args(handle, device=source.device, direct=direct)
    return replace(
        machine, disk_args=(*machine.disk_args, *args), disk_fds=(*machine.disk_fds, handle)
    )


def find_source(guest: Guest) -> str:
    """The second disk's name in the guest. Raises RunFailure ``guest``."""
    argv = ["sh", "-c", _FIND, "sh", SOURCE_SERIAL]
    told = guest.channel.exec(argv, timeout=_SECONDS).stdout.decode("utf-8", "replace").strip()
    if not re.fullmatch(r"/dev/[a-z0-9]{1,30}", told):
        raise RunFailure("guest", "the guest does not see the disk that data is copied from", told)
    return told


def check_source(qmp: Qmp, source: DiskImage | None) -> tuple[Check, ...]:
    """Whether the host caches the second disk, if there is one: not where that can be helped."""
    if source is None:
        return ()
    node = read_nodes(qmp).get(SOURCE_NODE, {})
    told = "QMP query-named-block-nodes"
    direct = not find_direct_obstacle(source.path)
    found = require_field(node, "cache.direct", told)
    return (make_check("source: cache.direct", direct, found, told),)
