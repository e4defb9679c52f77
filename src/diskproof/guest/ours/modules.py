"""Kernel modules: which files a module needs, in the order they must be loaded."""

import gzip
import lzma
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError

# The channel to the host: loaded before the agent can say anything.
CHANNEL = ("virtio_pci", "virtio_console")
# The read-only root, and every bus a disk under test may be on.
DRIVES = ("virtio_blk", "squashfs", "virtio_scsi", "sd_mod", "ata_piix", "ahci", "nvme")
# In the root, not the initramfs: four times the rest together, and no boot needs them.
FILESYSTEMS = ("ext4", "xfs", "btrfs", "overlay", "loop")
# There too: only guests that talk to each other have a card.
NETWORK_CARD = ("virtio_net",)
# What only the guest with these extras (``packages.EXTRA_PACKAGES``) loads.
EXTRA_MODULES: Mapping[str, tuple[str, ...]] = {
    "servers": ("cifs", "nfs", "nfsv4", "nfsd"),
    "storage": (
        *("dm_mod", "dm_snapshot", "dm_thin_pool", "raid0", "raid1", "raid10", "raid456"),
        *("iscsi_target_mod", "target_core_file", "target_core_iblock", "iscsi_tcp", "sd_mod"),
    ),
}

# Checksums, ciphers and tables that file systems ask the kernel for by name; without modprobe in
# the initramfs nobody would load them on demand. A kernel that has them built in lacks the module.
_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "crc32c": ("crc32c_generic",),
    "crypto_crc32c": ("crc32c_generic",),
    "xxhash64": ("xxhash_generic",),
    "blake2b_256": ("blake2b_generic",),
    "ccm": ("ctr", "ccm"),
    "cmac": ("cmac",),
    "ecb": ("ecb",),
    "gcm": ("ctr", "ghash_generic", "gcm"),
    "nls": ("nls_utf8",),
    "sha512": ("sha512_generic",),
}
_UNPACK: Mapping[str, Callable[[bytes], bytes]] = {
    ".ko": bytes,
    ".ko.xz": lzma.decompress,
    ".ko.gz": gzip.decompress,
}


@dataclass(frozen=True)
class KernelModules:
    """The modules of one kernel: name (with ``_``) to file, and those built in."""

    release: str
    files: Mapping[str, Path]
    builtin: frozenset[str]


def find_modules(root: Path) -> KernelModules:
    """The modules of the one kernel in a root. Raises HostError when there is not exactly one."""
    found = sorted(root.glob("lib/modules/*")) or sorted(root.glob("usr/lib/modules/*"))
    if len(found) != 1:
        raise HostError("the guest has no kernel", f"{len(found)} kernels were unpacked, not one")
    folder = found[0]
    builtin = (folder / "modules.builtin").read_text().split()
    files = {_plain(path.name): path for path in folder.rglob("*.ko*")}
    return KernelModules(folder.name, files, frozenset(_plain(Path(n).name) for n in builtin))


def root_modules(extra: str) -> tuple[str, ...]:
    """Names of the modules that lie in the root of a guest with an extra, if any."""
    return FILESYSTEMS + NETWORK_CARD + EXTRA_MODULES.get(extra, ())


def load_order(modules: KernelModules, name: str) -> tuple[str, ...]:
    """Names of the modules to load for ``name``, itself last; none when it is built in.

    Raises HostError when the kernel does not have it.
    """
    order: list[str] = []
    _append(modules, _plain(name), order)
    return tuple(order)


def _append(modules: KernelModules, name: str, order: list[str]) -> None:
    if name in modules.builtin or name in order:
        return
    if name not in modules.files:
        raise HostError(
            f"the kernel {modules.release} has no module {name}",
            "the guest needs it",
            "use a full kernel (linux-image-amd64), not one made for clouds",
        )
    content = read_module(modules.files[name])
    for needed in _read_info(content, "depends"):
        _append(modules, needed, order)
    for needed in _read_info(content, "softdep"):
        for algorithm in _ALGORITHMS.get(needed, ()):
            if algorithm in modules.files:
                _append(modules, algorithm, order)
    order.append(name)


def read_module(path: Path) -> bytes:
    """A module's content, unpacked. Raises HostError for a format that is not known."""
    suffix = path.name[path.name.index(".ko") :]
    if suffix not in _UNPACK:
        raise HostError(f"cannot unpack {path.name}", f"{suffix} is not known")
    return _UNPACK[suffix](path.read_bytes())


def _read_info(content: bytes, key: str) -> list[str]:
    """The words of all ``key=`` entries of a module's .modinfo section, as plain names."""
    values = re.findall(rb"\0%s=([^\0]*)(?=\0)" % key.encode(), content)
    words = re.split(r"[,\s]+", b" ".join(values).decode("ascii", "replace"))
    return [_plain(word) for word in words if word]


def _plain(name: str) -> str:
    return name.partition(".ko")[0].replace("-", "_")
