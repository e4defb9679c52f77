"""Which disks a QEMU command line makes, on which bus, with which thread.

Rules: QEMU 7.2, qemu(1) ``-drive if=``, ``-device``, ``-global``, ``-object iothread``; names of
disks without an id as blockdev.c ``drive_new`` makes them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from diskproof.advice.qemu_nodes import BlockGraph, BlockNode, drive_keys
from diskproof.advice.qemu_options import Flat, QemuOption, base_name, child_keys, render_keys
from diskproof.errors import UsageError

_MAX_OPTIONS = 2000
_IF_ONLY = ("floppy", "pflash", "mtd")  # no disks
_SHORT = {
    **{f"hd{letter}": {"if": "ide", "index": str(i)} for i, letter in enumerate("abcd")},
    "cdrom": {"media": "cdrom"},
    "sd": {"if": "sd"},
}
_DISK_DEVICES = re.compile(
    r"(?P<blk>virtio-blk(-.+)?)|(?P<scsi>scsi-(hd|cd|block|disk|generic))|(?P<ide>ide-(hd|cd|drive))"
    r"|(?P<nvme>nvme|nvme-ns)|(?P<other>usb-storage|sd-card|vhost-user-blk-.+|xen-disk)"
)
_SCSI_CONTROLLERS = re.compile(
    r"virtio-scsi.*|lsi.*|megasas.*|mptsas.*|pvscsi|am53c974|dc390|spapr-vscsi"
)


@dataclass(frozen=True)
class DiskOptions:
    """One disk of a command line. ``device`` is empty for a -drive that needs none; ``drive`` for
    one of -blockdev. ``options`` are all that belong to it, in their order. ``bus`` is empty where
    a study has no word for it."""

    name: str
    node: BlockNode
    bus: str
    device: Flat = field(default_factory=dict)
    controller: Flat = field(default_factory=dict)
    drive: Flat = field(default_factory=dict)
    options: tuple[QemuOption, ...] = ()

    @property
    def iothread(self) -> str:
        """The iothread's id (``*`` where several share the queues); empty without one."""
        for taker in (self.device, self.controller):
            if any(key.startswith("iothread-vq-mapping") for key in taker):
                return "*"
            if found := taker.get("iothread"):
                return found
        return ""

    @property
    def is_cdrom(self) -> bool:
        kind = str(self.device.get("driver") or "")
        return self.drive.get("media") == "cdrom" or kind in ("ide-cd", "scsi-cd")


