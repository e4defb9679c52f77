"""The lines of the dialect ``qemu``, pasted and booted: five disks a guest, one on each bus.

Requires the built guest (``diskproof guest build``), qemu-system-x86_64, qemu-img.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from diskproof.advice.dialect import Paste, Target
from diskproof.advice.qemu import DIALECT
from diskproof.backings import NO_CONSENT, start_disk_dir
from diskproof.frontends.effective import read_nodes
from diskproof.guest.ours.boot import Guest, start_guest
from diskproof.guest.ours.build import GuestFiles
from diskproof.host.machines import find_machines, running
from diskproof.process.open_files import find_open_flags, find_rings
from diskproof.process.run_user import require_run_user
from diskproof.process.start import run
from diskproof.qemu.machine import BUS_DRIVERS, ROOT_DRIVERS, GuestMachine
from diskproof.records import BackingSpec
from diskproof.study.factors import CACHE_MODES
from diskproof.units import parse_bytes

BASE = 16 << 20
# One on each bus; "" is a cache mode that the test fills in, and with it the way of I/O.
DISKS = {
    "virtio-blk": {
        "format": "qcow2",
        "discard": "unmap",
        "detect-zeroes": "unmap",
        "iothread": "on",
        "lazy_refcounts": "on",
        "l2-cache-size": "1M",
        "cluster_size": "128K",
    },
    "virtio-scsi": {"format": "raw", "detect-zeroes": "on", "iothread": "on"},
    "ide": {"format": "qed", "iothread": "off"},
    "ahci": {"format": "raw", "discard": "unmap", "preallocation": "falloc"},
    "nvme": {"format": "qcow2", "lazy_refcounts": "off", "preallocation": "metadata"},
}
MODES = ("none", "writeback", "writethrough", "directsync", "unsafe")
_LOOK = """for disk in /sys/block/*; do
echo $(cat $disk/size) $(cat $disk/queue/write_cache | tr ' ' _) /dev/${disk##*/}
done"""


class AllBuses(GuestMachine):
    """A guest with the drivers of every bus."""

    @property
    def drivers(self) -> tuple[str, ...]:
        return tuple(
            dict.fromkeys((*ROOT_DRIVERS, *(n for bus in BUS_DRIVERS.values() for n in bus)))
        )


def cells(shift: int) -> dict[str, dict[str, str]]:
    """The five disks by name, each with another cache mode for each ``shift``."""
    found = {}
    for place, (bus, levels) in enumerate(DISKS.items()):
        cache = MODES[(place + shift) % len(MODES)]
        pair = ("native", "io_uring")[:: -1 if shift % 2 else 1]
        aio = {"none": pair[0], "directsync": pair[1]}.get(cache, "threads")
        found[f"on-{bus}"] = {"bus": bus, "cache": cache, "aio": aio, **levels}
    return found


def write_disk(folder: Path, name: str, levels: Mapping[str, str], size: int) -> Paste:
    """The paste of a disk whose image its own line has made in ``folder``."""
    paste = DIALECT.write(levels, Target(f"{name}.img", disk=name))
    words = shlex.split(paste.create)
    assert words[-1] == "SIZE"
    path = folder / words[-2]
    run([*words[:-2], str(path), str(size)], timeout=30)
    os.chown(path, require_run_user(), require_run_user())
    return paste


def check_nodes(guest: Guest, name: str, levels: Mapping[str, str], size: int) -> None:
    """Both nodes and the device, as QMP tells them."""
    nodes = read_nodes(guest.qmp)
    mode = CACHE_MODES[levels["cache"]]
    for node in (nodes[f"{name}-file"], nodes[f"{name}-format"]):
        cache = node["cache"]
        assert isinstance(cache, dict)
        assert (cache["direct"], cache["no-flush"]) == (mode.direct, mode.no_flush)
        assert node["ro"] is False
    upper = nodes[f"{name}-format"]
    assert (upper["drv"], upper["detect_zeroes"]) == (
        levels["format"],
        levels.get("detect-zeroes", "off"),
    )
    image = upper["image"]
    assert isinstance(image, dict)
    assert image["virtual-size"] == size
    if cluster := levels.get("cluster_size"):
        assert image["cluster-size"] == parse_bytes(cluster)
    if lazy := levels.get("lazy_refcounts"):
        assert image["format-specific"]["data"]["lazy-refcounts"] == (lazy == "on")
    blocks = guest.qmp.execute("query-block")
    (block,) = [b for b in blocks if name in str(b.get("qdev")).split("/")]
    assert block["inserted"]["cache"]["writeback"] is not mode.write_through


@pytest.mark.parametrize("shift", range(5))
def test_pasted_lines_boot_and_are_what_they_say(
    tmp_path: Path, guest_files: GuestFiles, shift: int
) -> None:
    disks = cells(shift)
    spec = BackingSpec("d", "directory", (("path", str(tmp_path / "images")),), make=True)
    with start_disk_dir(spec, NO_CONSENT) as folder:
        sizes = {name: BASE + (place << 20) for place, name in enumerate(disks)}
        pastes = [write_disk(folder, name, disks[name], sizes[name]) for name in disks]
        args = shlex.split(" ".join(paste.text.replace("\\\n", " ") for paste in pastes))
        machine = AllBuses("tcg", disk_args=tuple(args))
        with start_guest(guest_files, machine, run_dir=folder) as guest:
            seen = guest.channel.exec(["sh", "-c", _LOOK], timeout=60).stdout.decode().split("\n")
            by_size = {int(line.split()[0]) << 9: line.split()[1:] for line in seen if line}
            pid = guest.process.pid
            assert find_rings(pid) >= {"aio", "io_uring"}
            threads = {f"{name}-iothread" for name in disks if disks[name].get("iothread") == "on"}
            objects = {item["name"] for item in guest.qmp.execute("qom-list", {"path": "/objects"})}
            assert objects >= threads
            for name, levels in disks.items():
                mode = CACHE_MODES[levels["cache"]]
                check_nodes(guest, name, levels, sizes[name])
                flags = find_open_flags(pid, folder / f"{name}.img")
                assert flags is not None
                assert bool(flags & os.O_DIRECT) == mode.direct
                write_cache, device = by_size[sizes[name]]
                through = mode.write_through and levels["bus"] != "nvme"
                assert write_cache == ("write_through" if through else "write_back")
                argv = ["dd", "if=/dev/zero", f"of={device}", "bs=4k", "count=8", "conv=fsync"]
                assert guest.channel.exec(argv, timeout=60).exit.code == 0
            check_found(pid, disks)


def check_found(pid: int, disks: Mapping[str, Mapping[str, str]]) -> None:
    """Whoever looks for machines finds these disks as they were set."""
    with pytest.MonkeyPatch.context() as patch:  # on a busy host
        patch.setattr(running, "SECONDS", 60.0)
        (machine,) = [machine for machine in find_machines().machines if machine.pid == pid]
    found = {disk.name: disk for disk in machine.disks if disk.name in disks}
    assert found.keys() == disks.keys()
    for name, disk in found.items():
        assert disk.running is not None
        made = {"cluster_size", "preallocation"}
        wanted = {key: level for key, level in disks[name].items() if key not in made}
        assert wanted.items() <= disk.running.levels.items()
