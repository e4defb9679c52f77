"""A distribution's kernel image, unpacked.

QEMU boots an uncompressed kernel directly (the PVH entry). Unpacking it once here saves an
emulated machine three of its five seconds to boot. Layout: Documentation/arch/x86/boot.rst.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from pathlib import Path

from diskproof.errors import HostError
from diskproof.process.start import require_tool, run

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
