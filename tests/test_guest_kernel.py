"""Kernel images unpacked; made here in every packing a distribution uses."""

import gzip
import lzma
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diskproof.errors import HostError
from diskproof.guest.ours.kernel import find_payload, unpack_kernel
from diskproof.process.start import find_tool, run

KERNEL = b"\x7fELF" + bytes(range(256)) * 4000


def make_image(payload: bytes, setup_sectors: int = 3, offset: int = 64) -> bytes:
    """A bzImage that holds what a boot loader needs to find the payload."""
    header = bytearray((setup_sectors + 1) * 512)
    header[0x1F1] = setup_sectors
    header[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", header, 0x248, offset, len(payload))
    return bytes(header) + b"\0" * offset + payload + b"behind"


@pytest.mark.parametrize("packed", [lzma.compress(KERNEL), gzip.compress(KERNEL)], ids=["xz", "gz"])
def test_unpacks(packed: bytes, tmp_path: Path) -> None:
    size = struct.pack("<I", len(KERNEL))
    assert unpack_kernel(make_image(packed + size), tmp_path) == KERNEL


@pytest.mark.skipif(find_tool("zstd") is None, reason="needs zstd")
def test_unpacks_zstd_and_leaves_nothing(tmp_path: Path) -> None:
    packed = run(["zstd", "-qc"], timeout=20, stdin=KERNEL).stdout
    size = struct.pack("<I", len(KERNEL))
    assert unpack_kernel(make_image(packed + size), tmp_path) == KERNEL
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("image", "why"),
    [
        (b"", "no x86 boot header"),
        (b"\0" * 4096, "no x86 boot header"),
        (make_image(b"LZOP" * 9)[:-12], "cut short"),
        (make_image(b"LZOP" * 9), "starts with 4c5a4f50"),
        (make_image(gzip.compress(b"no elf")), "no ELF"),
    ],
)
def test_refuses_what_it_cannot_unpack(image: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        unpack_kernel(image, tmp_path)
    assert why in caught.value.why


@given(st.binary(max_size=1500))
def test_any_bytes_are_read_or_refused(tail: bytes) -> None:
    image = bytearray(make_image(b""))
    image[0x1F1 : 0x1F1 + len(tail)] = tail
    try:
        find_payload(bytes(image))
    except HostError as error:
        assert error.why