@dataclass
class CommandLine:
    """A QEMU command line sorted. ``program`` and ``machine`` decide what is default."""

    program: str = ""
    machine: str = ""
    name: str = ""
    snapshot: bool = False
    graph: BlockGraph = field(default_factory=BlockGraph)
    drives: list[tuple[QemuOption, Flat]] = field(default_factory=list)
    devices: list[tuple[QemuOption, Flat]] = field(default_factory=list)
    iothreads: dict[str, QemuOption] = field(default_factory=dict)
    config_files: list[str] = field(default_factory=list)
    others: list[QemuOption] = field(default_factory=list)
    _globals: dict[tuple[str, str], str] = field(default_factory=dict)
    _node_options: dict[str, QemuOption] = field(default_factory=dict)

    def add(self, option: QemuOption) -> None:
        """Sort one option in. Raises UsageError where it cannot be read."""
        name = option.name
        if name in ("drive", "device", "blockdev") and any(k[:1] in "$`" for k in option.flat):
            self.others.append(option)  # nobody knows what the shell puts in there
        elif name in _SHORT:
            keys = {**_SHORT[name], "file": option.text}
            self.drives.append((option, keys))
        elif name in ("drive", "device"):
            (self.drives if name == "drive" else self.devices).append((option, option.flat))
        elif name == "blockdev":
            self._add_nodes(option.flat, option)
        elif name == "object" and option.flat.get("qom-type") == "iothread":
            self.iothreads[str(option.flat.get("id") or "")] = option
        elif name in ("machine", "M"):
            self.machine = str(option.flat.get("type") or self.machine)
        elif name == "global":
            self._add_global(option)
        elif name == "set":
            self._set(option)
        elif name == "name":
            self.name = str(option.flat.get("guest") or self.name)
        elif name == "snapshot":
            self.snapshot = True
        elif name == "readconfig":
            self.config_files.append(option.text)
        else:
            self.others.append(option)

    def _add_nodes(self, keys: Flat, option: QemuOption) -> None:
        """A -blockdev; its inline children may have names that others use."""
        for key in keys:
            if key == "node-name" or key.endswith(".node-name"):
                name, inner = str(keys[key]), key.removesuffix("node-name").removesuffix(".")
                self.graph.named[name] = child_keys(keys, inner) if inner else keys
                self._node_options[name] = option

    def _add_global(self, option: QemuOption) -> None:
        keys = option.flat
        if "property" in keys:
            self._globals[str(keys.get("driver")), str(keys["property"])] = str(keys.get("value"))
            return
        driver, _, rest = option.text.partition(".")
        key, _, value = rest.partition("=")
        self._globals[driver, key] = value

    def _set(self, option: QemuOption) -> None:
        """``-set drive.ID.KEY=VALUE``: of what came before."""
        path, _, value = option.text.partition("=")
        group, _, rest = path.partition(".")
        name, _, key = rest.partition(".")
        items = {"drive": self.drives, "device": self.devices}.get(group, [])
        for place, (given, keys) in enumerate(items):
            if keys.get("id") == name:
                now = {**keys, key: value}
                items[place] = (QemuOption(given.name, render_keys(given.name, now)), now)

    def with_globals(self, device: Flat) -> Flat:
        """A device with what -global gives it."""
        driver = str(device.get("driver") or "")
        names = {driver, driver.removesuffix("-transitional").removesuffix("-non")}
        if driver.startswith("virtio-"):
            names.add("-".join(driver.split("-")[:2]) + "-device")
        given = {key: value for (of, key), value in self._globals.items() if of in names}
        return {**given, **device}

    @property
    def board(self) -> str:
        """``pc``, ``q35``, another machine's name, or empty where it is not known."""
        if "q35" in self.machine:
            return "q35"
        if self.machine.startswith("pc"):
            return "pc"
        plain = base_name(self.program).startswith(("qemu-system-x86_64", "qemu-system-i386"))
        return self.machine or ("pc" if plain else "")

    def disks(self) -> Iterator[DiskOptions]:
        """Every disk that a device or a -drive makes, in that order."""
        used: set[str] = set()
        drives = {str(keys.get("id")): (option, keys) for option, keys in self.drives}
        for option, keys in self.devices:
            found = _DISK_DEVICES.fullmatch(str(keys.get("driver") or ""))
            if found is None or not (keys.get("drive") or found["other"]):
                continue
            used.add(drive := str(keys.get("drive") or ""))
            yield self._disk_of_device(option, self.with_globals(keys), found, drives.get(drive))
        yield from self._disks_of_drives(used)

    def _disk_of_device(
        self,
        option: QemuOption,
        device: Flat,
        kind: "re.Match[str]",
        drive: tuple[QemuOption, Flat] | None,
    ) -> DiskOptions:
        controller = self._controller(device, kind)
        wanted = str(device.get("drive") or "")
        node, parts = self.graph.open({}), [option]
        if drive:
            node, parts = self.graph.open(drive_keys(drive[1])), [drive[0], option]
        elif found := self.graph.find(wanted):
            node = found
            parts = [*self._options_of(node), option]
        return DiskOptions(
            str(device.get("id") or wanted or device.get("driver")),
            node,
            self._bus(kind, device, controller[1]),
            device,
            controller[1],
            drive[1] if drive else {},
            (*self._thread_of(device, controller[1]), *parts[:-1], *controller[0], parts[-1]),
        )

    def _thread_of(self, *takers: Flat) -> Iterable[QemuOption]:
        wanted = [str(taker.get("iothread")) for taker in takers if taker.get("iothread")]
        return [self.iothreads[name] for name in wanted if name in self.iothreads]

    def _options_of(self, node: BlockNode) -> list[QemuOption]:
        """The -blockdev options that a node stands on, each once, lowest first."""
        used = [option for name, option in self._node_options.items() if name in node.names]
        return list({id(option): option for option in used}.values())

    def _controller(self, device: Flat, kind: "re.Match[str]") -> tuple[list[QemuOption], Flat]:
        """The controller that a disk hangs on, where the command line adds it."""
        if not (kind["scsi"] or kind["ide"] or kind[0] == "nvme-ns"):
            return [], {}
        wanted = str(device.get("bus") or "").partition(".")[0]
        for option, keys in self.devices:
            fits = kind["scsi"] and _SCSI_CONTROLLERS.fullmatch(str(keys.get("driver") or ""))
            if keys is not device and (keys.get("id") == wanted if wanted else fits):
                return [option], self.with_globals(keys)
        return [], {}

    def _bus(self, kind: "re.Match[str]", device: Flat, controller: Flat) -> str:
        driver = str(controller.get("driver") or "")
        if kind["blk"]:
            return "virtio-blk"
        if kind["nvme"]:
            return "nvme"
        if kind["scsi"]:
            return "virtio-scsi" if driver.startswith("virtio-scsi") else ""
        if not kind["ide"]:
            return ""
        if driver:
            return "ahci" if "ahci" in driver else "ide" if "ide" in driver else ""
        own = str(device.get("bus") or "ide.").startswith("ide.")
        return {"pc": "ide", "q35": "ahci"}.get(self.board, "") if own else ""

    def _disks_of_drives(self, used: set[str]) -> Iterator[DiskOptions]:
        """The disks of -drive that no -device names."""
        usual = {"pc": "ide", "q35": "ide", "isapc": "ide", "virt": "virtio"}.get(self.board, "")
        counts: dict[str, int] = {}
        for option, keys in self.drives:
            kind = str(keys.get("if") or usual)
            if kind == "none" or kind in _IF_ONLY or (keys.get("id") or "?") in used:
                continue
            count = counts.get(kind, 0)
            counts[kind] = count + 1
            index = str(keys.get("index") or count)
            place = int(index) if index.isdecimal() and len(index) < 6 else count
            media = "cd" if keys.get("media") == "cdrom" else "hd"
            auto = f"ide{place // 2}-{media}{place % 2}" if kind == "ide" else f"{kind}{place}"
            buses = {
                "virtio": "virtio-blk",
                "ide": {"pc": "ide", "q35": "ahci"}.get(self.board, ""),
            }
            device: Mapping[str, str | None] = {}
            if kind == "virtio":
                device = self.with_globals({"driver": "virtio-blk-pci"})
            elif kind == "ide":
                device = self.with_globals({"driver": "ide-cd" if media == "cd" else "ide-hd"})
            node = self.graph.open(drive_keys(keys))
            name = str(keys.get("id") or auto or base_name(node.end.image))
            yield DiskOptions(name, node, buses.get(kind, ""), device, {}, keys, (option,))


def sort_options(program: str, options: Iterable[QemuOption]) -> CommandLine:
    """The options of one QEMU, sorted. Raises UsageError."""
    sorted_ = CommandLine(program)
    for count, option in enumerate(options, 1):
        if count > _MAX_OPTIONS:
            raise UsageError(f"the command line has more than {_MAX_OPTIONS} options", "it is none")
        sorted_.add(option)
    return sorted_
