"""The guest's machine as QEMU arguments: pure, one fragment a function.

Every bus is on the same machine type, so that the machine is not a hidden factor. Files come as
descriptors, so that an unprivileged QEMU needs no way to them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT_SERIAL = "diskproof-root"
DISK_SERIAL = "diskproof-disk"
AGENT_PORT = "diskproof.agent"
ROOT_DRIVERS = ("virtio_blk", "squashfs")
BUS_DRIVERS: Mapping[str, tuple[str, ...]] = {
    "virtio-blk": ("virtio_blk",),
    "virtio-scsi": ("virtio_scsi", "sd_mod"),
    "ide": ("ata_piix", "sd_mod"),
    "ahci": ("ahci", "sd_mod"),
    "nvme": ("nvme",),
}
SLOT_ID = "diskproof-slot"
ROOT_FDSET = 100  # above those a disk may use
PROMISES_FDSET = 101

# Each shortens an emulated boot or keeps it from failing on a busy host; none touches a disk.
KERNEL_PARAMETERS = (
    "console=ttyS0",
    "quiet",
    "panic=-1",  # end at once: QEMU does not reboot, so it exits
    "no_timer_check",  # a late tick on a busy host is no broken timer
    "cryptomgr.notests",
    "8250.nr_uarts=1",
    "random.trust_cpu=on",
)

CPUS = {"kvm": "host", "tcg": "max,erms=off,fsrm=off"}
"""All that the accelerator offers, but no moves by bytes under emulation, which does them one by
one: a kernel that hears of none moves 8 bytes at a time."""

CARD_DRIVER = "virtio_net"
"""The guest's kernel module for its network card."""


@dataclass(frozen=True)
class NetworkCard:
    """One card. ``fd`` is where its frames go: an open tap, or a connected stream socket on which
    each frame follows its length in 4 bytes, big-endian (QEMU's netdev ``socket``)."""

    mac: str
    via: Literal["tap", "socket"]
    fd: int


@dataclass(frozen=True)
class GuestMachine:
    """One guest. ``bus`` is that of the disk under test, None without one.

    ``disk_args`` put it there (see ``disk``); ``disk_fds`` are the descriptors they name, if any.
    ``parameters`` are the kernel's beside KERNEL_PARAMETERS. ``namespace`` is the network namespace
    that the disk is reached in; without one QEMU has no network at all. ``card`` joins the guest to
    others, by a descriptor that needs none. ``state`` is a descriptor of a saved state: the guest
    goes on from it instead of booting. ``generation`` gives it a device that tells its kernel so,
    which must not draw the random numbers that others draw. ``translated_bytes`` bounds the code
    that an emulator keeps (None: QEMU's own bound). ``slot`` gives it a controller without a disk:
    disks come and go while it runs. ``promises`` is a descriptor that takes what is written to the
    guest's console /dev/hvc0: a write there returns when QEMU's own write has.
    """

    accel: str
    vcpus: int = 1
    memory_bytes: int = 512 << 20
    bus: str | None = None
    disk_args: tuple[str, ...] = ()
    disk_fds: tuple[int, ...] = ()
    parameters: tuple[str, ...] = ()
    namespace: Path | None = None
    card: NetworkCard | None = None
    state: int | None = None
    generation: bool = False
    translated_bytes: int | None = None
    slot: bool = False
    promises: int | None = None

    @property
    def drivers(self) -> tuple[str, ...]:
        """Kernel modules for the root, the bus and the slot."""
        buses = (*([self.bus] if self.bus else []), *(["virtio-scsi"] if self.slot else []))
        return ROOT_DRIVERS + tuple(name for bus in buses for name in BUS_DRIVERS[bus])

    def fds(self) -> tuple[int, ...]:
        """Descriptors that its arguments name, beside those every guest has."""
        card = (self.card.fd,) if self.card else ()
        more = (number for number in (self.state, self.promises) if number is not None)
        return (*self.disk_fds, *card, *more)


@dataclass(frozen=True)
class Descriptors:
    """Numbers of the open files and sockets that a guest is started with; ``root`` is None for
    one whose root is the disk under test."""

    kernel: int
    initrd: int
    qmp: int
    agent: int
    console: int
    root: int | None = None

    def all(self) -> tuple[int, ...]:
        numbers = (self.kernel, self.initrd, self.root, self.qmp, self.agent, self.console)
        return tuple(number for number in numbers if number is not None)

    def booted(self) -> tuple[int, int]:
        """Those that QEMU opens once more, by their names in /dev/fd."""
        return (self.kernel, self.initrd)


