"""Load order of kernel modules, from module files made here."""

import gzip
import lzma
from pathlib import Path

import pytest

from diskproof.errors import HostError
from diskproof.guest.ours.kernel import find_modules, load_order, read_module

INFO = {
    "virtio": "depends=",
    "virtio_ring": "depends=",
    "virtio-blk": "depends=virtio,virtio_ring",
    "crc32c_generic": "depends=",
    "mbcache": "depends=",
    "jbd2": "depends=\0softdep=pre: crypto-crc32c",
    "ext4": "softdep=pre: crc32c\0depends=mbcache,jbd2,crc16",
    "lost": "depends=not_there",
    "ghash-generic": "depends=gf128mul",
    "gf128mul": "depends=",
    "gcm": "depends=",
    "ctr": "depends=",
    "cmac": "depends=",
    # Entries in a row, as a list of many softdeps is kept.
    "cifs": "softdep=gcm\0softdep=cmac\0softdep=sha512\0softdep=aes\0depends=",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "lib" / "modules" / "6.1.0-1-amd64"
    deep = folder / "kernel" / "drivers"
    deep.mkdir(parents=True)
    (folder / "modules.builtin").write_text("kernel/lib/crc16.ko\n")
    for name, info in INFO.items():
        (deep / f"{name}.ko").write_bytes(b"\x7fELF\0" + info.encode() + b"\0license=GPL\0")
    return tmp_path


def test_needed_modules_come_first_once(root: Path) -> None:
    found = find_modules(root)
    assert found.release == "6.1.0-1-amd64"
    assert load_order(found, "virtio-blk") == ("virtio", "virtio_ring", "virtio_blk")
    assert load_order(found, "virtio_blk") == load_order(found, "virtio-blk")


def test_checksums_asked_for_by_name_are_loaded_too(root: Path) -> None:
    assert load_order(find_modules(root), "ext4") == (
        "mbcache",
        "crc32c_generic",
        "jbd2",
        "ext4",
    )


def test_ciphers_come_with_what_they_are_made_of(root: Path) -> None:
    order = load_order(find_modules(root), "cifs")
    assert order == ("ctr", "gf128mul", "ghash_generic", "gcm", "cmac", "cifs")


def test_built_in_needs_nothing(root: Path) -> None:
    assert load_order(find_modules(root), "crc16") == ()


def test_missing_module_names_itself(root: Path) -> None:
    with pytest.raises(HostError, match="no module not_there") as caught:
        load_order(find_modules(root), "lost")
    assert "linux-image-amd64" in caught.value.hint


def test_two_kernels_are_refused(root: Path) -> None:
    (root / "lib" / "modules" / "6.1.0-2-amd64").mkdir()
    with pytest.raises(HostError, match="no kernel"):
        find_modules(root)


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("a.ko", b"code"),
        ("a.ko.xz", lzma.compress(b"code")),
        ("a.ko.gz", gzip.compress(b"code", mtime=0)),
    ],
)
def test_reads_packed_modules(name: str, packed: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(packed)
    assert read_module(tmp_path / name) == b"code"


def test_unknown_packing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.ko.br").write_bytes(b"")
    with pytest.raises(HostError, match="cannot unpack a.ko.br"):
        read_module(tmp_path / "a.ko.br")
