"""A machine of the user's own as QEMU arguments: pure, one fragment a function.

Its system disk is an overlay of the run, on the user's image and what that is based on; those are
descriptors, opened read-only. The overlay goes with the run, so that its flushes are not carried
out: the guest's own writing must not load the host's disk beside the disk under test.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from diskproof.qemu.machine import CPUS, GuestMachine, isolation_args
from diskproof.study.guest import OwnGuest

QEMU_AGENT_PORT = "org.qemu.guest_agent.0"
OVERLAY = "system.qcow2"
VARIABLES = "firmware-variables.fd"
SYSTEM_NODE = "diskproof-system"
SYSTEM_SERIAL = "diskproof-system"
FIRST_FDSET = 200
_WITH_BACKING = ("qcow2", "qed")
_CACHE = {"direct": False, "no-flush": True}


@dataclass(frozen=True)
class OwnDescriptors:
    """Numbers of the open files and sockets that QEMU is started with. ``layers`` are the user's
    image and what it is based on, topmost first, each with its format."""

    qmp: int
    agent: int
    console: int
    layers: tuple[tuple[int, str], ...]
    kernel: int | None = None
    initrd: int | None = None

    def all(self) -> tuple[int, ...]:
        files = (self.kernel, self.initrd, *(number for number, _ in self.layers))
        return tuple(n for n in (self.qmp, self.agent, self.console, *files) if n is not None)

    def booted(self) -> tuple[int, ...]:
        """Those that QEMU opens once more, by their names in /dev/fd."""
        return tuple(number for number in (self.kernel, self.initrd) if number is not None)


def own_machine_args(
    own: OwnGuest, machine: GuestMachine, fds: OwnDescriptors, *, firmware: str, sandbox: bool
) -> list[str]:
    """All arguments of one guest's QEMU; ``firmware`` is OVMF's code, empty for the BIOS."""
    return [
        *isolation_args(sandbox),
        *processor_args(own, machine, bool(firmware)),
        *firmware_args(firmware),
        *kernel_args(own, fds),
        *control_args(fds),
        *system_args(own, fds),
        *machine.disk_args,
    ]


def processor_args(own: OwnGuest, machine: GuestMachine, flash: bool) -> list[str]:
    """As our own guest has them. A screen that nobody sees: not every boot loader does without."""
    flashes = ",pflash0=firmware,pflash1=variables" if flash else ""
    return [
        *("-machine", f"{own.machine},accel={machine.accel}{flashes}"),
        *("-cpu", CPUS[machine.accel]),
        *("-smp", str(machine.vcpus)),
        *("-m", f"{machine.memory_bytes >> 10}K"),
        *("-device", "VGA"),
        *(("-rtc", "base=localtime") if own.os == "windows" else ()),
    ]


def firmware_args(code: str) -> list[str]:
    """OVMF and the run's copy of its variables."""
    if not code:
        return []
    file = {"driver": "file", "filename": code, "read-only": True}
    kept = {"driver": "file", "filename": VARIABLES}
    return [
        *_blockdev({"driver": "raw", "node-name": "firmware", "read-only": True, "file": file}),
        *_blockdev({"driver": "raw", "node-name": "variables", "file": kept}),
    ]


def kernel_args(own: OwnGuest, fds: OwnDescriptors) -> list[str]:
    if fds.kernel is None:
        return []
    initrd = ["-initrd", f"/proc/self/fd/{fds.initrd}"] if fds.initrd is not None else []
    return ["-kernel", f"/proc/self/fd/{fds.kernel}", *initrd, "-append", own.append]


def control_args(fds: OwnDescriptors) -> list[str]:
    """QMP, the guest agent's port and the console, each on a socket of ours."""
    return [
        *("-chardev", f"socket,id=qmp,fd={fds.qmp}"),
        *("-mon", "chardev=qmp,mode=control"),
        *("-chardev", f"socket,id=console,fd={fds.console}"),
        *("-serial", "chardev:console"),
        *("-device", "virtio-serial-pci,max_ports=2"),
        *("-chardev", f"socket,id=agent,fd={fds.agent}"),
        *("-device", f"virtserialport,id=agent,chardev=agent,name={QEMU_AGENT_PORT}"),
    ]


