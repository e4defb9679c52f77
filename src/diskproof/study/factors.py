"""The factors of a study as data: names and levels as QEMU spells them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from diskproof.units import render_bytes

FRONTENDS = ("host", "container", "daemon", "guest", "own-guest")
_GUEST = frozenset({"guest", "own-guest"})
_BLOCK_LAYER = _GUEST | {"daemon"}


@dataclass(frozen=True)
class CacheMode:
    """What a cache mode means. Source: qemu-block-drivers(7) and qemu(1), ``-drive cache=``.

    ``direct``: the host's page cache is bypassed. ``no_flush``: flushes are not carried out.
    ``write_through``: each write is flushed before it is acknowledged.
    """

    direct: bool = False
    no_flush: bool = False
    write_through: bool = False


CACHE_MODES: Mapping[str, CacheMode] = {
    "none": CacheMode(direct=True),
    "writeback": CacheMode(),
    "writethrough": CacheMode(write_through=True),
    "directsync": CacheMode(direct=True, write_through=True),
    "unsafe": CacheMode(no_flush=True),
}

DIRECT = tuple(name for name, mode in CACHE_MODES.items() if mode.direct)
"""Modes that bypass the page cache of the host that has the file."""


@dataclass(frozen=True)
class Need:
    """These ``levels`` of a factor work only with the ``wanted`` ones of another ``factor``."""

    levels: tuple[str, ...]
    factor: str
    wanted: tuple[str, ...]


@dataclass(frozen=True)
class Factor:
    """One axis. ``levels`` is empty when ``kind`` says how a free level reads.

    ``frontends`` are those the factor means something to, ``formats`` the image formats
    (empty: all); elsewhere the factor collapses and is not part of the cell. ``over_network``: it
    means something to a disk behind a server too. ``label`` goes before its level in the name of a
    cell (empty: the level speaks for itself), where a ``silent`` level is not told. ``decides``: a
    crash's verdict holds for the speeds of that level only.
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
    needs: tuple[Need, ...] = ()
    label: str = ""
    silent: str = "off"
    decides: bool = False

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
        FRONTENDS,
        frontends=frozenset(FRONTENDS),
        decides=True,
    ),
    Factor(
        "backing",
        "directory",
        "where image bytes live: the name of a [backings.NAME] table",
        kind="name",
        frontends=frozenset(FRONTENDS),
    ),
    Factor("format", "qcow2", "image format", ("raw", "qcow2", "qed"), decides=True),
    Factor(
        "preallocation",
        "off",
        "space reserved when the image is made",
        ("off", "metadata", "falloc", "full"),
        needs=(
            Need(("metadata",), "format", ("qcow2",)),
            Need(("falloc", "full"), "format", ("raw", "qcow2")),
        ),
        label="prealloc",
        decides=True,
    ),
    Factor("cache", "writeback", "cache mode of the disk", tuple(CACHE_MODES), decides=True),
    Factor(
        "aio",
        "threads",
        "how QEMU submits I/O",
        ("threads", "native", "io_uring"),
        over_network=False,
        needs=(Need(("native",), "cache", DIRECT),),
        decides=True,
    ),
    Factor(
        "discard",
        "ignore",
        "what happens to a discard request",
        ("ignore", "unmap"),
        label="discard",
        silent="ignore",
        decides=True,
    ),
    Factor(
        "detect-zeroes",
        "off",
        "turn writes of zeroes into holes",
        ("off", "on", "unmap"),
        needs=(Need(("unmap",), "discard", ("unmap",)),),
        label="zeroes",
        decides=True,
    ),
    Factor("iothread", "off", "a thread of its own for the disk", ("off", "on"), label="iothread"),
    Factor(
        "cluster_size",
        "64K",
        "allocation unit of the image",
        kind="bytes",
        formats=frozenset({"qcow2", "qed"}),
        low=4 << 10,
        high=2 << 20,
        power_of_two=True,
        label="cluster",
    ),
    Factor(
        "lazy_refcounts",
        "off",
        "postpone reference count updates",
        ("off", "on"),
        formats=frozenset({"qcow2"}),
        label="lazy",
        decides=True,
    ),
    Factor(
        "l2-cache-size",
        "32M",
        "memory for the mapping tables",
        kind="bytes",
        formats=frozenset({"qcow2"}),
        low=64 << 10,
        high=4 << 30,
        label="l2",
    ),
    Factor(
        "bus",
        "virtio-blk",
        "how the guest sees the disk",
        ("virtio-blk", "virtio-scsi", "ide", "ahci", "nvme"),
        frontends=_GUEST,
        decides=True,
    ),
    Factor("accel", "auto", "CPU accelerator", ("auto", "kvm", "tcg"), frontends=_GUEST),
    Factor(
        "vcpus",
        "1",
        "virtual processors",
        kind="count",
        frontends=_GUEST,
        low=1,
        high=64,
        label="vcpus",
    ),
    Factor(
        "memory",
        "512M",
        "guest memory",
        kind="bytes",
        frontends=_GUEST,
        low=192 << 20,
        high=1 << 40,
        label="mem",
    ),
)

FACTOR_BY_NAME = {factor.name: factor for factor in FACTORS}


def count_processors(levels: Mapping[str, str]) -> int:
    """Of a cell's guest; 1 where it has none."""
    return int(levels.get("vcpus") or 1)


def _said(factor: str, theirs: str, ours: str, more: str = "") -> tuple[tuple[str, str], str]:
    told = f"{factor} has no {theirs!r}; what Proxmox and libvirt call so is {ours!r} here{more}"
    return (factor, theirs), told


def _not_offered(form: str, of: str) -> tuple[tuple[str, str], str]:
    return ("format", form), (
        f"format has no {form!r}: QEMU writes {of} images for exchange, not to run machines on "
        "(qemu-img(1) names raw and qcow2 for that); convert such a disk with `qemu-img convert`"
    )


OTHER_WORDS: dict[tuple[str, str], str] = dict(
    (
        _said("bus", "sata", "ahci"),
        _said("bus", "scsi", "virtio-scsi"),
        _said("bus", "virtio", "virtio-blk"),
        _said("bus", "virtio-scsi-pci", "virtio-scsi"),
        _said("bus", "virtio-scsi-single", "virtio-scsi", ', with iothread = "on"'),
        _said("aio", "io-uring", "io_uring"),
        _said("discard", "on", "unmap"),
        _said("discard", "off", "ignore"),
        _said("cache", "default", "writeback"),
        _said("accel", "qemu", "tcg"),
        _not_offered("vmdk", "VMware's"),
        _not_offered("vdi", "VirtualBox's"),
        _not_offered("vpc", "Virtual PC's"),
        _not_offered("vhdx", "Hyper-V's"),
    )
)
"""Words of managers of virtual machines for what has another one here, by factor: what to write."""