def machine_args(machine: GuestMachine, fds: Descriptors, *, sandbox: bool) -> list[str]:
    """All arguments of one guest's QEMU."""
    return [
        *isolation_args(sandbox),
        *processor_args(machine),
        *kernel_args(fds, machine.parameters),
        *control_args(fds),
        *root_args(fds),
        *machine.disk_args,
        *(("-device", f"virtio-scsi-pci,id={SLOT_ID}") if machine.slot else ()),
        *card_args(machine.card),
        *promises_args(machine.promises),
        *(("-device", "vmgenid") if machine.generation else ()),
        *(() if machine.state is None else ("-incoming", f"fd:{machine.state}")),
    ]


def isolation_args(sandbox: bool) -> list[str]:
    """Nothing that was not asked for, and no way to more."""
    denied = "obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
    return [
        *("-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none"),
        *(("-sandbox", f"on,{denied}") if sandbox else ()),
    ]


def processor_args(machine: GuestMachine) -> list[str]:
    """A processor that a user who tunes disks would choose."""
    return [
        *accel_args(machine),
        *("-cpu", CPUS[machine.accel]),
        *("-smp", str(machine.vcpus)),
        *("-m", f"{machine.memory_bytes >> 10}K"),
    ]


def accel_args(machine: GuestMachine) -> list[str]:
    if machine.accel == "tcg" and machine.translated_bytes is not None:
        return ["-machine", "pc", "-accel", f"tcg,tb-size={machine.translated_bytes >> 20}"]
    return ["-machine", f"pc,accel={machine.accel}"]


def kernel_args(fds: Descriptors, more: tuple[str, ...] = ()) -> list[str]:
    return [
        *("-kernel", f"/proc/self/fd/{fds.kernel}"),
        *("-initrd", f"/proc/self/fd/{fds.initrd}"),
        *("-append", " ".join((*KERNEL_PARAMETERS, *more))),
    ]


def control_args(fds: Descriptors) -> list[str]:
    """QMP, the agent's port and the console, each on a socket of ours."""
    return [
        *("-chardev", f"socket,id=qmp,fd={fds.qmp}"),
        *("-mon", "chardev=qmp,mode=control"),
        *("-chardev", f"socket,id=console,fd={fds.console}"),
        *("-serial", "chardev:console"),
        *("-device", "virtio-serial-pci,max_ports=2"),
        *("-chardev", f"socket,id=agent,fd={fds.agent}"),
        *("-device", f"virtserialport,chardev=agent,name={AGENT_PORT}"),
    ]


def root_args(fds: Descriptors) -> list[str]:
    """The tools' drive: read-only, shared by all guests, never the one under test."""
    if fds.root is None:
        return []
    file = f"file.driver=file,file.filename=/dev/fdset/{ROOT_FDSET},file.locking=off"
    return [
        *("-add-fd", f"fd={fds.root},set={ROOT_FDSET}"),
        *("-blockdev", f"driver=raw,node-name=root,read-only=on,{file}"),
        *("-device", f"virtio-blk-pci,drive=root,serial={ROOT_SERIAL}"),
    ]


def promises_args(descriptor: int | None) -> list[str]:
    """A console whose driver in the guest waits, in each write, until QEMU has taken it, and QEMU's
    file takes it by a write of its own."""
    if descriptor is None:
        return []
    return [
        *("-add-fd", f"fd={descriptor},set={PROMISES_FDSET}"),
        *("-chardev", f"file,id=promises,path=/dev/fdset/{PROMISES_FDSET}"),
        *("-device", "virtconsole,chardev=promises"),
    ]


def card_args(card: NetworkCard | None) -> list[str]:
    """The card on its descriptor. It has no boot ROM: guests start from their kernel."""
    if card is None:
        return []
    # A tap of QEMU's would run scripts for one it makes; one that it is given it only uses.
    return [
        *("-netdev", f"{card.via},id=net,fd={card.fd}"),
        *("-device", f"virtio-net-pci,netdev=net,mac={card.mac},romfile="),
    ]