def system_args(own: OwnGuest, fds: OwnDescriptors) -> list[str]:
    """The overlay on the user's image, and the disk that the machine boots from."""
    overlay = {"driver": "file", "node-name": f"{SYSTEM_NODE}-file", "filename": OVERLAY}
    top = {
        "driver": "qcow2",
        "node-name": SYSTEM_NODE,
        "file": f"{SYSTEM_NODE}-file",
        "backing": _layer_node(0),
        "discard": "unmap",
        "cache": _CACHE,
    }
    return [
        *layer_args(fds.layers),
        *_blockdev({**overlay, "aio": "threads", "discard": "unmap", "cache": _CACHE}),
        *_blockdev(top),
        *system_device_args(own.bus, first=fds.kernel is None),
    ]


def layer_args(layers: Sequence[tuple[int, str]]) -> list[str]:
    """The read-only images by descriptor, the lowest first. Locked against writers."""
    args: list[str] = []
    for place, (number, form) in reversed(list(enumerate(layers))):
        fdset, name = FIRST_FDSET + place, _layer_node(place)
        below = _layer_node(place + 1) if place + 1 < len(layers) else None
        args += ["-add-fd", f"fd={number},set={fdset}"]
        file = {
            "driver": "file",
            "node-name": f"{name}-file",
            "filename": f"/dev/fdset/{fdset}",
            "locking": "on",
        }
        node = {"driver": form, "node-name": name, "file": f"{name}-file"}
        backing = {"backing": below} if form in _WITH_BACKING else {}
        fixed = {"read-only": True, "auto-read-only": False}
        args += [*_blockdev({**file, **fixed}), *_blockdev({**node, **backing, **fixed})]
    return args


def look_args(fd: int, sandbox: bool) -> list[str]:
    """A QEMU that only looks at an image, by QMP on its standard streams."""
    return [
        *isolation_args(sandbox),
        *("-machine", "none"),
        *("-accel", "tcg,tb-size=8"),  # MiB; else it takes a gigabyte for code that never comes
        *("-add-fd", f"fd={fd},set={FIRST_FDSET}"),
        *("-qmp", "stdio"),
    ]


def look_node(form: str) -> dict[str, object]:
    """One layer without what it is based on, as ``blockdev-add`` takes it."""
    fixed = {"read-only": True, "auto-read-only": False}
    file = {"driver": "file", "filename": f"/dev/fdset/{FIRST_FDSET}", "locking": "on", **fixed}
    backing = {"backing": None} if form in _WITH_BACKING else {}
    return {"driver": form, "node-name": _layer_node(0), "file": file, **backing, **fixed}


def find_image(nodes: object) -> Mapping[str, Any] | None:
    """What ``query-named-block-nodes`` says of the image of ``look_node``."""
    for node in nodes if isinstance(nodes, list) else ():
        if isinstance(node, dict) and node.get("node-name") == _layer_node(0):
            image = node.get("image")
            return image if isinstance(image, dict) else None
    return None


def system_device_args(bus: str, *, first: bool) -> list[str]:
    """The system disk on its bus, beside and never in the place of the disk under test. ``first``:
    it is booted from; a kernel of the host's has that place otherwise."""
    boot = {"bootindex": 0} if first else {}
    disk = {"drive": SYSTEM_NODE, "serial": SYSTEM_SERIAL, **boot}
    controllers: dict[str, dict[str, object]] = {
        "virtio-scsi": {"driver": "virtio-scsi-pci", "id": "system-bus"},
        "ahci": {"driver": "ich9-ahci", "id": "system-bus"},
    }
    devices: dict[str, dict[str, object]] = {
        "virtio-blk": {"driver": "virtio-blk-pci"},
        "virtio-scsi": {"driver": "scsi-hd", "bus": "system-bus.0"},
        "ide": {"driver": "ide-hd", "bus": "ide.1", "unit": 0},
        "ahci": {"driver": "ide-hd", "bus": "system-bus.0"},
        "nvme": {"driver": "nvme"},
    }
    controller = _device(controllers[bus]) if bus in controllers else []
    return [*controller, *_device({**devices[bus], **disk})]


def _layer_node(place: int) -> str:
    return f"diskproof-layer{place}"


def _blockdev(node: Mapping[str, object]) -> list[str]:
    return ["-blockdev", json.dumps(node, separators=(",", ":"))]


def _device(device: Mapping[str, object]) -> list[str]:
    return ["-device", json.dumps(device, separators=(",", ":"))]
