"""A distribution's kernel image, unpacked.

QEMU boots an uncompressed kernel directly (the PVH entry). Unpacking it once here saves an
emulated machine three of its five seconds to boot. Layout: Documentation/arch/x86/boot.rst.
"""

import gzip
import lzma
import re
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from diskproof.errors import HostError
from diskproof.process.start import require_tool, run
from diskproof.study.guest_root import split_root

MAX_KERNEL = 512 << 20
_SETUP_SECTORS = 0x1F1
_MAGIC = 0x202
_PAYLOAD = 0x248
_SIZE_BYTES = 4  # the build appends the unpacked size to payloads that do not hold it


def find_payload(image: bytes) -> bytes:
    """The compressed kernel inside a bzImage. Raises HostError when it is not one."""
    if len(image) < 0x250 or image[_MAGIC : _MAGIC + 4] != b"HdrS":
        raise HostError("the kernel image cannot be read", "it has no x86 boot header")
    begin = (max(image[_SETUP_SECTORS], 1) + 1) * 512
    offset, length = struct.unpack_from("<II", image, _PAYLOAD)
    payload = image[begin + offset :][:length]
    if not length or len(payload) != length:
        raise HostError("the kernel image cannot be read", "its payload is cut short")
    return payload


def unpack_kernel(image: bytes, scratch: Path) -> bytes:
    """The ELF kernel inside a bzImage. ``scratch`` is a folder for temporary files."""
    payload = find_payload(image)
    if payload.startswith(b"\xfd7zXZ"):
        kernel = lzma.LZMADecompressor().decompress(payload, MAX_KERNEL)
    elif payload.startswith(b"\x1f\x8b"):
        kernel = zlib.decompressobj(wbits=31).decompress(payload, MAX_KERNEL)
    elif payload.startswith(b"\x28\xb5\x2f\xfd"):
        kernel = _unpack_zstd(payload[:-_SIZE_BYTES], scratch)
    else:
        raise HostError(
            "the kernel image cannot be unpacked", f"its payload starts with {payload[:4].hex()}"
        )
    if not kernel.startswith(b"\x7fELF"):
        raise HostError("the kernel image cannot be unpacked", "its payload is no ELF file")
    return kernel


def _unpack_zstd(payload: bytes, scratch: Path) -> bytes:
    packed, unpacked = scratch / "kernel.zst", scratch / "kernel.elf"
    packed.write_bytes(payload)
    run([require_tool("zstd", "zstd"), "-dqf", str(packed), "-o", str(unpacked)], timeout=120)
    kernel = unpacked.read_bytes()
    packed.unlink()
    unpacked.unlink()
    return kernel


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
        *("dm_mod", "dm_delay", "dm_log_writes", "dm_snapshot", "dm_thin_pool", "f2fs", "fuse"),
        *("raid0", "raid1", "raid10", "raid456", "iscsi_target_mod"),
        *("target_core_file", "target_core_iblock", "iscsi_tcp", "sd_mod"),
    ),
    "zfs": ("zfs",),  # built by zfs_modules.py
}

# Checksums, ciphers and tables that file systems ask the kernel for by name; without modprobe in
# the initramfs nobody would load them on demand. A kernel that has them built in lacks the module.
_ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "crc32": ("crc32_generic",),
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
    return read_modules(found[0])


def read_modules(folder: Path) -> KernelModules:
    """The modules of the kernel whose release names the folder."""
    builtin = (folder / "modules.builtin").read_text().split()
    files = {_plain(path.name): path for path in folder.rglob("*.ko*")}
    return KernelModules(folder.name, files, frozenset(_plain(Path(n).name) for n in builtin))


def root_modules(extra: str) -> tuple[str, ...]:
    """Names of the modules that lie in the root of a guest with an extra, if any."""
    return FILESYSTEMS + NETWORK_CARD + EXTRA_MODULES.get(split_root(extra)[0], ())


def find_extra(module: str) -> str:
    """The extra whose guest loads a module, or nothing."""
    return next((extra for extra, names in EXTRA_MODULES.items() if module in names), "")


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
    if suffix == ".ko.zst":
        return run([require_tool("zstd", "zstd"), "-dcq", str(path)], timeout=60).stdout
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
