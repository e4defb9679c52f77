"""The factors of a study as data: names and levels as QEMU spells them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from diskproof.units import render_bytes

FRONTENDS = ("host", "container", "daemon", "guest", "own-guest")
_GUEST = frozenset({"guest", "own-guest"})
_BLOCK_LAYER = _GUEST | {"daemon"}


@dataclass(frozen=True)
class Factor:
    """One axis. ``levels`` is empty when ``kind`` says how a free level reads.

    ``frontends`` are those the factor means something to, ``formats`` the image formats
    (empty: all); elsewhere the factor collapses and is not part of the cell. ``over_network``: it
    means something to a disk behind a server too.
    """

    name: str
    default: str
    help: str
    levels: tuple[str, ...] = ()
    kind: Literal["choice", "bytes", "count", "name"] = "choice"
    frontends: frozenset[str] = _BLOCK_LAYER
    formats: frozenset[str] = frozenset()
    low: int = 0
    high: int = 0
    power_of_two: bool = False
    over_network: bool = True

    @property
    def range_text(self) -> str:
        """The bounds of a free level, for people."""
        if self.kind == "bytes":
            return f"{render_bytes(self.low)} to {render_bytes(self.high)}"
        return f"{self.low} to {self.high}"


FACTORS = (
    Factor(
        "frontend",
        "daemon",
        "who drives the disk: fio on the backing, the same in a container, qemu-storage-daemon "
        "over NBD, a guest, or a guest of your own",
        levels=FRONTENDS,
        frontends=frozenset(FRONTENDS),
    ),
    Factor(
        "backing",
        "directory",
        "where image bytes live: the name of a [backings.NAME] table",
        kind="name",
        frontends=frozenset(FRONTENDS),
    ),
    Factor("format", "qcow2", "image format", levels=("raw", "qcow2", "qed")),
    Factor(
        "preallocation",
        "off",
        "space reserved when the image is made",
        levels=("off", "metadata", "falloc", "full"),
    ),
    Factor(
        "cache",
        "writeback",
        "cache mode of the disk",
        levels=("none", "writeback", "writethrough", "directsync", "unsafe"),
    ),
    Factor(
        "aio",
        "threads",
        "how QEMU submits I/O",
        levels=("threads", "native", "io_uring"),
        over_network=False,
    ),
    Factor("discard", "ignore", "what happens to a discard request", levels=("ignore", "unmap")),
    Factor(
        "detect-zeroes", "off", "turn writes of zeroes into holes", levels=("off", "on", "unmap")
    ),
    Factor("iothread", "off", "a thread of its own for the disk", levels=("off", "on")),
    Factor(
        "cluster_size",
        "64K",
        "allocation unit of the image",
        kind="bytes",
        formats=frozenset({"qcow2", "qed"}),
        low=4 << 10,
        high=2 << 20,
        power_of_two=True,
    ),
    Factor(
        "lazy_refcounts",
        "off",
        "postpone reference count updates",
        levels=("off", "on"),
        formats=frozenset({"qcow2"}),
    ),
    Factor(
        "l2-cache-size",
        "32M",
        "memory for the mapping tables",
        kind="bytes",
        formats=frozenset({"qcow2"}),
        low=64 << 10,
        high=4 << 30,
    ),
    Factor(
        "bus",
        "virtio-blk",
        "how the guest sees the disk",
        levels=("virtio-blk", "virtio-scsi", "ide", "ahci", "nvme"),
        frontends=_GUEST,
    ),
    Factor("accel", "auto", "CPU accelerator", levels=("auto", "kvm", "tcg"), frontends=_GUEST),
    Factor("vcpus", "1", "virtual processors", kind="count", frontends=_GUEST, low=1, high=64),
    Factor(
        "memory",
        "512M",
        "guest memory",
        kind="bytes",
        frontends=_GUEST,
        low=192 << 20,
        high=1 << 40,
    ),
)

FACTOR_BY_NAME = {factor.name: factor for factor in FACTORS}
