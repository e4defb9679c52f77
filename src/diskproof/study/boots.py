"""Sizes of a study of boots, from the share of the published ones that it asks for.

Published in 2012: three times 2 GiB of zeroes in blocks of 1 GiB, the tarball of a kernel's source
of about 38,000 files and 450 MB.
"""

from diskproof.records import WorkloadSpec
from diskproof.units import MIB

FULL_FILES = 38_000
MEAN_BYTES = 12_000
FOLDER_FILES = 30
FULL_BLOCK = 1 << 30
BLOCKS = 2
ROOT_BYTES = 256 << 20  # the unpacked packages, the journal and the tables of a small ext4
SYSTEM_MEMORY = 128 << 20  # what a guest needs beside the block that it writes


def parse_scale(text: str) -> float:
    """``1`` or ``1/N``, as ``programs`` lets it through."""
    whole, _, part = text.partition("/")
    return int(whole) / int(part or "1")


def count_boots(spec: WorkloadSpec) -> int:
    """How many boots it measures."""
    return int(spec.option("reads")) + int(spec.option("writes"))


def block_bytes(scale: float) -> int:
    """A block of zeroes, in whole MiB."""
    return max(1, round(FULL_BLOCK * scale / MIB)) * MIB


def payload_files(scale: float) -> int:
    """How many files the tarball of that scale holds."""
    return max(FOLDER_FILES, round(FULL_FILES * scale))


def payload_members(scale: float) -> int:
    """Files and folders in the tarball."""
    files = payload_files(scale)
    return files + -(-files // FOLDER_FILES)


def payload_bytes(scale: float) -> int:
    """An upper bound of the tarball's size, with headers and padding, packed or unpacked."""
    return payload_files(scale) * (MEAN_BYTES + 2048) * 3 // 2 + (4 << 20)


def disk_bytes(scale: float) -> int:
    """A disk with room: root, payload packed and unpacked, one pass of zeroes, a fifth to spare."""
    contents = ROOT_BYTES + 2 * payload_bytes(scale) + BLOCKS * block_bytes(scale)
    return -(-(contents + contents // 5) // MIB) * MIB


def memory_bytes(scale: float) -> int:
    """The least memory of a guest: dd holds a whole block."""
    return SYSTEM_MEMORY + block_bytes(scale) + block_bytes(scale) // 4
