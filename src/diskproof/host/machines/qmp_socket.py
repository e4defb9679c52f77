"""What a running QEMU says of its disks, asked where nobody is disturbed by it.

A monitor's socket serves one client at a time. Only one is used that the command line names, that
nobody is connected to, whose listener is that very process, and that no manager keeps for itself.
"""

import os
import re
import socket
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from diskproof.advice.qemu_options import read_options
from diskproof.errors import DiskproofError, RunFailure
from diskproof.host.machines.qemu_process import QemuProcess
from diskproof.qemu.qmp import Qmp, connect

SECONDS = 1.0
"""The most that one machine may take to answer all."""
_MANAGED = re.compile(r"/(?:libvirt|qemu-server|incus|lxd|kubevirt[\w-]*)/")
_LISTENING = 1 << 16  # __SO_ACCEPTCON in /proc/net/unix
_PEER = struct.Struct("3i")  # pid, uid, gid

Item = Mapping[str, object]


@dataclass(frozen=True)
class BlockAnswers:
    """``blocks`` of query-block, ``nodes`` of query-named-block-nodes. ``devices`` has for each
    ``qdev`` the type of the device and of its controller, and whether it has an iothread.
    ``fdsets`` are descriptors by the name of their set."""

    blocks: Sequence[Item]
    nodes: Sequence[Item]
    devices: Mapping[str, tuple[str, str, bool]]
    fdsets: Mapping[str, tuple[int, ...]]


def ask_disks(process: QemuProcess, config: str) -> BlockAnswers | None:
    """What QEMU says, within a second; None where it cannot be asked. ``config`` is the text of
    its configuration files."""
    deadline = time.monotonic() + SECONDS
    for path in monitor_paths(process.argv):
        with suppress(DiskproofError, OSError, ValueError):
            if not _MANAGED.search(path) and not _is_taken(process, path):
                return _converse(process, path, deadline)
    return None


def monitor_paths(argv: Sequence[str]) -> Iterator[str]:
    """Paths of the QMP sockets that a command line has QEMU listen on."""
    sockets, monitors = {}, set()
    for option in read_options(argv[1:]):
        try:
            keys = option.flat if option.name in ("chardev", "mon") else {}
        except DiskproofError:
            continue
        if option.name in ("qmp", "qmp-pretty") and option.text.startswith("unix:"):
            path, *rest = option.text.removeprefix("unix:").split(",")
            if {"server", "server=on"} & set(rest):
                yield path
        elif option.name == "chardev" and keys.get("backend") == "socket" and keys.get("path"):
            if keys.get("server") == "on":
                sockets[str(keys.get("id"))] = str(keys["path"])
        elif option.name == "mon" and keys.get("mode") == "control":
            monitors.add(str(keys.get("chardev")))
    yield from (path for name, path in sockets.items() if name in monitors - {"charmonitor"})


def _is_taken(process: QemuProcess, path: str) -> bool:
    """Whether somebody is connected, or nobody listens; what cannot be seen is taken."""
    listens = False
    for line in (process.read_file("net/unix", proc=True) or "").splitlines()[1:]:
        fields = line.split(maxsplit=7)
        if len(fields) < 8 or fields[7] != path:
            continue
        if not int(fields[3], 16) & _LISTENING:
            return True
        listens = True
    return not listens


def _converse(process: QemuProcess, path: str, deadline: float) -> BlockAnswers:
    place = process.see(path)
    folder = os.open(place.parent, os.O_PATH)
    monitor = socket.socket(socket.AF_UNIX)
    try:
        monitor.settimeout(SECONDS)
        monitor.connect(f"/proc/self/fd/{folder}/{place.name}")
        peer = monitor.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
        if _PEER.unpack(peer)[0] != process.pid:
            raise ValueError("somebody else listens there")
    except BaseException:
        monitor.close()
        raise
    finally:
        os.close(folder)
    talk = _Talk(connect(monitor, max(0.05, deadline - time.monotonic())), deadline)
    try:
        return talk.ask()
    finally:
        talk.qmp.close()


@dataclass(frozen=True)
class _Talk:
    qmp: Qmp
    deadline: float

    def execute(self, command: str, **arguments: object) -> object:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise RunFailure("qemu", "QEMU's monitor did not tell all in time")
        return self.qmp.execute(command, arguments, left)

    def items(self, command: str, **arguments: object) -> list[Item]:
        answer = self.execute(command, **arguments)
        return (
            [item for item in answer if isinstance(item, dict)] if isinstance(answer, list) else []
        )

    def ask(self) -> BlockAnswers:
        blocks = self.items("query-block")
        nodes = self.items("query-named-block-nodes", flat=True)
        used = {str(block["qdev"]) for block in blocks if block.get("qdev")}
        fdsets = {}
        for item in self.items("query-fdsets"):
            fds = item.get("fds")
            members = fds if isinstance(fds, list) else []
            numbers = [fd.get("fd") for fd in members if isinstance(fd, dict)]
            fdsets[f"/dev/fdset/{item.get('fdset-id')}"] = tuple(
                number for number in numbers if isinstance(number, int)
            )
        return BlockAnswers(blocks, nodes, {name: self._device(name) for name in used}, fdsets)

    def _device(self, qdev: str) -> tuple[str, str, bool]:
        """The type of a device, that of what it hangs on, and whether either has an iothread."""
        path = qdev if qdev.startswith("/") else f"/machine/peripheral/{qdev}"
        path = path.removesuffix("/virtio-backend")
        bus = str(self._get(path, "parent_bus"))
        above = str(Path(bus).parent).removesuffix("/virtio-backend")
        thread = any(self._get(of, "iothread") for of in (path, above))
        return str(self._get(path, "type")), str(self._get(above, "type")), thread

    def _get(self, path: str, name: str) -> object:
        try:
            return self.execute("qom-get", path=path, property=name)
        except DiskproofError:
            if time.monotonic() > self.deadline:
                raise
            return ""
